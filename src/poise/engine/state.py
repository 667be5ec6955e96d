"""`State`: where a run stands. `Pace`: how it moves on. `Journal`: its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from poise.core.algorithm_state import AlgorithmState, NamedVectors
from poise.core.protocols import ServerState
from poise.core.types import Assignment, Cohort, InFlight, Record, Step
from poise.core.vectors import Stack, Vector


@dataclass(frozen=True)
class State:
    """Where a run stands after ``index`` aggregations.

    Everything else can be computed again, so a run can continue from any recorded
    round.

    Args:
        index: the number of aggregations so far.
        theta: the global model, (d,).
        server: the state of the server optimiser.
        in_flight: the work under way.
        models: the models from which work in flight started, by version.
        algorithm_state: the vectors that server and clients keep between rounds.
    """

    index: int
    theta: Vector
    server: ServerState
    in_flight: InFlight = InFlight()
    models: Mapping[int, Vector] = field(default_factory=dict)
    algorithm_state: AlgorithmState = AlgorithmState()


class Pace(Protocol):
    """How a run goes through the steps of its clock: in simulated or in real time."""

    @property
    def prefetchable(self) -> bool:
        """Whether the next step can be computed before this one is recorded."""

    def launch(
        self, cohort: Cohort, in_flight: InFlight, version: int
    ) -> tuple[Assignment, ...]:
        """Return the work that a cohort starts now on a model version."""

    def next_step(
        self, started: tuple[Assignment, ...], state: State
    ) -> tuple[Step, InFlight]:
        """Return the clock's next step and the work in flight after it.

        ``state`` holds the models that clients receive.
        """


class Journal(Protocol):
    """Where the engine records its rounds."""

    def append(
        self,
        record: Record,
        theta: Vector,
        server: ServerState,
        client_states: Mapping[int, NamedVectors],
        updates: Stack | None = None,
    ) -> None:
        """Store a round durably, before the next round begins.

        Args:
            record: of the round.
            theta: the new model.
            server: the tensors of the server after the round.
            client_states: the vectors that the clients of the round keep.
            updates: the aggregated updates, one row per contribution; None if not to be
                kept.
        """
