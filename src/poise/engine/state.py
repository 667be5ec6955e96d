"""Where a run stands, and where the engine writes what happened."""

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

    Whatever is not in it can be computed again, so a run goes on from any recorded round.
    """

    index: int
    theta: Vector
    server: ServerState
    in_flight: InFlight = InFlight()
    models: Mapping[int, Vector] = field(
        default_factory=dict
    )  # versions that work in flight began from
    algorithm_state: AlgorithmState = AlgorithmState()


class Pace(Protocol):
    """How a run goes through the steps of its clock: in simulated time, or as time passes."""

    @property
    def prefetchable(self) -> bool:
        """Whether the next step can be known before this one is recorded."""

    def launch(self, cohort: Cohort, in_flight: InFlight, version: int) -> tuple[Assignment, ...]:
        """The work that a cohort starts now on a model version."""

    def next_step(self, started: tuple[Assignment, ...], state: State) -> tuple[Step, InFlight]:
        """The clock's next step, and the in_flight after it; ``state`` holds the models that
        clients are sent.
        """


class Journal(Protocol):
    """Where the engine writes what happened."""

    def append(
        self,
        record: Record,
        theta: Vector,
        server: ServerState,
        own: Mapping[int, NamedVectors],
        updates: Stack | None = None,
    ) -> None:
        """Keep a record, what it led to, and what its clients keep, durably, before the next round
        begins.

        ``updates`` are those that were aggregated, one row for each contribution; None where they
        need not be kept.
        """
