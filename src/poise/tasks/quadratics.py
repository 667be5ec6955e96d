"""Clients with quadratic losses, whose optimum is known in closed form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.arrays import array_of
from poise.core.batches import Batch
from poise.core.curvature import Curvature
from poise.core.errors import require
from poise.core.local_models import LocalModel, no_local_model
from poise.core.rng import U64
from poise.core.traits import TaskTraits
from poise.core.types import Floats, Ints
from poise.core.vectors import Layout, Stack, Vector


@dataclass(frozen=True)
class Quadratics:
    """A federation in which client i has ``L_i(w) = curvature_i/2 * |w - optimum_i|^2``."""

    optima: Floats  # (N, d)
    curvature: Floats  # (N,)
    sizes: Ints  # (N,)
    members: Ints  # (N,) the number of each client in the original federation

    on_demand = False
    spec = None

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.optima)

    @property
    def importance(self) -> Floats:
        """p_i = n_i / sum n_j."""
        return np.asarray(self.sizes / self.sizes.sum(), dtype=np.float64)

    def digest(self) -> str:
        """Return a hash of the clients' quadratics."""
        state = hashlib.blake2b(digest_size=16)
        for values in (self.optima, self.curvature, self.sizes):
            state.update(
                str(values.shape).encode() + np.ascontiguousarray(values).tobytes()
            )
        return state.hexdigest()

    def client(self, i: int) -> tuple[Floats, Ints]:
        """Return the optimum of client i as its only sample, for the similarity graph."""
        return np.asarray(self.optima[i : i + 1], dtype=np.float64), np.zeros(
            1, dtype=np.int64
        )

    def without(self, clients: Sequence[int] | Ints) -> Quadratics:
        """Return the federation without these clients; the others move up, in order."""
        stay = np.setdiff1d(
            np.arange(self.clients), np.asarray(clients, dtype=np.int64)
        )
        require(len(stay) > 0, f"without: no client of {self.clients} would be left")
        return Quadratics(
            self.optima[stay],
            self.curvature[stay],
            self.sizes[stay],
            self.members[stay],
        )

    @property
    def title(self) -> str:
        """A short description, without the values."""
        return f"Quadratics({self.clients} clients, {self.optima.shape[1]} dimensions)"

    @property
    def task(self) -> QuadraticTask:
        """The task to train on this federation; it starts at w = 0."""
        return QuadraticTask()


@dataclass(frozen=True)
class QuadraticTask:
    """Minimise the clients' quadratics; gradients are exact."""

    spec = None
    traits = TaskTraits(convex="quadratic", lowest_loss=0.0)

    def bind(self, federation: Quadratics, device: str = "cpu") -> QuadraticOracle:
        """Return the oracle of these quadratics."""
        return QuadraticOracle(
            federation,
            torch.from_numpy(federation.optima),
            torch.from_numpy(federation.curvature)[:, None],
        )


@dataclass(frozen=True)
class OpenedQuadratics:
    """The clients of one call."""

    clients: torch.Tensor
    sizes: Ints

    @property
    def offsets(self) -> Ints:
        """Zeros, as there are no samples."""
        return np.zeros(len(self.sizes) + 1, dtype=np.int64)


@dataclass(frozen=True)
class QuadraticOracle:
    """``grad L_i(w) = curvature_i (w - optimum_i)``, in double precision."""

    federation: Quadratics
    optima: torch.Tensor  # (N, d)
    curvatures: torch.Tensor  # (N, 1)

    batches = False
    metrics = frozenset({"loss", "client_loss"})

    module = None
    frozen = ""

    @property
    def layout(self) -> Layout:
        """One tensor, w."""
        return Layout.of_shapes({"w": (self.optima.shape[1],)})

    def initial(self, seed: int) -> Vector:
        """Return w = 0."""
        return torch.zeros(self.optima.shape[1], dtype=torch.float64)

    def rows(self, batch_size: int | None) -> int:
        """Return the number of clients: all fit into one call."""
        return max(1, len(self.optima))

    def stacks(self, samples: int) -> bool:
        """Return True: gradients are products over all clients of a call."""
        return True

    def curvature(self, batch_size: int | None) -> Curvature:
        """Return the largest and the smallest curvature of a client."""
        return Curvature(
            "quadratic",
            smoothness=float(self.curvatures.max()),
            convexity=float(self.curvatures.min()),
            exact=True,
        )

    def open(self, clients: Ints, streams: U64) -> OpenedQuadratics:
        """Open the data of these clients."""
        return OpenedQuadratics(
            torch.from_numpy(clients), self.federation.sizes[clients]
        )

    def gradients(
        self, rows: Stack, data: OpenedQuadratics, batch: Batch, out: Stack
    ) -> None:
        """Write the exact gradients into ``out``."""
        clients = data.clients[: len(rows)]
        torch.mul(rows - self.optima[clients], self.curvatures[clients], out=out)

    def losses(self, rows: Stack, data: OpenedQuadratics) -> Floats:
        """Return L_i at each row."""
        return self._losses(rows, data.clients)

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        map_workers: Callable[..., list[Any]],
        version: Callable[[Vector, int], Vector] = lambda theta, client: theta,
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Return ``loss`` = sum_i p_i L_i(w) and ``client_loss`` = L_i(w)."""
        each = self._losses(theta[None], torch.arange(len(self.optima)))
        values = {"loss": float(self.federation.importance @ each), "client_loss": each}
        return {name: values[name] for name in sorted(names)}

    def _losses(self, rows: Stack, clients: torch.Tensor) -> Floats:
        gaps = (rows - self.optima[clients]).square().sum(dim=1)
        return (0.5 * self.curvatures[clients, 0] * gaps).numpy()


def quadratics(
    optima: ArrayLike, curvature: ArrayLike = 1.0, sizes: ArrayLike | None = None
) -> Quadratics:
    """Return clients with quadratic losses, whose federated optimum is known.

    The optimum of ``sum_i p_i L_i`` is ``sum_i p_i c_i o_i / sum_i p_i c_i``.

    Args:
        optima: (N, d), the minimum of each client's loss.
        curvature: c_i, one number or one per client.
        sizes: n_i, which give the importance p_i; equal by default.

    >>> quadratics([[0.0], [4.0]], sizes=[1, 3]).importance
    array([0.25, 0.75])
    """
    o = _numbers(optima, "optima")
    require(
        o.ndim == 2 and len(o) > 0,
        f"quadratics: optima must be (clients, dimensions), not {o.shape}",
    )
    c = _numbers(curvature, "curvature")
    require(
        c.shape in ((), (1,), (len(o),)),
        f"quadratics: curvature has shape {c.shape} for {len(o)} clients",
        "give one number, or one per client",
    )
    c = np.broadcast_to(c, (len(o),)).copy()
    require(bool((c > 0).all()), "quadratics: curvature must be above 0")
    if sizes is None:
        n = np.ones(len(o), dtype=np.int64)
    else:
        n = _numbers(sizes, "sizes").astype(np.int64)
    require(
        n.shape == (len(o),) and bool((n > 0).all()),
        "quadratics: sizes must be above 0, one per client",
    )
    return Quadratics(o, c, n, np.arange(len(o)))


def _numbers(values: ArrayLike, name: str) -> Floats:
    """Return finite numbers as an array, or raise."""
    array = array_of(values, f"quadratics: {name}")
    require(
        array.dtype.kind in "biuf" and bool(np.isfinite(array).all()),
        f"quadratics: {name} must be finite numbers",
    )
    return np.array(array, dtype=np.float64)
