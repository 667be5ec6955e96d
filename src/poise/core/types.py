"""The values that pass between the parts of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import IncompatibleParts

if TYPE_CHECKING:  # who reads a ledger needs no torch, which takes seconds to load
    from poise.core.vectors import Stack, Vector

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

PERSONAL = "personal"
"""The name under which a client keeps the entries of the model that are its own."""

HELD = "held"
"""The name under which a server keeps, for each client, after which version's work the state on its
node counts."""

LOSS_REPORTS = frozenset({"loss_before", "loss_after"})
"""What a part may ask the clients to report beside their update."""


@dataclass(frozen=True)
class Setting:
    """What a part may know of the federation when a run is composed."""

    clients: int
    sizes: Ints  # (N,)
    importance: Floats  # (N,)
    batches: bool = True  # false where a client's gradient is exact (quadratics)
    on_demand: bool = False  # clients are made when asked for
    majority: Ints | None = (
        None  # (N,) the class of which each client has most, where there are classes
    )
    similar: Callable[[], Floats] | None = (
        None  # p_ij of the similarity graph, (N, N), made when it is asked for
    )
    _worked_out: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def neighbours(self) -> Floats:
        """p_ij of the similarity graph, (N, N): how much client j counts for client i; the rows sum
        to p_i.
        """
        if self.similar is None:
            raise IncompatibleParts(
                "there is no similarity graph of these clients",
                "it needs two clients or more whose data can be read",
            )
        found: Floats = self.once("neighbours", self.similar)
        alone = np.flatnonzero(~(found.sum(axis=1) > 0))
        if len(alone):
            raise IncompatibleParts(
                (
                    f"client {alone[0]} is the opposite of all others: the similarity graph joins it "
                    "to nobody"
                ),
                "leave it out, or use a solver and a weighting without neighbours",
            )
        return found

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, worked out at the first call: tables that a part draws from in
        every round.
        """
        if key not in self._worked_out:
            self._worked_out[key] = make()
        return self._worked_out[key]


@dataclass(frozen=True)
class Cohort:
    """Who starts working, and the weight that the way of drawing them gives each."""

    clients: Ints  # (m,)
    weights: Floats  # (m,)

    def occurrences(self) -> Ints:
        """How often each row's client stands above it: 0 for a client's first row."""
        if len(self.clients) < 2 or len(np.unique(self.clients)) == len(self.clients):
            return np.zeros(len(self.clients), dtype=np.int64)
        seen: dict[int, int] = {}
        out = np.zeros(len(self.clients), dtype=np.int64)
        for row, client in enumerate(self.clients.tolist()):
            out[row] = seen.get(client, 0)
            seen[client] = int(out[row]) + 1
        return out


@dataclass(frozen=True, order=True)
class Assignment:
    """One client's piece of work: begun on model ``version``, answered at time ``finish``."""

    finish: float
    client: int
    version: int
    occurrence: int = 0
    weight: float = field(default=0.0, compare=False)

    @property
    def key(self) -> tuple[int, int, int]:
        """What addresses the work: (version, client, occurrence)."""
        return self.version, self.client, self.occurrence


@dataclass(frozen=True)
class InFlight:
    """All work that is under way at time ``now``."""

    now: float = 0.0
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class Step:
    """Aggregation ``index``, at ``time``, with the clients that arrived for it."""

    index: int
    time: float
    assignments: tuple[Assignment, ...]
    late: tuple[Assignment, ...] = ()  # asked for this aggregation, and no longer waited for

    @property
    def clients(self) -> Ints:
        """Who arrived, (m,)."""
        return np.array([f.client for f in self.assignments], dtype=np.int64)

    @property
    def versions(self) -> Ints:
        """The model version that each worked on, (m,); never above ``index``."""
        return np.array([f.version for f in self.assignments], dtype=np.int64)

    @property
    def weights(self) -> Floats:
        """The base weight of each, (m,)."""
        return np.array([f.weight for f in self.assignments], dtype=np.float64)


@dataclass(frozen=True)
class AttackerView:
    """Everything that one dishonest client has when it answers, and what its accomplices have.

    ``honest`` holds the updates of everybody else, (h, d), for an attack that declares
    ``omniscient``; else it is None.
    """

    client: int
    version: int  # of the model that it received: the number of the round in which it was asked
    occurrence: int
    received: Vector  # (d,)
    trainable: int  # how many entries of the model gradients move; they come first
    kept: Mapping[str, Vector] = field(
        default_factory=dict
    )  # what it put aside when it last answered
    work: Vector | None = None  # (d,): its own honest update, where its attack does the work
    accomplices: tuple[
        AttackerView, ...
    ] = ()  # the attack's clients in this aggregation, itself included
    honest: Stack | None = None


@dataclass(frozen=True)
class ForgedUpdate:
    """What a dishonest client sends, and all that it puts aside for its next answer."""

    update: Vector  # (d,)
    keep: Mapping[str, Vector] = field(default_factory=dict)
    loss: float = 1.0  # reported before and after, by a client that has no data to compute one on


@dataclass(frozen=True)
class Contribution:
    """One client's part in one aggregation, as the ledger keeps it."""

    client: int
    version: int
    occurrence: int
    base: float
    coefficient: float
    norm: float
    samples: int
    steps: int
    loss_before: float | None = None
    loss_after: float | None = None


@dataclass(frozen=True)
class Refusal:
    """An update that was not averaged in, and why."""

    client: int
    version: int
    reason: str
    occurrence: int = 0


@dataclass(frozen=True)
class Record:
    """Everything that aggregation ``index`` did: what the server really used."""

    index: int
    time: float
    contributions: tuple[Contribution, ...]
    metrics: dict[str, float | Floats]
    bytes_up: int
    bytes_down: int
    in_flight: InFlight = InFlight()
    refusals: tuple[Refusal, ...] = ()
    measurements: Mapping[str, Floats] = field(
        default_factory=dict
    )  # what probes read of each contribution, (m, …)
    seconds: float = 0.0  # wall-clock; kept, but no part of the digest
