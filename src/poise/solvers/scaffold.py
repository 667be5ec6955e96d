"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from poise.core.errors import IncompatibleParts
from poise.core.parts import part
from poise.core.protocols import Memory, Transform
from poise.core.round_updates import RoundUpdates
from poise.core.traits import SolverTraits
from poise.core.types import Floats, Ints, Setting
from poise.core.vectors import Stack, Vector
from poise.solvers.base import LocalSGD


@part("solver", "scaffold")
class Scaffold(LocalSGD):
    """Local steps along ``g_i(w) - c_i + c``, which no longer drift to the client's own optimum.

    After K steps of size eta, ``c_i <- c_i - c - Delta_i / (K eta)`` (option II) and
    ``c <- c + sum_{i in S} p_i (new c_i - old c_i)``. K and eta are those that the client really
    used.

    Args:
        lr: learning rate. The other options are those of `SGD`; momentum has no place here.

    Source: B footnote 3 (Karimireddy et al. 2020).
    """

    def fit(self, setting: Setting) -> None:
        """The control variate is the mean gradient of plain steps."""
        super().fit(setting)
        if self.momentum or self.clip is not None:
            raise IncompatibleParts(
                (
                    "Scaffold: with momentum or clipping, Delta/(K lr) is not the client's mean "
                    "gradient"
                ),
                "leave momentum and clip out",
                where=("momentum",),
            )

    @property
    def traits(self) -> SolverTraits:
        """Its control variates take the drift of unequal local work away."""
        return self.traits_with(SolverTraits(removes_drift=True))

    @property
    def memory(self) -> Memory:
        """The mean control variate on the server, each client's own with it."""
        return ControlVariates()


@dataclass(frozen=True)
class ControlVariates(Memory):
    """What SCAFFOLD remembers."""

    keeps = ("control",)

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Zero before the first round."""
        return {"control": torch.zeros_like(theta)}

    def terms(
        self, start: Stack, shared: Mapping[str, Vector], own: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """``c - c_i``."""
        correction = shared["control"] - own["control"]
        return (lambda gradients, weights: gradients.add_(correction[: len(gradients)]),)

    def client_state_after(
        self,
        own: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> dict[str, Stack]:
        """``c_i - c - Delta_i / (K eta)``."""
        return {"control": own["control"] - shared["control"] - deltas / _work(steps, rate, deltas)}

    def absorb(
        self, shared: Mapping[str, Vector], updates: RoundUpdates, sent: Mapping[str, Stack]
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """``c + sum p_i (c_i' - c_i)``; the server can tell the change from the update that it
        has.
        """
        changes = -sent["control"] - updates.deltas / _work(
            updates.steps, updates.rates, updates.deltas
        )
        weights = torch.from_numpy(updates.importance).to(changes)
        return {"control": shared["control"] + weights @ changes}, None


def _work(steps: Ints, rate: float | Floats, like: Stack) -> Stack:
    """K eta of each row, (m, 1)."""
    return torch.as_tensor(steps * rate, dtype=like.dtype, device=like.device)[:, None]
