"""The protocols of the slots, for authors of parts.

    theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )

A part is a frozen dataclass with the methods of its protocol; it inherits nothing.
Every part has ``fit``, which a run calls once, before it computes anything. ``fit``
raises `IncompatibleParts` or `InvalidOption` if the part cannot work in the setting.
`poise.testing` has a contract suite for each slot.

=============  ==================================  ============================
slot           question                            you write
=============  ==================================  ============================
`Solver`       What does each client do?           ``rule``, ``steps_for``
`Sampler`      Which clients work?                 ``draw``
`Clock`        When do their answers count?        ``advance``, ``times``
`Weighting`    How much does each update count?    ``coefficients``
`Aggregator`   How do the updates become one       ``combine``
               direction?
`Channel`      What happens to an update on its    ``encode``, ``decode``
               way to the server?
`Personal`     Which entries of the model stay     ``names``
               with each client?
`Server`       How is the direction applied?       ``init``, ``apply``
`Attack`       What do dishonest clients send?     ``answer``
=============  ==================================  ============================

Sizes: N clients, m rows (updates, or clients that work together), d entries of the
model. A stack is a matrix with one row per client. Parts must not change their
arguments, unless stated otherwise.
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
from poise.core.local_models import LocalModel, no_local_model
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
"""(gradients, parameters) -> gradients, row by row; may change the gradients."""

ServerState: TypeAlias = Mapping[str, Vector]
"""The vectors of a server optimiser, by name."""


@runtime_checkable
class Fits(Protocol):
    """The method that every part has."""

    def fit(self, setting: Setting) -> None:
        """Raise if the part cannot work in this setting."""


@runtime_checkable
class HasName(Protocol):
    """A part declared with a name (`poise.core.parts.part`)."""

    @property
    def name(self) -> str:
        """The name under which its slot registers it."""


# solver: what each client does
# --------------------------------------------------------------------


@dataclass(frozen=True)
class StepRule:
    """One local step: ``W <- W - rate * T(G(point(W)), W)``.

    The rows of a stack are ordered by number of steps, most first. When the last rows
    have made their steps, a transform receives the first rows only; it must cut its own
    state to ``[: len(gradients)]``.

    Args:
        rate: the learning rate.
        transforms: T, applied to the gradients one after the other.
        point: maps the models to the points of the gradients; None for the models
            themselves.
    """

    rate: float
    transforms: tuple[Transform, ...] = ()
    point: Callable[[Stack], Stack] | None = None


class Solver(Protocol):
    """What each client does."""

    @property
    def batch_size(self) -> int | None:
        """Samples per step; None for all samples of the client."""

    def fit(self, setting: Setting) -> None:
        """Raise if the solver cannot work in this setting."""

    def steps_for(self, sizes: Ints) -> Ints:
        """Return the number of local steps of clients with this many samples."""

    def rule(self, start: Stack, version: int) -> StepRule:
        """Return the local step of clients that start from a model version.

        ``start`` holds the trainable entries of the models that they received, (m,
        trainable).
        """

    def rate(self, version: int) -> float:
        """Return the rate on this version; versions of equal rates work together."""


class Memory:
    """The vectors that a solver keeps between rounds, on both sides; none by default.

    The server keeps ``shared`` vectors and sends them with the model. Each client keeps
    the vectors named in ``keeps``.
    """

    keeps: tuple[str, ...] = ()
    """Names of the vectors that every client keeps."""

    begins_at_start: bool = False
    """Whether a new client begins with the model that it received, instead of zeros."""

    neighbours: bool = False
    """Whether the server sends each client the mean of its neighbours' last models."""

    def shared(self, theta: Vector) -> Mapping[str, Vector]:
        """Return the server's vectors before the first round."""
        return {}

    def terms(
        self,
        start: Stack,
        shared: Mapping[str, Vector],
        client_state: Mapping[str, Stack],
    ) -> tuple[Transform, ...]:
        """Return the transforms to apply before those of the step rule."""
        return ()

    def begins(self, name: str, start: Stack) -> Stack:
        """Return the vectors of this name that new clients begin with, one row each."""
        return start if self.begins_at_start else torch.zeros_like(start)

    def directions(
        self, start: Stack, client_state: Mapping[str, Stack]
    ) -> tuple[Transform, ...]:
        """Return the transforms to apply after those of the step rule.

        They may change ``client_state`` in place.
        """
        return ()

    def point(
        self, client_state: Mapping[str, Stack]
    ) -> Callable[[Stack], Stack] | None:
        """Return the map to the points of the gradients; None for the own models."""
        return None

    def client_state_after(
        self,
        client_state: Mapping[str, Stack],
        shared: Mapping[str, Vector],
        deltas: Stack,
        steps: Ints,
        rate: float,
    ) -> Mapping[str, Stack]:
        """Return the vectors that each client keeps after its work."""
        return {}

    def absorb(
        self,
        shared: Mapping[str, Vector],
        updates: RoundUpdates,
        sent: Mapping[str, Stack],
    ) -> tuple[Mapping[str, Vector], Vector | None]:
        """Return the server's vectors after the updates, and a shift of the direction.

        The shift may be None. ``sent`` holds the shared vectors that each client
        received, (m, trainable).
        """
        return shared, None

    def observe(
        self, shared: Mapping[str, Vector], change: Vector
    ) -> Mapping[str, Vector]:
        """Return the server's vectors after the model moved by ``change``."""
        return shared


@runtime_checkable
class Remembers(Protocol):
    """A solver with a memory."""

    @property
    def memory(self) -> Memory | None:
        """The vectors that clients and server keep between rounds; None for none."""


# sampler: which clients work
# ----------------------------------------------------------------------


class Sampler(Protocol):
    """Which clients work."""

    @property
    def needs(self) -> frozenset[str]:
        """The extra facts that it reads.

        Loss reports (`LOSS_REPORTS`), ``gradients`` (the last updates), ``sensitivity``.
        """

    def fit(self, setting: Setting) -> None:
        """Raise if the sampler cannot work in this setting."""

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Return the clients of this round and their base weights.

        Use only ``rng`` for random numbers. ``past`` is what the server knows of
        earlier rounds.
        """


# clock: when answers count
# ------------------------------------------------------------------------


class Times(Protocol):
    """How long the clients' work takes, in simulated time."""

    @property
    def last(self) -> float:
        """After this time no client answers; inf if the times never end."""

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """Return the time from now until each of these clients answers.

        The clients start to work on this version now. The time is inf for a client that
        never comes back.
        """


class Clock(Protocol):
    """When answers count. A clock sees times and a seed, never a model."""

    @property
    def waits(self) -> bool:
        """Whether all clients of a cohort arrive in the same aggregation."""

    def fit(self, setting: Setting) -> None:
        """Raise if the clock cannot work in this setting."""

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        """Add the started work and go on to aggregation ``index``.

        Return the step and the work still in flight after it.
        """

    def times(self, clients: int) -> Times:
        """Return how long each of this many clients takes."""

    def identical_weights(self, base: Floats, clients: int) -> Floats:
        """Return the weights of arrivals if times are ignored [Fraboni 2023, §4.5.1].

        ``base`` is the sampler's weight for a clock that waits, otherwise the
        importance.
        """


# weighting: how much each update counts
# -----------------------------------------------------------


class Weighting(Protocol):
    """How much each update counts."""

    @property
    def needs(self) -> frozenset[str]:
        """The optional columns it reads: `LOSS_REPORTS`, ``balance``, ``adjacency``.

        The clock computes ``balance``; ``adjacency`` comes from the similarity graph.
        """

    def fit(self, setting: Setting) -> None:
        """Raise if the weighting cannot work in this setting."""

    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the coefficient of each update, (m,).

        A column of ``updates`` that ``needs`` could name is None unless ``needs`` names
        it.
        """


# aggregator: how the weighted updates become one direction
# ----------------------------------------


class Aggregator(Protocol):
    """How the weighted updates become one direction."""

    @property
    def traits(self) -> AggregatorTraits:
        """What it guarantees; `AggregatorTraits()` guarantees nothing."""

    def fit(self, setting: Setting) -> None:
        """Raise if the aggregator cannot work in this setting."""

    def combine(self, deltas: Stack, weights: Floats) -> Vector:
        """Return the direction (d,) of the updates (m, d) with these coefficients (m,).

        Treat buffers such as batch-norm statistics, the last entries of a row, like the
        other entries. A row of weight 0 must not count. If the weights add up to O, the
        direction must be O times an average of the rows: then the server's learning
        rate means the same under every aggregator.
        """


# channel: what happens to an update on its way
# ----------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    """What a channel sends, and what its clients keep.

    Args:
        payload: named tensors of any number type, one row per update. poise counts the
            bytes of the rows as traffic.
        kept: the vectors that each client keeps from now on, one row per client.
    """

    payload: Mapping[str, torch.Tensor]
    kept: Mapping[str, Stack] = field(default_factory=dict)


class Channel(Protocol):
    """What happens to an update on its way from client to server.

    A channel encodes trainable entries only; batch-norm statistics travel unchanged.
    All payloads of a run must have the same names, shapes and number types: poise
    compares a node's reply with the payload of an update of zeros.
    """

    @property
    def traits(self) -> ChannelTraits:
        """What it guarantees; `ChannelTraits()` guarantees nothing."""

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of the vectors (d,) that each client keeps, zero at first."""

    def fit(self, setting: Setting) -> None:
        """Raise if the channel cannot work in this setting."""

    def encode(self, deltas: Stack, kept: Mapping[str, Stack], streams: U64) -> Encoded:
        """Encode the updates (m, d) on the client's side.

        Row k of the result may depend on row k of the arguments only. ``streams`` (m,)
        are the stream keys of a channel that draws random numbers
        (`poise.core.rng.words`). The payload may be one of the arguments.
        """

    def decode(self, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
        """Return the updates (m, ``size``) of a payload, on the server's side.

        The result may share memory with the payload.
        """


# personal: which entries stay with each client
# ----------------------------------------------------


class Personal(Protocol):
    """Which entries of a model stay with each client."""

    def fit(self, setting: Setting) -> None:
        """Raise if clients cannot keep entries in this setting."""

    def names(self, module: torch.nn.Module) -> Iterable[str]:
        """Return the names of the parameters and buffers that stay with each client.

        The names are those of ``module.state_dict()``.
        """


# server: how the direction is applied
# -------------------------------------------------------------


class Server(Protocol):
    """How the server applies the aggregated direction.

    A server that draws random numbers also has ``seeded(seed)``
    (`poise.core.capabilities.Seeded`).
    """

    def fit(self, setting: Setting) -> None:
        """Raise if the server cannot work in this setting."""

    def init(self, theta: Vector) -> ServerState:
        """Return the optimiser's state before the first aggregation."""

    def apply(
        self, theta: Vector, direction: Vector, state: ServerState
    ) -> tuple[Vector, ServerState]:
        """Return the next model and the next state."""


# attack: what dishonest clients send
# --------------------------------------------------------------


class Attack(Protocol):
    """What dishonest clients send instead of their updates."""

    @property
    def clients(self) -> Sequence[int]:
        """The dishonest clients."""

    @property
    def works(self) -> bool:
        """Whether its clients do their real work, which ``answer`` then sees."""

    def fit(self, setting: Setting) -> None:
        """Raise if the attack cannot work in this setting."""

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """Return what one client sends, from what it and its accomplices see."""


# what the engine uses beside the slots
# ------------------------------------------------------------


class Probe(Protocol):
    """Measures every update while it is in memory; the ledger keeps the measurements.

    A probe has no state: it reads facts about earlier rounds from the history.
    """

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """Return measurements by name, (m,) or (m, k) each; nan for missing rows."""


class Oracle(Protocol):
    """The gradient oracle of a task on a federation."""

    @property
    def layout(self) -> Layout:
        """The position of each tensor in the vector."""

    @property
    def module(self) -> torch.nn.Module | None:
        """The architecture with its frozen parameters; None without a module."""

    @property
    def frozen(self) -> str:
        """A hash of the frozen parameters; empty if there are none."""

    @property
    def batches(self) -> bool:
        """Whether gradients are of batches; False if gradients are exact."""

    def stacks(self, samples: int) -> bool:
        """Whether one call computes its clients together for batches of this size."""

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics that `measure` knows."""

    def initial(self, seed: int) -> Vector:
        """Return the initial model of a run with this seed."""

    def rows(self, batch_size: int | None) -> int:
        """Return the largest number of clients for one call."""

    def open(self, clients: Ints, streams: U64) -> Any:
        """Return the data of these clients, with ``sizes``, for the methods below."""

    def gradients(self, rows: Stack, data: Any, batch: Batch, out: Stack) -> None:
        """Write the gradients of the first ``len(out)`` clients into ``out``.

        ``rows`` are whole models, (len(out), d). Entries that are not trainable
        (batch-norm statistics) are updated in place.
        """

    def losses(self, rows: Stack, data: Any) -> Floats:
        """Return the mean loss of each row over all data of its client."""

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        map_workers: Callable[..., list[Any]],
        version: Callable[[Vector, int], Vector] = ...,
        local: LocalModel = ...,
    ) -> dict[str, Any]:
        """Return the named metrics of a model.

        ``map_workers(function, items)`` maps over the workers, in order.
        ``version(theta, i)`` is client i's own version of a model with personal layers,
        ``local(i)`` its model after the work of this round; None without work.
        """


@runtime_checkable
class KnowsSampleForm(Protocol):
    """An oracle that describes the form of a sample."""

    @property
    def sample_form(self) -> str:
        """The form as text: shapes, numbers of classes and tokens; no values."""


@runtime_checkable
class NeedsSamples(Protocol):
    """An oracle that knows how many samples its module needs in training."""

    def least_samples(self) -> int:
        """Return the least number of samples of a batch."""


@runtime_checkable
class ChecksMetrics(Protocol):
    """An oracle that knows which metrics have no value on its data."""

    def check_metrics(self, names: frozenset[str]) -> None:
        """Raise if one of these metrics cannot be measured."""


@runtime_checkable
class HasSetMetrics(Protocol):
    """An oracle with metrics of a set, which are nan where they are undefined."""

    @property
    def set_metrics(self) -> Mapping[str, object]:
        """These metrics by name, without prefix."""


@runtime_checkable
class Descends(Protocol):
    """An oracle that makes plain gradient steps in one pass with the gradients."""

    def descend(
        self, start: Stack, data: Any, plan: BatchPlan, rate: float, out: Stack
    ) -> None:
        """Write ``start`` after all steps ``row <- row - rate * gradient`` into ``out``."""


class Owners(Protocol):
    """How many samples each client has, and how much it counts."""

    @property
    def sizes(self) -> Ints:
        """Samples per client, (N,)."""

    @property
    def importance(self) -> Floats:
        """p_i, (N,)."""


class Backend(Protocol):
    """Executes local work. It makes no decisions."""

    @property
    def real_time(self) -> bool:
        """Whether answers take real time; it is then a `RealTimeBackend`."""

    @property
    def real_nodes(self) -> bool:
        """Whether clients work on real nodes, which cannot repeat a lost round at will."""

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Do the assignments of an order; return one row for each, in order.

        ``spare`` is a stack that is no longer in use; the backend may reuse its memory.
        """

    def map_workers(
        self, function: Callable[[Any], Any], items: Iterable[Any]
    ) -> list[Any]:
        """Map over the workers on this machine, in the order of the items."""

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        algorithm_state: AlgorithmState,
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Return the named metrics of a model, and of clients' models after their work."""

    def close(self) -> None:
        """Stop the workers."""


@dataclass(frozen=True)
class WorkOrder:
    """Assignments, the models they start from, and the reports that clients send."""

    assignments: Sequence[Assignment]
    models: Mapping[int, Vector]  # by version
    reports: frozenset[str]  # a subset of `LOSS_REPORTS`
    algorithm_state: AlgorithmState
