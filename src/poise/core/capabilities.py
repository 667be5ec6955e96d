"""What a part may be able to do beyond the protocol of its slot.

A caller asks with ``isinstance``. Where it relies on an answer (a closed form, a law), it also asks
`poise.core.traits.still_holds`: a subclass may have replaced the method that the answer is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from poise.core.protocols import Clock, Server, Weighting
from poise.core.statistics import WeightStatistics
from poise.core.types import Floats, Ints, Setting

if TYPE_CHECKING:
    from poise.core.durations import Durations


@runtime_checkable
class PerClient(Protocol):
    """A part with values that were given client by client."""

    def for_clients(self, stay: Sequence[int]) -> Self:
        """The same part for the clients ``stay``, which get the numbers 0, 1, … in this order."""


# samplers -----------------------------------------------------------------------------------------


@runtime_checkable
class HasStatistics(Protocol):
    """A sampler that knows the moments of its weights."""

    def statistics(self, importance: Floats) -> WeightStatistics:
        """The moments of omega_i for this importance, (N,)."""


@dataclass(frozen=True)
class ClientFacts:
    """What is known of the clients before a training, one value each; None where it is not."""

    losses: Floats | None = None
    norms: Floats | None = None  # of their updates
    majority: Ints | None = None  # the class of which each has most
    draws: int = 100_000  # how many draws an estimate may take


@runtime_checkable
class HasStatisticsGiven(Protocol):
    """A sampler whose moments depend on more than the importance."""

    def statistics_given(self, importance: Floats, known: ClientFacts) -> WeightStatistics:
        """The moments of omega_i for what is known of the clients."""


@dataclass(frozen=True)
class Coins:
    """Client i is drawn with probability ``chances[i]``, and counts ``weights[i]`` if it is."""

    chances: Floats  # (N,), at most 1
    weights: Floats  # (N,)


@runtime_checkable
class HasCoins(Protocol):
    """A sampler in which every client is drawn by a coin of its own."""

    def coins(self, importance: Floats) -> Coins:
        """The coins of clients with this importance, (N,)."""


# clocks -------------------------------------------------------------------------------------------


@runtime_checkable
class KnowsLongRunWeights(Protocol):
    """A clock that knows how often each client is heard in the long run."""

    def unbiased_weights(self, durations: Durations, importance: Floats) -> Floats:
        """The unbiased weights d_i, (N,); ``durations`` None stands for the clock's own."""


@runtime_checkable
class HasDurations(Protocol):
    """A clock whose clients need given durations for their work."""

    durations: Any


@runtime_checkable
class KnowsNextStart(Protocol):
    """Times in which clients may be away."""

    def next(self, now: float) -> float:
        """The first time after now at which anybody can begin; inf if nobody can."""


# weightings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LongRun:
    """How often each client is heard, and with which base weight."""

    setting: Setting
    clock: Clock
    base: Floats | None  # mean base weight of an answer, (N,); None where it is not known
    heard: Floats | None  # share of aggregations with each client, (N,)

    @property
    def importance(self) -> Floats:
        """p_i, (N,)."""
        return self.setting.importance

    @property
    def mean_base(self) -> Floats | None:
        """The mean base weight over all aggregations, (N,)."""
        if self.base is None or self.heard is None:
            return None
        return self.base * self.heard


@runtime_checkable
class KnowsMeanCoefficients(Protocol):
    """A weighting whose mean coefficients have a closed form."""

    def mean_coefficients(self, known: LongRun) -> Floats | None:
        """E[omega_i], (N,); None where too little is known."""


@runtime_checkable
class WrapsWeighting(Protocol):
    """A weighting that changes the coefficients of another one."""

    @property
    def inner(self) -> Weighting:
        """The other one."""


@runtime_checkable
class EndsWith(Protocol):
    """A weighting that gives way to another one in the course of a run."""

    @property
    def finally_used(self) -> Weighting:
        """The one that is used in the end."""


# solvers and servers ------------------------------------------------------------------------------


@runtime_checkable
class CountsEpochs(Protocol):
    """A solver whose local work may be counted in epochs."""

    @property
    def epochs(self) -> int | None:
        """Passes over the client's data; None where the work is counted in steps."""


@runtime_checkable
class Seeded(Protocol):
    """A server that draws."""

    def seeded(self, seed: int) -> Server:
        """The same server, whose draws are named by the run's seed and its own."""


# tasks and federations ----------------------------------------------------------------------------


@runtime_checkable
class HasPrecision(Protocol):
    """A task that can be computed in single or in double precision."""

    dtype: Any


@runtime_checkable
class HasTitle(Protocol):
    """A federation with a name for people."""

    @property
    def title(self) -> str:
        """What it is called in print."""


@runtime_checkable
class LetsClientsLeave(Protocol):
    """A federation that can go on without some of its clients."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def without(self, clients: Sequence[int] | Ints) -> Any:
        """The federation that is left; the others move up, in order."""
