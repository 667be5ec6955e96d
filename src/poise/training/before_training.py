"""Checks of a new run that need its task and its data, before round 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise.core.capabilities import batches_per_step
from poise.core.directions import base_name
from poise.core.errors import IncompatibleParts
from poise.core.federations import FederationLike, HasClientNames, NamesMetrics
from poise.core.protocols import NeedsSamples, Oracle, Solver
from poise.core.types import Ints
from poise.training.composition import Composition

ON_OWN_TESTS = ("own_", "client_test_", "local_", "client_local_")
"""Prefixes of metrics on the clients' own test data."""

NEAR = 32
"""How far from the given batch size poise looks for others that work."""


@dataclass(frozen=True)
class Unmeasured:
    """Metrics of a task that a run does not measure, because it lacks test data.

    Args:
        names: of the metrics.
        own_tests: whether clients have test data of their own.
    """

    names: tuple[str, ...]
    own_tests: bool = False

    def __bool__(self) -> bool:
        return bool(self.names)

    def __str__(self) -> str:
        return f"{self.reason}, so the run does not measure {self.listed} ({self.hint})"

    @property
    def reason(self) -> str:
        """Why the run does not measure them."""
        if self.own_tests:
            return "the federation has no common test data"
        return "the federation has no test data"

    @property
    def listed(self) -> str:
        """The metrics in a line."""
        return ", ".join(self.names)

    @property
    def hint(self) -> str:
        """Which metrics the run could measure instead."""
        name = self.names[0]
        prefixes = ("train", "client")
        if self.own_tests:
            prefixes = ("own", "client_test")
        return (
            f"ask for {prefixes[0]}_{name} or {prefixes[1]}_{name}: metrics under [run]"
        )


def unmeasured(composition: Composition, oracle: Oracle) -> Unmeasured:
    """Return the metrics that the task names and the run does not measure.

    A run that asks for metrics on the clients' own test data lacks none: its author
    knows the variants, and chose.
    """
    task = composition.task
    if not isinstance(task, NamesMetrics) or not task.metrics:
        return Unmeasured(())
    if any(name.startswith(ON_OWN_TESTS) for name in composition.options.metrics):
        return Unmeasured(())
    held_out = {name for name in oracle.metrics if base_name(name) == name}
    if composition.parts.personal is not None:
        own = {name for name in oracle.metrics if name.startswith("own_")}
        held_out = {base_name(name) for name in own}
    measured = held_out | {base_name(name) for name in composition.options.metrics}
    return Unmeasured(
        tuple(name for name in task.metrics if name not in measured),
        own_tests=any(name.startswith(ON_OWN_TESTS) for name in oracle.metrics),
    )


def check_batches(composition: Composition, oracle: Oracle) -> None:
    """Raise if a client would make a step on fewer samples than the module takes."""
    federation = composition.federation
    solver = composition.parts.solver
    if federation.on_demand or not isinstance(oracle, NeedsSamples):
        return
    sizes = np.asarray(federation.sizes)
    short = np.flatnonzero(_too_short(solver, sizes, solver.batch_size))
    if not len(short) or oracle.least_samples() == 1:
        return
    client = int(short[0])
    others = ""
    if len(short) > 1:
        others = f" ({len(short) - 1} more clients likewise)"
    raise IncompatibleParts(
        f"{_title(federation, client)} has {sizes[client]} samples, so a batch has a single "
        f"one, and the module's batch norm needs two{others}",
        _hint(solver, sizes),
        where=("solver", "batch_size"),
    )


def _too_short(solver: Solver, sizes: Ints, batch_size: int | None) -> np.ndarray:
    """Return which clients make a step with a batch of a single sample."""
    parts = batches_per_step(solver)
    widths = sizes
    if batch_size is not None:
        widths = np.minimum(sizes, batch_size * parts)
    widths = np.maximum(widths, 1)
    rest = sizes % widths
    reached = (rest > 0) & (solver.steps_for(sizes) >= -(-sizes // widths))
    least = np.where(reached, np.minimum(widths, rest), widths)
    return np.asarray((least // parts < 2) & (sizes > 0))


def _hint(solver: Solver, sizes: Ints) -> str:
    """Return the batch sizes near the present one with which every client can train."""
    given = solver.batch_size or int(sizes.max())
    near = sorted(
        range(max(2, given - NEAR), given + NEAR), key=lambda b: abs(b - given)
    )
    unique = np.unique(sizes)
    working = (b for b in near if not _too_short(solver, unique, b).any())
    found = sorted(b for b, _ in zip(working, range(4), strict=False))
    if not found:
        return "leave clients with few samples out, or use group norm instead"
    return f"these sizes work: batch_size = {', '.join(map(str, found))}"


def _title(federation: FederationLike, client: int) -> str:
    """Return the client's name, or its number."""
    names = None
    if isinstance(federation, HasClientNames):
        names = federation.names
    if names is None or not names[client]:
        return f"client {client}"
    return f"client {names[client]!r}"
