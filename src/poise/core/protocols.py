"""One protocol per slot of the equation.

A part is a frozen dataclass that has the methods below; nothing is inherited. ``fit`` is called once
when a run is composed and raises `IncompatibleParts` or `InvalidOption` where the part cannot work
in this setting. `poise.testing` holds the contract suite of each slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from poise.core.arrived import Arrived
from poise.core.batches import Batch
from poise.core.history import History
from poise.core.rng import U64
from poise.core.types import Cohort, Flight, Floats, Ints, Seen, Sent, Setting, Sky, Step, Updates
from poise.core.vectors import Layout, Stack, Vector

Transform: TypeAlias = Callable[[Stack, Stack], Stack]
"""(gradients, parameters) -> gradients, row by row; may work in place on the gradients."""

ServerState: TypeAlias = Mapping[str, Vector]


@dataclass(frozen=True)
class Rule:
    """How one piece of local work steps: ``W <- W - rate * T(G(point(W)), W)``."""

    rate: float
    transforms: tuple[Transform, ...] = ()
    point: Callable[[Stack], Stack] | None = None


@dataclass(frozen=True)
class ServerView:
    """What the server sees of the work that arrived, row by row: enough to follow the clients' memories."""

    deltas: Stack  # (m, trainable)
    steps: Ints  # (m,)
    rates: Floats  # (m,) learning rate each worked with
    importance: Floats  # (m,) p_i
    sent: Mapping[str, Stack]  # (m, trainable): the shared vectors that each had been sent


class Memory(Protocol):
    """What a solver remembers between rounds, on both sides.

    The server keeps ``shared`` vectors and sends them with the model; each client keeps its ``own``, zero at first.
    """

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of the vectors that every client keeps."""

    def shared(self, theta: Vector) -> Mapping[str, Vector]:
        """The server's vectors before the first round."""

    def terms(self, start: Stack, shared: Mapping[str, Vector], own: Mapping[str, Stack]) -> tuple[Transform, ...]:
        """What the memory adds to the clients' gradients; comes before the rule's transforms."""

    def own_after(
        self, own: Mapping[str, Stack], shared: Mapping[str, Vector], deltas: Stack, steps: Ints, rate: float
    ) -> Mapping[str, Stack]:
        """What each client keeps after its work."""

    def absorb(self, shared: Mapping[str, Vector], seen: ServerView) -> tuple[Mapping[str, Vector], Vector | None]:
        """The server's vectors after the updates arrived, and a shift of the direction if there is one."""

    def observe(self, shared: Mapping[str, Vector], change: Vector) -> Mapping[str, Vector]:
        """The server's vectors after the model moved by ``change``."""


class Fits(Protocol):
    """What every part can be asked when a run is composed."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this part cannot work."""


class Solver(Protocol):
    """What each client does."""

    @property
    def batch_size(self) -> int | None:
        """Samples per step; None for all of the client's."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this solver cannot work."""

    def steps_for(self, sizes: Ints) -> Ints:
        """Local steps of clients with this many samples."""

    def rule(self, start: Stack, version: int) -> Rule:
        """The local step for clients that start from the trainable rows ``start`` of a version."""

    def rate(self, version: int) -> float:
        """Learning rate of work on this version; work on versions with equal rates may be done together."""


class Sampler(Protocol):
    """Who works."""

    @property
    def needs(self) -> frozenset[str]:
        """What it looks back on beyond the records: loss reports (`LOSS_REPORTS`), ``gradients``."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this sampler cannot work."""

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """The clients of this round and their base weights; ``past`` is what the server saw so far."""


class Times(Protocol):
    """How long pieces of work take, in simulated time."""

    @property
    def last(self) -> float:
        """After this time nobody answers any more; inf for times that do not end."""

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time from now until each of these clients answers, if it is asked for work on this version now.

        inf for a client that is away for good.
        """


class Clock(Protocol):
    """When it counts. A clock sees times and a seed, never a model."""

    @property
    def waits(self) -> bool:
        """Whether everyone who was asked arrives in the same aggregation."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this clock cannot work."""

    def advance(self, sky: Sky, started: Sequence[Flight], index: int) -> tuple[Step, Sky]:
        """Put the new work into the sky and go on to aggregation ``index``."""

    def times(self, clients: int) -> Times:
        """How long each of this many clients needs."""

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The weights of arrivals when times are ignored (E section 4.5.1).

        ``base`` is the sampler's weight for a clock that waits, else the importance.
        """


class Weighting(Protocol):
    """How much each counts."""

    @property
    def needs(self) -> frozenset[str]:
        """The reports this weighting reads: of `LOSS_REPORTS`, ``balance`` of the clock, ``adjacency`` of the graph."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this weighting cannot work."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """The coefficient of each row from its base weight; reports it does not need are ignored.

        Given: ``loss_before``, ``loss_after`` (None unless needed), ``sizes``, ``clients``, ``versions``, ``round``,
        ``importance`` (p_i), ``lowest_loss``, ``reached``, ``seen`` (how often each took part so far, now included),
        ``identical`` (the clock's weights that ignore times), ``norms`` (the lengths of the updates); and, None unless
        needed, ``balance`` (the clock's d_i/p_i) and ``adjacency`` (importance in the similarity graph).
        """


class Server(Protocol):
    """How the aggregated direction is applied.

    A server that draws has ``seeded(seed)``: the same server, whose draws are named by the run's seed and its own.
    """

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this server cannot work."""

    def init(self, theta: Vector) -> ServerState:
        """The optimiser's state before the first aggregation."""

    def apply(self, theta: Vector, direction: Vector, state: ServerState) -> tuple[Vector, ServerState]:
        """The next model and state. Neither argument is changed."""


class Attack(Protocol):
    """What dishonest clients send instead."""

    @property
    def clients(self) -> Sequence[int]:
        """Who is dishonest."""

    @property
    def works(self) -> bool:
        """Whether its clients do their real work first, and see the result of it."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this attack cannot work."""

    def answer(self, seen: Seen, seed: int) -> Sent:
        """What one client sends, from what it has itself and nothing else."""


class Gauge(Protocol):
    """Reads a few numbers off every update while it is there; the ledger keeps them with the contribution.

    A gauge has no state: what it must know of earlier rounds, it reads off the history.
    """

    def read(self, arrived: Arrived, past: History) -> Mapping[str, Floats]:
        """Named readings, (m,) or (m, k) each; nan for a row that is not read."""


class Oracle(Protocol):
    """The gradient oracle of a task on a federation."""

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the vector."""

    @property
    def batches(self) -> bool:
        """False where gradients are exact and there are no batches."""

    @property
    def stacked(self) -> bool:
        """Clients of one call are computed together; False where one follows the other."""

    @property
    def metrics(self) -> frozenset[str]:
        """The names that `measure` knows."""

    def initial(self, seed: int) -> Vector:
        """The model that a run with this seed starts from."""

    def rows(self, batch_size: int | None) -> int:
        """How many clients to put into one call, at most."""

    def open(self, clients: Ints, streams: U64) -> Any:
        """The data of these clients, to be handed to the methods below; has ``sizes``."""

    def gradients(self, rows: Stack, data: Any, batch: Batch, out: Stack) -> None:
        """Write the gradients of the first ``len(out)`` clients into ``out``.

        ``rows`` are whole models (len(out), d); what is not trainable in them (batch-norm
        statistics) is updated in place.
        """

    def losses(self, rows: Stack, data: Any) -> Floats:
        """Mean loss of each row over all data of its client."""

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        spread: Callable[..., list[Any]],
        version: Callable[[Vector, int], Vector] = ...,
    ) -> dict[str, Any]:
        """The named metrics of a model; ``spread(f, items)`` maps over the workers, in order.

        ``version(theta, i)`` is client i's own version of the model, where layers are personal.
        """


class Backend(Protocol):
    """Where work is executed. It decides nothing."""

    def work(
        self,
        models: Mapping[int, Vector],
        flights: Sequence[Flight],
        reports: frozenset[str],
        spare: Stack | None = None,
        memories: Any = None,
    ) -> Updates:
        """Do these pieces of work, each from the model version it names; rows in this order.

        ``spare`` is a stack that nobody needs any more and whose memory may be used; ``memories``
        (`poise.core.memory.Memories`) is what server and clients remember.
        """

    def measure(self, theta: Vector, names: frozenset[str], memories: Any = None) -> dict[str, Any]:
        """Metrics of a model."""

    def close(self) -> None:
        """Let go of workers."""
