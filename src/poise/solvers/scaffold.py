"""`Scaffold`: control variates against client drift (SCAFFOLD)."""

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

PROBED = 5_000
"""A late round, in which the learning rate must be above 0."""


@part("solver", "scaffold")
class Scaffold(LocalSGD):
    """Local steps along ``g_i(w) - c_i + c``, without drift to the client's optimum.

    After K steps of size eta, ``c_i <- c_i - c - Delta_i / (K eta)`` (option II) and
    ``c <- c + sum_{i in S} p_i (new c_i - old c_i)``. K and eta are those that the
    client used.

    Args:
        lr: learning rate. The other options are those of `SGD`, without momentum,
            clip, optimizer and local_schedule.

    Source: [Exp-α 2023, footnote 3], [Karimireddy 2020].

    >>> Scaffold(lr=0.1, steps=5).memory
    ControlVariates()
    """

    def fit(self, setting: Setting) -> None:
        """Refuse momentum and clipping: c_i would not be a mean gradient."""
        super().fit(setting)
        if self.momentum or self.clip is not None:
            raise IncompatibleParts(
                (
                    "Scaffold: with momentum or clipping, Delta/(K lr) is not the client's mean "
                    "gradient"
                ),
                "remove momentum and clip",
                where=("momentum",),
            )
        for option in ("optimizer", "local_schedule"):
            if vars(self)[option] is not None:
                raise IncompatibleParts(
                    f"Scaffold: with {option}, Delta/(K lr) is not the client's mean gradient",
                    f"remove {option}",
                    where=(option,),
                )
        if self.rate(PROBED) == 0:
            raise IncompatibleParts(
                "Scaffold divides by the learning rate, and its schedule ends at 0",
                "give the schedule an end above 0",
                where=("schedule",),
            )

    @property
    def traits(self) -> SolverTraits:
        """Declare that the control variates remove the drift of unequal local work."""
        return self.traits_with(SolverTraits(removes_drift=True))

    @property
    def own_memory(self) -> Memory:
        """The control variate c on the server, and c_i on each client."""
        return ControlVariates()


@dataclass(frozen=True)
class ControlVariates(Memory):
    """The state of `Scaffold`: c on the server, c_i on each client."""

    keeps = ("control",)

    def shared(self, theta: Vector) -> dict[str, Vector]:
        """Return c = 0, the value before the first round."""
        return {"control": torch.zeros_like(theta)}

    def terms(
        self,
        start: Stack,
        shared: Mapping[str, Vector],
        client_state: Mapping[str, Stack],
    ) -> tuple[Transform, ...]:
        """Return the term ``c - c_i``."""
        correction = shared["control"] - client_state["control"]
        return (
            lambda gradients, weights: gradients.add_(correction[: len(gradients)]),
        )

    def client_state_after(
        self,
        client_state: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> dict[str, Stack]:
        """Return the new control variate ``c_i - c - Delta_i / (K eta)``."""
        mean_gradient = deltas / _path_length(steps, rate, like=deltas)
        return {"control": client_state["control"] - shared["control"] - mean_gradient}

    def absorb(
        self,
        shared: Mapping[str, Vector],
        updates: RoundUpdates,
        sent: Mapping[str, Stack],
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """Return the new ``c + sum p_i (c_i' - c_i)``, from the updates."""
        length = _path_length(updates.steps, updates.rates, like=updates.deltas)
        changes = -sent["control"] - updates.deltas / length
        weights = torch.from_numpy(updates.importance).to(changes)
        return {"control": shared["control"] + weights @ changes}, None


def _path_length(steps: Ints, rate: float | Floats, like: Stack) -> Stack:
    """Return K eta of each row, (m, 1)."""
    return torch.as_tensor(steps * rate, dtype=like.dtype, device=like.device)[:, None]
