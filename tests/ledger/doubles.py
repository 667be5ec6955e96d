"""Test parts with state: a server, and a clock that leaves work in flight between rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

import poise
from poise.config.run_options import RunOptions
from poise.core.durations import FixedDurations, as_durations
from poise.core.types import Assignment, InFlight, Setting, Step
from poise.tasks import Quadratics
from poise.training import Composition, composed


@dataclass(frozen=True)
class Velocity:
    """A server that remembers half of its last direction."""

    slot, name = "server", "test-velocity"

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def init(self, theta: Tensor) -> dict[str, Tensor]:
        return {"velocity": theta * 0}

    def apply(
        self, theta: Tensor, direction: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        velocity = 0.5 * state["velocity"] + direction
        return theta + velocity, {"velocity": velocity}


@dataclass(frozen=True)
class FirstCome:
    """A clock that aggregates whenever somebody has finished; the others stay at work."""

    slot, name = "clock", "test-first-come"
    durations: tuple[float, ...] = (1.0, 2.5, 4.2, 9.0)
    waits = False

    def identical_weights(self, base: np.ndarray, clients: int) -> np.ndarray:
        return base

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def times(self, clients: int) -> FixedDurations:
        return as_durations(np.array(self.durations), clients)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        assignments = sorted((*in_flight.assignments, *started))
        now = assignments[0].finish
        arrived = tuple(f for f in assignments if f.finish <= now)
        return Step(index, now, arrived), InFlight(
            now, tuple(f for f in assignments if f.finish > now)
        )


def quadratics(clients: int = 4) -> Quadratics:
    """A federation whose rounds take no time."""
    return poise.quadratics(np.random.default_rng(0).normal(size=(clients, 3)))


def composition(rounds: int = 20, **choice: object) -> Composition:
    """A run of the doubles above on quadratics."""
    from poise.solvers import SGD

    fed = quadratics()
    keep = choice.pop("keep", "last")
    chosen = {
        "solver": SGD(lr=0.1, steps=3),
        "clock": FirstCome(),
        "server": Velocity(),
        **choice,
    }
    options = RunOptions(rounds=rounds, metrics=("client_loss",), keep=keep)  # type: ignore[arg-type]
    return composed(fed, fed.task, chosen, options)
