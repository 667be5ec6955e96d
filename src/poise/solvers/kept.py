"""`KeptState`: the state of a local optimiser that clients keep between rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from poise.core.protocols import Memory, Transform
from poise.core.round_updates import RoundUpdates
from poise.core.types import Ints
from poise.core.vectors import Stack, Vector
from poise.solvers.optimizers.base import Optimizer, initial_state

PREFIX = "optimizer_"
"""The prefix of an optimiser's vectors in the state of a client."""


class Directs(Protocol):
    """A solver that makes its directions from a given state."""

    def directions(
        self, start: Stack, state: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """Return the transforms from gradients to directions."""


@dataclass(frozen=True)
class KeptState(Memory):
    """The state of an optimiser on each client, beside another memory of the solver.

    Args:
        optimizer: whose state the clients keep.
        solver: makes the directions.
        inner: the solver's other memory.
    """

    optimizer: Optimizer
    solver: Directs
    inner: Memory = Memory()

    @property
    def keeps(self) -> tuple[str, ...]:  # type: ignore[override]
        """The vectors of the other memory, and those of the optimiser."""
        return (*self.inner.keeps, *(PREFIX + name for name in self.optimizer.keeps))

    @property
    def neighbours(self) -> bool:  # type: ignore[override]
        """Whether the other memory needs the neighbours' models."""
        return self.inner.neighbours

    def begins(self, name: str, start: Stack) -> Stack:
        """Return zeros for the optimiser, and the initial vectors of the other memory."""
        if name.startswith(PREFIX):
            return initial_state(name.removeprefix(PREFIX), start)
        return self.inner.begins(name, start)

    def shared(self, theta: Vector) -> Mapping[str, Vector]:
        """Return the server's vectors of the other memory."""
        return self.inner.shared(theta)

    def terms(
        self,
        start: Stack,
        shared: Mapping[str, Vector],
        client_state: Mapping[str, Stack],
    ) -> tuple[Transform, ...]:
        """Return the terms of the other memory."""
        return self.inner.terms(start, shared, client_state)

    def directions(
        self, start: Stack, client_state: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """Return the optimiser's transforms, which change the clients' state in place."""
        state = {name: client_state[PREFIX + name] for name in self.optimizer.keeps}
        return self.solver.directions(start, state)

    def point(
        self, client_state: Mapping[str, Stack]
    ) -> Callable[[Stack], Stack] | None:
        """Return the gradient point of the other memory."""
        return self.inner.point(client_state)

    def client_state_after(
        self,
        client_state: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> dict[str, Stack]:
        """Return the optimiser's state after its steps, and that of the other memory."""
        kept = {name: client_state[name] for name in self.keeps}
        kept |= self.inner.client_state_after(client_state, shared, deltas, steps, rate)
        return kept

    def absorb(
        self,
        shared: Mapping[str, Vector],
        updates: RoundUpdates,
        sent: Mapping[str, Stack],
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """Update the server's vectors of the other memory."""
        return self.inner.absorb(shared, updates, sent)

    def observe(
        self, shared: Mapping[str, Vector], change: Vector
    ) -> Mapping[str, Vector]:
        """Show the step of the model to the other memory."""
        return self.inner.observe(shared, change)
