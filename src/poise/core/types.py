"""The values that pass between the parts of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import IncompatibleParts

if TYPE_CHECKING:  # readers of ledgers do not need torch, which takes seconds to load
    from poise.core.vectors import Stack, Vector

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

PERSONAL = "personal"
"""The name of a client's personal entries of the model, in its client state."""

HELD = "held"
"""The version of the state on a client's node, in the server's client state."""

LOSS_REPORTS = frozenset({"loss_before", "loss_after"})
"""The losses that a part may require clients to report with their update."""


@dataclass(frozen=True)
class Setting:
    """What a part may know of the federation when a run is composed.

    Args:
        clients: the number of clients N.
        sizes: samples per client, (N,).
        importance: p_i, (N,).
        batches: False if a client's gradient is exact (quadratics).
        on_demand: whether clients are created only when a round needs them.
        majority: the most frequent class of each client, (N,); None without classes.
        similar: computes p_ij of the similarity graph, (N, N); None if there is no
            graph.
        sums: whether the model is the mean of sums over each client's samples (ridge).
    """

    clients: int
    sizes: Ints
    importance: Floats
    batches: bool = True
    on_demand: bool = False
    majority: Ints | None = None
    similar: Callable[[], Floats] | None = None
    sums: bool = False
    _cache: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def neighbours(self) -> Floats:
        """Return p_ij of the similarity graph, (N, N): client j's share for client i.

        Row i sums to p_i.
        """
        if self.similar is None:
            raise IncompatibleParts(
                "there is no similarity graph of these clients",
                "use two or more clients whose data poise can read",
            )
        shares: Floats = self.once("neighbours", self.similar)
        isolated = np.flatnonzero(~(shares.sum(axis=1) > 0))
        if len(isolated):
            raise IncompatibleParts(
                f"client {isolated[0]} has no neighbour in the similarity graph: "
                "it is the opposite of all other clients",
                "remove the client, or use a solver and a weighting without neighbours",
            )
        return shares

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, computed at the first call with this key.

        For tables that a part uses in every round.
        """
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


@dataclass(frozen=True)
class Cohort:
    """The clients that start to work, and their base weights."""

    clients: Ints  # (m,)
    weights: Floats  # (m,)

    def occurrences(self) -> Ints:
        """Count the earlier rows of each row's client: 0 for a client's first row."""
        if len(set(self.clients.tolist())) == len(self.clients):
            return np.zeros(len(self.clients), dtype=np.int64)
        counts: dict[int, int] = {}
        occurrences = np.zeros(len(self.clients), dtype=np.int64)
        for row, client in enumerate(self.clients.tolist()):
            occurrences[row] = counts.get(client, 0)
            counts[client] = int(occurrences[row]) + 1
        return occurrences


@dataclass(frozen=True, order=True)
class Assignment:
    """One client's work, from model ``version`` until its answer at ``finish``."""

    finish: float
    client: int
    version: int
    occurrence: int = 0
    weight: float = field(default=0.0, compare=False)

    @property
    def key(self) -> tuple[int, int, int]:
        """The identity of the work: (version, client, occurrence)."""
        return self.version, self.client, self.occurrence


@dataclass(frozen=True)
class InFlight:
    """All work in flight at time ``now``."""

    now: float = 0.0
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class Step:
    """Aggregation ``index`` at ``time``, with the assignments that arrived for it."""

    index: int
    time: float
    assignments: tuple[Assignment, ...]
    late: tuple[
        Assignment, ...
    ] = ()  # did not arrive in time; the server no longer waits for them

    @property
    def clients(self) -> Ints:
        """The clients that arrived, (m,)."""
        return np.array([a.client for a in self.assignments], dtype=np.int64)

    @property
    def versions(self) -> Ints:
        """The model version that each client worked on, (m,); at most ``index``."""
        return np.array([a.version for a in self.assignments], dtype=np.int64)

    @property
    def weights(self) -> Floats:
        """The base weight of each client, (m,)."""
        return np.array([a.weight for a in self.assignments], dtype=np.float64)


@dataclass(frozen=True)
class AttackerView:
    """Everything that a dishonest client and its accomplices know at its answer.

    Args:
        client: its number.
        version: of the model that it received, that is, the round in which it started.
        occurrence: 0 for its first assignment on this version, 1 for its second, …
        received: the model that it received, (d,).
        trainable: the number of trainable entries of the model; they come first.
        kept: the vectors that it kept at its last answer.
        work: its honest update, (d,); None if its attack does no work.
        accomplices: the views of all clients of the attack in this aggregation, itself
            included.
        honest: the updates of all other clients, (h, d), if the attack declares
            ``omniscient``; otherwise None.
    """

    client: int
    version: int
    occurrence: int
    received: Vector
    trainable: int
    kept: Mapping[str, Vector] = field(default_factory=dict)
    work: Vector | None = None
    accomplices: tuple[AttackerView, ...] = ()
    honest: Stack | None = None


@dataclass(frozen=True)
class ForgedUpdate:
    """What a dishonest client sends, and what it keeps for its next answer.

    Args:
        update: the forged update, (d,).
        keep: vectors for its next answer.
        loss: reported before and after the work, if the client does no work.
    """

    update: Vector
    keep: Mapping[str, Vector] = field(default_factory=dict)
    loss: float = 1.0


@dataclass(frozen=True)
class Contribution:
    """One client's contribution to one aggregation, as the ledger keeps it."""

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
    """An update that the server did not use, and the reason."""

    client: int
    version: int
    reason: str
    occurrence: int = 0


@dataclass(frozen=True)
class Record:
    """What the server did in aggregation ``index``.

    Args:
        index: the number of the aggregation, from 0.
        time: the simulated time, or the seconds of a run in real time.
        contributions: the updates that the server used.
        metrics: the metrics of the new model, if it was measured.
        bytes_up: traffic from the clients.
        bytes_down: traffic to the clients.
        in_flight: the work that was still under way.
        refusals: the updates that the server did not use.
        measurements: the measurements of the probes, one row per contribution, (m, …).
        seconds: wall-clock time; not part of the digest.
    """

    index: int
    time: float
    contributions: tuple[Contribution, ...]
    metrics: dict[str, float | Floats]
    bytes_up: int
    bytes_down: int
    in_flight: InFlight = InFlight()
    refusals: tuple[Refusal, ...] = ()
    measurements: Mapping[str, Floats] = field(default_factory=dict)
    seconds: float = 0.0
