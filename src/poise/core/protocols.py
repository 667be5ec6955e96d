"""One protocol per slot of the equation.

A part is a frozen dataclass that has the methods below; nothing is inherited. ``fit`` is called
once when a run is composed and raises `IncompatibleParts` or `InvalidOption` where the part cannot
work in this setting. `poise.testing` holds the contract suite of each slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from poise.core.arrivals import Arrivals
from poise.core.batches import Batch, BatchPlan
from poise.core.history import History
from poise.core.rng import U64
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AggregatorTraits, ChannelTraits
from poise.core.types import (
    Assignment,
    AttackerView,
    Cohort,
    Floats,
    ForgedUpdate,
    InFlight,
    Ints,
    Setting,
    Step,
)
from poise.core.vectors import Layout, Stack, Vector

if TYPE_CHECKING:
    from poise.core.algorithm_state import AlgorithmState

Transform: TypeAlias = Callable[[Stack, Stack], Stack]
"""(gradients, parameters) -> gradients, row by row; may work in place on the gradients."""

ServerState: TypeAlias = Mapping[str, Vector]


@dataclass(frozen=True)
class StepRule:
    """How one piece of local work steps: ``W <- W - rate * T(G(point(W)), W)``.

    The rows of a stack are ordered by number of steps, most first. A transform gets the first rows
    only, once the others are done; so it cuts state of its own to ``[: len(gradients)]``.
    """

    rate: float
    transforms: tuple[Transform, ...] = ()
    point: Callable[[Stack], Stack] | None = None


class Memory:
    """What a solver remembers between rounds, on both sides; by default nothing.

    The server keeps ``shared`` vectors and sends them with the model; each client keeps its
    ``own``, zero at first.
    """

    keeps: tuple[str, ...] = ()
    """Names of the vectors that every client keeps."""

    begins_at_start: bool = False
    """Whether a client that keeps nothing yet begins with the model it received instead of
    zeros."""

    neighbours: bool = False
    """Whether the server sends each client the mean of its neighbours' last local models."""

    def shared(self, theta: Vector) -> Mapping[str, Vector]:
        """The server's vectors before the first round."""
        return {}

    def terms(
        self, start: Stack, shared: Mapping[str, Vector], own: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """What the memory adds to the clients' gradients; comes before the rule's transforms."""
        return ()

    def point(self, own: Mapping[str, Stack]) -> Callable[[Stack], Stack] | None:
        """Where the clients' gradients are taken, if not at their own models."""
        return None

    def client_state_after(
        self,
        own: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> Mapping[str, Stack]:
        """What each client keeps after its work."""
        return {}

    def absorb(
        self, shared: Mapping[str, Vector], updates: RoundUpdates, sent: Mapping[str, Stack]
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """The server's vectors after the updates arrived, and a shift of the direction if there is
        one.

        ``sent`` holds the shared vectors that each client had been sent, (m, trainable).
        """
        return shared, None

    def observe(self, shared: Mapping[str, Vector], change: Vector) -> Mapping[str, Vector]:
        """The server's vectors after the model moved by ``change``."""
        return shared


@runtime_checkable
class Remembers(Protocol):
    """A solver that may remember something between rounds."""

    @property
    def memory(self) -> Memory | None:
        """What clients and server remember; None for nothing."""


class Owners(Protocol):
    """How much the clients of a federation hold, and how much each counts."""

    @property
    def sizes(self) -> Ints:
        """Samples per client, (N,)."""

    @property
    def importance(self) -> Floats:
        """p, (N,)."""


@runtime_checkable
class Fits(Protocol):
    """What every part can be asked when a run is composed."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this part cannot work."""


@runtime_checkable
class HasName(Protocol):
    """A part that was declared with a name (`poise.core.parts.part`)."""

    @property
    def name(self) -> str:
        """The name in the register of its slot."""


class Solver(Protocol):
    """What each client does."""

    @property
    def batch_size(self) -> int | None:
        """Samples per step; None for all of the client's."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this solver cannot work."""

    def steps_for(self, sizes: Ints) -> Ints:
        """Local steps of clients with this many samples."""

    def rule(self, start: Stack, version: int) -> StepRule:
        """The local step for clients that start from the trainable rows ``start`` of a version."""

    def rate(self, version: int) -> float:
        """Learning rate of work on this version; work on versions with equal rates may be done
        together.
        """


class Sampler(Protocol):
    """Who works."""

    @property
    def needs(self) -> frozenset[str]:
        """What it looks back on beyond the records: loss reports (`LOSS_REPORTS`),
        ``gradients``.
        """

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this sampler cannot work."""

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """The clients of this round and their base weights; ``past`` is what the server saw so
        far.
        """


class Times(Protocol):
    """How long pieces of work take, in simulated time."""

    @property
    def last(self) -> float:
        """After this time nobody answers any more; inf for times that do not end."""

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time from now until each of these clients answers, if it is asked for work on this
        version now.

        inf for a client that is away for good.
        """


class Clock(Protocol):
    """When it counts. A clock sees times and a seed, never a model."""

    @property
    def waits(self) -> bool:
        """Whether everyone who was asked arrives in the same aggregation."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this clock cannot work."""

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Put the new work into the in_flight and go on to aggregation ``index``."""

    def times(self, clients: int) -> Times:
        """How long each of this many clients needs."""

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """The weights of arrivals when times are ignored [Fraboni 2023, §4.5.1].

        ``base`` is the sampler's weight for a clock that waits, else the importance.
        """


class Weighting(Protocol):
    """How much each counts."""

    @property
    def needs(self) -> frozenset[str]:
        """The reports this weighting reads: of `LOSS_REPORTS`, ``balance`` of the clock,
        ``adjacency`` of the graph.
        """

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this weighting cannot work."""

    def coefficients(self, updates: RoundUpdates) -> Floats:
        """The coefficient of each update, (m,).

        Losses are None unless ``needs`` names them; so are ``balance`` and ``adjacency``.
        """


class Aggregator(Protocol):
    """How the weighted updates become one direction."""

    @property
    def traits(self) -> AggregatorTraits:
        """What it promises; `AggregatorTraits()` promises nothing."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this aggregator cannot work."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """The direction, (d,), from the updates (m, d) and their coefficients (m,). Neither
        argument is changed.

        The last entries of a row may be buffers such as batch-norm statistics, which are averaged
        like the rest. A row of weight 0 counts nothing. Where the weights add up to O, a direction
        is O times some kind of average of the rows, so that the server's learning rate means the
        same under every aggregator.
        """


class Channel(Protocol):
    """What happens to an update on its way from client to server.

    Only what gradients move is encoded; batch-norm statistics travel as they are. All payloads of a
    run have the same names, shapes and number types: a node's reply is compared with the payload of
    an update of zeros.
    """

    @property
    def traits(self) -> ChannelTraits:
        """What it promises; `ChannelTraits()` promises nothing."""

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of the vectors (d,) that each client keeps between rounds, zero at first."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this channel cannot work."""

    def encode(self, deltas: Stack, kept: Mapping[str, Stack], streams: U64) -> Encoded:
        """The client's side: what is sent for each update (m, d), and what each client keeps from
        now on.

        Row k of the result depends on row k of the arguments alone. ``streams`` (m,) names random
        numbers, for a channel that draws (`poise.core.rng.words`). The arguments are not changed;
        the payload may be one of them.
        """

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
        """The server's side: the updates (m, ``size``) that the payload stands for. It may be a
        part of the payload.
        """


@dataclass(frozen=True)
class Encoded:
    """What a channel sends, and what its clients keep.

    ``payload`` is what travels: named tensors with one row per update, of any number type. The
    bytes of a row are the bytes that are counted as traffic.
    """

    payload: Mapping[str, torch.Tensor]
    kept: Mapping[str, Stack] = field(default_factory=dict)


class Personal(Protocol):
    """Which entries of a model stay with each client."""

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which clients cannot keep anything."""

    def names(self, module: torch.nn.Module) -> Iterable[str]:
        """The names of the parameters and buffers, as in ``module.state_dict()``, that stay with
        each client.
        """


class Server(Protocol):
    """How the aggregated direction is applied.

    A server that draws has ``seeded(seed)``: the same server, whose draws are named by the run's
    seed and its own.
    """

    def fit(self, setting: Setting) -> None:
        """Refuse a setting in which this server cannot work."""

    def init(self, theta: Vector) -> ServerState:
        """The optimiser's state before the first aggregation."""

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
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

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """What one client sends, from what it and its accomplices have."""


class Probe(Protocol):
    """Reads a few numbers off every update while it is there; the ledger keeps them with the
    contribution.

    A probe has no state: what it must know of earlier rounds, it reads off the history.
    """

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """HasName measurements, (m,) or (m, k) each; nan for a row that is not read."""


class Oracle(Protocol):
    """The gradient oracle of a task on a federation."""

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the vector."""

    @property
    def module(self) -> torch.nn.Module | None:
        """The architecture, with its frozen parameters; None where the task is not a module."""

    @property
    def frozen(self) -> str:
        """A hash of the frozen parameters; empty where there are none."""

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
        map_workers: Callable[..., list[Any]],
        version: Callable[[Vector, int], Vector] = ...,
    ) -> dict[str, Any]:
        """The named metrics of a model; ``map_workers(f, items)`` maps over the workers, in order.

        ``version(theta, i)`` is client i's own version of the model, where layers are personal.
        """


@runtime_checkable
class Descends(Protocol):
    """An oracle that makes plain gradient steps by itself, in one pass with the gradients."""

    def descend(self, rows: Stack, data: Any, plan: BatchPlan, rate: float) -> None:
        """Make all steps ``row <- row - rate * gradient`` of a plan, in place."""


class Backend(Protocol):
    """Where work is executed. It decides nothing."""

    @property
    def real_time(self) -> bool:
        """Whether clients really take their time; then the backend is a
        `poise.engine.realtime.RealTimeBackend` too.
        """

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do the pieces of work that are ordered, each from the model version it names; rows in
        their order.

        ``spare`` is a stack that nobody needs any more and whose memory may be used.
        """

    def map_workers(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map over the workers on this machine, in the order of the items."""

    def measure(
        self, theta: Vector, names: frozenset[str], algorithm_state: AlgorithmState
    ) -> dict[str, Any]:
        """Metrics of a model."""

    def close(self) -> None:
        """Let go of workers."""


@dataclass(frozen=True)
class WorkOrder:
    """Pieces of work, the models they begin from, and what clients are to report."""

    assignments: Sequence[Assignment]
    models: Mapping[int, Vector]  # by version
    reports: frozenset[str]  # of `LOSS_REPORTS`
    algorithm_state: AlgorithmState
