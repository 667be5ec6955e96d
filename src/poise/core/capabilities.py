"""Abilities that a part may have beyond the protocol of its slot.

Test for them with ``isinstance``. A caller that relies on an answer (a closed form, a
law) must also check `poise.core.traits.still_holds`: a subclass may have replaced the
method that the answer describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

from poise.core.protocols import Clock, Sampler, Server, Solver, Weighting
from poise.core.statistics import WeightStatistics
from poise.core.types import Floats, Ints, Setting

if TYPE_CHECKING:
    from poise.core.durations import Durations


@lru_cache
def declares(kind: type, name: str) -> bool:
    """Return whether a class has an attribute or a dataclass field of this name.

    The answer is cached: ``isinstance`` with a protocol takes many microseconds.
    """
    return hasattr(kind, name) or name in vars(kind).get("__dataclass_fields__", ())


@runtime_checkable
class PerClient(Protocol):
    """A part with options that hold one value per client."""

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the part for the clients ``stay``, renumbered 0, 1, … in order."""


# samplers -----------------------------------------------------------------------------
# ------------


@runtime_checkable
class HasStatistics(Protocol):
    """A sampler that knows the moments of its weights."""

    def statistics(self, importance: Floats) -> WeightStatistics:
        """Return the moments of omega_i for this importance, (N,)."""


@dataclass(frozen=True)
class ClientFacts:
    """What is known of each client before training, (N,) each; None if unknown."""

    losses: Floats | None = None
    norms: Floats | None = None  # of their updates
    majority: Ints | None = None  # the most frequent class of each client
    draws: int = 100_000  # how many draws an estimate may take


@runtime_checkable
class HasStatisticsGiven(Protocol):
    """A sampler whose moments depend on more than the importance."""

    def statistics_given(
        self, importance: Floats, known: ClientFacts
    ) -> WeightStatistics:
        """Return the moments of omega_i, given facts about the clients."""


@dataclass(frozen=True)
class Coins:
    """Client i is drawn with probability ``chances[i]`` and weighs ``weights[i]``."""

    chances: Floats  # (N,), at most 1
    weights: Floats  # (N,)


@runtime_checkable
class HasCoins(Protocol):
    """A sampler that draws every client independently of the others."""

    def coins(self, importance: Floats) -> Coins:
        """Return the probabilities and weights for this importance, (N,)."""


@runtime_checkable
class LimitsSensitivity(Protocol):
    """A sampler that keeps the sensitivity of every client within a limit Psi*."""

    limit: float | None  # Psi*; None if a budget gives it

    @property
    def guarantee(self) -> Mapping[str, float]:
        """Its own epsilon, delta and sigma; empty if they are not given."""

    def within(self, limit: float) -> Sampler:
        """Return the sampler with this limit."""


# clocks -------------------------------------------------------------------------------
# ------------


@runtime_checkable
class KnowsLongRunWeights(Protocol):
    """A clock that knows how often each client arrives in the long run."""

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """Return the unbiased weights d_i, (N,); None takes the clock's durations."""


@runtime_checkable
class HasDurations(Protocol):
    """A clock with given durations of the clients' work."""

    durations: Any


@runtime_checkable
class KnowsNextStart(Protocol):
    """Times during which clients may be away."""

    def next(self, now: float) -> float:
        """Return the first time after now at which a client can start, or inf."""


# weightings ---------------------------------------------------------------------------
# ------------


@dataclass(frozen=True)
class LongRun:
    """How often each client arrives, and with which base weight."""

    setting: Setting
    clock: Clock
    base: Floats | None  # mean base weight of an answer, (N,); None if unknown
    heard: Floats | None  # share of aggregations that include each client, (N,)

    @property
    def importance(self) -> Floats:
        """p_i, (N,)."""
        return self.setting.importance

    @property
    def mean_base(self) -> Floats | None:
        """The mean base weight over all aggregations, (N,); None if unknown."""
        if self.base is None or self.heard is None:
            return None
        return self.base * self.heard


@runtime_checkable
class KnowsMeanCoefficients(Protocol):
    """A weighting whose mean coefficients have a closed form."""

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """Return E[omega_i], (N,); None if too little is known."""


@runtime_checkable
class WrapsWeighting(Protocol):
    """A weighting that changes the coefficients of another weighting."""

    @property
    def inner(self) -> Weighting:
        """The wrapped weighting."""


@runtime_checkable
class EndsWith(Protocol):
    """A weighting that hands over to another weighting during a run."""

    @property
    def finally_used(self) -> Weighting:
        """The weighting in use at the end of the run."""


def final_weightings(weighting: Weighting) -> Iterator[Weighting]:
    """Yield a weighting, the one in use at the end of the run, and those they wrap."""
    yield weighting
    if isinstance(weighting, EndsWith):
        yield from final_weightings(weighting.finally_used)
    elif isinstance(weighting, WrapsWeighting):
        yield from final_weightings(weighting.inner)


# solvers and servers
# ------------------------------------------------------------------------------


@runtime_checkable
class CountsEpochs(Protocol):
    """A solver whose local work may be counted in epochs."""

    @property
    def epochs(self) -> int | None:
        """Passes over the client's data; None if the work is counted in steps."""


@runtime_checkable
class Accumulates(Protocol):
    """A solver whose steps may follow the mean gradient of several batches."""

    @property
    def accumulate(self) -> int:
        """Batches per step."""


def batches_per_step(solver: Solver) -> int:
    """Return how many batches one step takes; 1 for solvers that do not declare it."""
    if declares(type(solver), "accumulate"):
        return cast(Accumulates, solver).accumulate
    if isinstance(solver, Accumulates):  # set by ``__init__``: the class has none
        return solver.accumulate
    return 1


def samples_per_step(solver: Solver) -> int | None:
    """Return the samples of one step; None for all samples of the client."""
    if solver.batch_size is None:
        return None
    return solver.batch_size * batches_per_step(solver)


@runtime_checkable
class Seeded(Protocol):
    """A server that draws random numbers."""

    def seeded(self, seed: int) -> Server:
        """Return the server with draws that depend on the run's seed and its own."""


# backends -----------------------------------------------------------------------------
# ------------


@runtime_checkable
class LimitsUpdates(Protocol):
    """A backend of clients that the server need not believe."""

    max_ratio: float
    """Longest update, as a multiple of the median length in its round."""


# tasks and federations
# ----------------------------------------------------------------------------


@runtime_checkable
class HasPrecision(Protocol):
    """A task with a choice of single or double precision."""

    dtype: Any


@runtime_checkable
class HasTitle(Protocol):
    """A federation with a readable name."""

    @property
    def title(self) -> str:
        """The name for reports."""


@runtime_checkable
class LetsClientsLeave(Protocol):
    """A federation that can continue without some of its clients."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def without(self, clients: Sequence[int] | Ints) -> Any:
        """Return the federation without these clients; the others move up, in order."""


# oracles ------------------------------------------------------------------------------
# ------------


@runtime_checkable
class SaysHow(Protocol):
    """An oracle that says how it computes gradients."""

    @property
    def computation(self) -> str:
        """The kernel and why it was chosen, in one line; empty if there is no choice."""
