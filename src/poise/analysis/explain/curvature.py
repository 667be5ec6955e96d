"""L and mu of the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
import torch

from poise.analysis.explain.client_gradients import Clients, cost
from poise.core.rng import torch_generator
from poise.core.vectors import Stack, Vector

ITERATIONS = 15
MOST = 6e7  # multiplications of one Hessian-vector product
GRAM = 2e9  # multiplications for the largest singular values of the clients' data


@dataclass(frozen=True)
class Constant:
    """A number, the interval that it lies in, and how it was found; nan for one that is not
    known.
    """

    value: float
    low: float
    high: float
    method: str

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return isfinite(self.value)

    def __str__(self) -> str:
        if not self.known:
            return f"unknown ({self.method})"
        around = (
            ""
            if self.low == self.high
            else f" [{self.low:.3g}, {'…' if self.high == inf else f'{self.high:.3g}'}]"
        )
        return f"{self.value:.4g}{around} ({self.method})"


@dataclass(frozen=True)
class Curvature:
    """L and mu as constants, and a bound of L for each client."""

    smoothness: Constant
    convexity: Constant
    each: torch.Tensor  # (m,)


def curvature_of(
    clients: Clients, points: list[Vector], kind: str | None, decay: float
) -> Curvature:
    """L by power iteration at these points, with the bound that holds everywhere where there is
    one; mu.
    """
    looked = _few(clients)
    if looked is None:
        unknown = Constant(nan, nan, nan, "a Hessian of this model takes too long here")
        return Curvature(unknown, unknown, torch.ones(len(clients.numbers)))
    at = torch.stack([largest_eigenvalues(looked, w) for w in points]).max(dim=0).values
    found = float(at.max())
    where = (
        f"power iteration on Hessian-vector products at {len(points)} "
        f"model{'s' * (len(points) > 1)}"
    )
    if kind == "quadratic":
        least = float((found - largest_eigenvalues(looked, points[0], shift=found)).min())
        how = f"{where}; the Hessian is constant"
        return Curvature(Constant(found, found, found, how), Constant(least, least, least, how), at)
    if kind == "logistic":
        each = logistic_bounds(clients) + decay
        most = max(float(each.max()), found)
        seen = len(clients.numbers)
        how = f"bound |X|²/(2n) + decay of {seen} clients; lower end by {where}"
        mu = (
            Constant(decay, decay, found, "weight decay of the solver")
            if decay > 0
            else Constant(0.0, 0.0, 0.0, "convex, but without weight decay not strongly")
        )
        return Curvature(Constant(most, found, most, how), mu, each)
    unknown = Constant(nan, nan, nan, "not known to be convex")
    how = f"{where}, {len(looked.numbers)} clients; it may be larger elsewhere"
    return Curvature(Constant(found, found, inf, how), unknown, at)


def _few(clients: Clients) -> Clients | None:
    """As many clients and samples as the budget of one product allows; None where it allows hardly
    any.
    """
    room = MOST / cost(clients.oracle)
    if clients.samples <= room:
        return clients
    if room < 32:
        return None
    per = int(np.clip(room / len(clients.numbers), 16, 256))
    count = int(np.clip(room / per, 1, len(clients.numbers)))
    picked = clients.numbers[np.linspace(0, len(clients.numbers) - 1, count).astype(int)]
    return Clients.open(clients.oracle, picked, clients.decay, most=per)


def largest_eigenvalues(clients: Clients, theta: Vector, shift: float = 0.0) -> torch.Tensor:
    """The largest |eigenvalue| of each client's Hessian at a model, (m,); of ``shift - Hessian``
    where one is given.

    ``H v`` is the difference of two gradients along v. Power iteration comes from below, so this is
    a lower bound that tightens with the iterations.
    """
    trainable, rows = clients.oracle.layout.trainable, clients.same(theta)
    direction = torch.randn(
        (len(rows), trainable),
        generator=torch_generator(0, "explain direction"),
        dtype=torch.float64,
    ).to(rows)
    direction /= direction.norm(dim=1, keepdim=True)
    reach = 1e-4 * max(1.0, float(theta[:trainable].norm()))
    found = torch.zeros(len(rows), dtype=torch.float64)
    for _ in range(ITERATIONS if clients.oracle.batches else 200):
        product = _along(clients, rows, reach * direction) / reach
        product = shift * direction - product if shift else product
        before, found = found, product.norm(dim=1).double()
        direction = product / product.norm(dim=1, keepdim=True).clamp(min=1e-300)
        if bool((found - before).abs().max() <= 1e-9 * found.max()):
            break
    return found


def _along(clients: Clients, rows: Stack, step: Stack) -> Stack:
    """Half the difference of the gradients one step ahead and one step back."""
    ahead, back = rows.clone(), rows.clone()
    ahead[:, : step.shape[1]] += step
    back[:, : step.shape[1]] -= step
    return (clients.gradients(ahead) - clients.gradients(back)) / 2


def logistic_bounds(clients: Clients) -> torch.Tensor:
    """``|[X_i, 1]|^2 / (2 n_i)`` for every client, (m,): no softmax bends more than 1/2.

    The norm is the largest singular value, or, where that takes too many operations, that of all
    entries together.
    """
    found = []
    room = GRAM / max(len(clients.positions), 1)
    for positions in clients.positions:
        x = clients.data.take(positions)[0].reshape(len(positions), -1).double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
        n, f = x.shape
        if n * f * min(n, f) <= room:
            top = float(torch.linalg.eigvalsh(x @ x.T if n < f else x.T @ x)[-1])
        else:
            top = float(x.square().sum())
        found.append(top / (2 * n))
    return torch.tensor(found, dtype=torch.float64)
