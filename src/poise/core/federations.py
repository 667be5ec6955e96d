"""What a federation and a task have, for code that takes any of them.

`FederationLike` and `TaskLike` name the members that every run needs. The other protocols name what
only some federations have; a caller asks for them with ``isinstance``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from poise.core.types import Floats, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poise.core.protocols import Oracle


class FederationLike(Protocol):
    """Who owns what: `poise.federation`, `poise.quadratics`, the nodes of a deployment, or a class
    of one's own.
    """

    @property
    def clients(self) -> int:
        """Number of clients N."""

    @property
    def sizes(self) -> Ints:
        """Samples per client, (N,)."""

    @property
    def importance(self) -> Floats:
        """p, (N,)."""

    @property
    def on_demand(self) -> bool:
        """Whether clients are made when asked for."""

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """The table [data] that makes this federation again; None for a federation made of Python
        objects.
        """


class TaskLike(Protocol):
    """What is learned: `poise.task`, the task of `poise.quadratics`, or a class of one's own."""

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """The table [task] that makes this task again; None for a task made of Python objects."""

    def bind(self, federation: Any, device: str = "cpu") -> Oracle:
        """The gradient oracle on a federation; each task says which federations it takes."""


class ReadableFederation(FederationLike, Protocol):
    """A federation whose data can be read client by client."""

    def client(self, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Training data ``(x, y)`` of client i."""


@runtime_checkable
class HasClasses(Protocol):
    """A federation of labelled samples."""

    @property
    def classes(self) -> int:
        """Number of classes; 0 for regression."""

    def label_counts(self) -> Ints:
        """Samples of each class that each client owns, (N, C)."""


@runtime_checkable
class HasMembers(Protocol):
    """A federation that clients can leave."""

    @property
    def members(self) -> Ints:
        """Each client's number before anybody left, (N,)."""


@runtime_checkable
class HasClientTraits(Protocol):
    """A federation that knows what sets its clients apart by design."""

    def traits(self) -> Mapping[str, Floats]:
        """NamedVectors values, (N,) each."""


@runtime_checkable
class HasDigest(Protocol):
    """A federation that can be recognised."""

    def digest(self) -> str:
        """A hash of what the clients own."""


@runtime_checkable
class SendsMessages(Protocol):
    """A federation whose clients work out their messages for the similarity graph themselves."""

    def messages(self) -> Floats:
        """One message per client, (N, D)."""


@runtime_checkable
class DecidesMeasuring(Protocol):
    """A federation that says whether its clients are measured without being asked to."""

    @property
    def measured(self) -> bool:
        """Whether the training loss of the clients is measured by default."""
