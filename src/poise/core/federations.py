"""Protocols of federations and tasks.

`FederationLike` and `TaskLike` list the members that every run needs. The other
protocols describe abilities of some federations; test for them with ``isinstance``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from poise.core.types import Floats, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poise.core.protocols import Oracle


class FederationLike(Protocol):
    """The clients and their data.

    `poise.federation`, `poise.quadratics`, the nodes of a deployment, or your own
    class.
    """

    @property
    def clients(self) -> int:
        """Number of clients N."""

    @property
    def sizes(self) -> Ints:
        """Samples per client, (N,)."""

    @property
    def importance(self) -> Floats:
        """p_i, (N,), with sum 1."""

    @property
    def on_demand(self) -> bool:
        """Whether clients are created only when a round needs them."""

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """The table [data] that recreates this federation; None for Python objects."""


class TaskLike(Protocol):
    """The model and the loss: `poise.task`, that of `poise.quadratics`, or your own."""

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """The table [task] that recreates this task; None for Python objects."""

    def bind(self, federation: Any, device: str = "cpu") -> Oracle:
        """Return the gradient oracle on a federation; raises if that cannot work."""


class ReadableFederation(FederationLike, Protocol):
    """A federation that gives access to each client's data."""

    def client(self, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Training data ``(x, y)`` of client i."""


@runtime_checkable
class HasClasses(Protocol):
    """A federation of labelled samples."""

    @property
    def classes(self) -> int:
        """Number of classes; 0 for regression."""

    def label_counts(self) -> Ints:
        """Number of samples per client and class, (N, C)."""


@runtime_checkable
class HasClassNames(Protocol):
    """A federation whose classes have names."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if classes are only numbers."""


@runtime_checkable
class HasClientNames(Protocol):
    """A federation whose clients may have names."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the clients, (N,), or None."""


@runtime_checkable
class HasMembers(Protocol):
    """A federation that clients can leave."""

    @property
    def members(self) -> Ints:
        """Each client's number before other clients left, (N,)."""


@runtime_checkable
class HasClientTraits(Protocol):
    """A federation that knows how its clients differ by design."""

    def traits(self) -> Mapping[str, Floats]:
        """Values by name, (N,) each."""


@runtime_checkable
class HasDigest(Protocol):
    """A federation with a hash of its data."""

    def digest(self) -> str:
        """A hash of the clients' data."""


@runtime_checkable
class SaysAssumed(Protocol):
    """A federation whose partition may have taken a value that nobody gave."""

    @property
    def assumed(self) -> str:
        """The value as a sentence; empty if there is none."""


@runtime_checkable
class NamesMetrics(Protocol):
    """A task whose user may have named its metrics."""

    @property
    def metrics(self) -> Collection[str] | None:
        """The names or titles of the metrics; None if the task chooses them."""


@runtime_checkable
class MayLackName(Protocol):
    """A task that may have objects without a name, which no experiment file can hold."""

    @property
    def without_name(self) -> str:
        """The object, such as ``metric 'f'``; empty if all have a name."""


@runtime_checkable
class HasPublicMean(Protocol):
    """A federation whose samples may be centred by a mean that is public."""

    @property
    def public_mean(self) -> str:
        """The origin of the mean, in words; empty if the samples are not centred."""


@runtime_checkable
class KnowsAltered(Protocol):
    """A federation that knows which clients clip their updates or add noise to them."""

    @property
    def altered(self) -> tuple[int, ...]:
        """These clients, by their numbers in the whole federation."""


@runtime_checkable
class SendsMessages(Protocol):
    """A federation whose clients compute their messages for the similarity graph."""

    def messages(self) -> Floats:
        """One message per client, (N, D)."""


@runtime_checkable
class DecidesMeasuring(Protocol):
    """A federation that decides whether runs measure its clients by default."""

    @property
    def measured(self) -> bool:
        """Whether runs measure the clients' training loss by default."""
