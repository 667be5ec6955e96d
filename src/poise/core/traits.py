"""Traits: the guarantees that a part declares.

Proofs, accounting, `explain` and the composition of a run read the traits of a part.
The defaults guarantee nothing, so a part that declares no traits gets the weaker
answer. `poise.testing` checks that declared traits are true.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

from poise.core.directions import Directions

Traits = TypeVar("Traits")
Declared = TypeVar("Declared", covariant=True)

READ = frozenset(
    {
        "coins",
        "for_clients",
        "inner",
        "finally_used",
        "mean_coefficients",
        "memory",
        "seeded",
        "within",
    }
)
"""Optional members that poise reads: a subclass that adds one changes the computation."""

NEUTRAL = frozenset({"fit", "statistics", "slot", "name"})
"""Members that a subclass may replace without losing its traits: no proof relies on them."""


@dataclass(frozen=True)
class SamplerTraits:
    """Guarantees about the drawn clients."""

    selects_everyone: bool = False  # every client, in every round, with weight p_i
    independent: bool = False  # each client is drawn independently of the others
    data_dependent: bool = True  # the draw may depend on data that clients sent
    repeats_clients: bool = False  # a client may work several times in a round
    uses_norms: bool = False  # the draw depends on the norms of earlier updates
    favours_losses: bool = False  # clients with large losses are drawn more often
    absent_keep: bool = False  # a client that is not drawn counts with the old model
    remembers_draws: bool = False  # the draw depends on who was drawn before
    per_round: int | None = None  # m: clients per round, or draws
    # one of the two laws that [Fraboni 2023, Cor. 2.1] compares
    law: Literal["uniform", "multinomial"] | None = None


@dataclass(frozen=True)
class SolverTraits:
    """Guarantees about the local steps of a client.

    If ``gradient_steps`` is true, a step is
    ``w <- w - rate (g_i(w) + weight_decay w + pull (w - theta))``, up to the declared
    momentum and clipping.
    """

    gradient_steps: bool = False
    weight_decay: float = 0.0  # lambda
    pull: float = 0.0  # mu of FedProx
    momentum: float = 0.0
    clips: bool = False  # gradients may be clipped
    constant_rate: bool = False  # the learning rate is the same in every round
    sends_only_updates: bool = (
        False  # clients and server exchange only models and updates
    )
    # on a task of sums, a client's update ends at its own sums, from any model
    ignores_start: bool = False
    # the fixed point does not depend on the numbers of local steps
    removes_drift: bool = False
    # beta: gradients are taken at beta w + (1 - beta) times the neighbours' mean
    own_share: float | None = None
    # the steps do not depend on the size of the gradient: near the optimum they do not
    # become shorter
    scale_free: bool = False
    decoupled_decay: float = 0.0  # lambda that shrinks the model beside the optimiser
    # of scale-free steps: how far the first step moves a coordinate, in units of the rate
    first_step: float | None = None

    @property
    def plain_gradient(self) -> bool:
        """Gradient steps without momentum and clipping."""
        return self.gradient_steps and self.momentum == 0 and not self.clips


@dataclass(frozen=True)
class ClockTraits:
    """Guarantees about the clients that arrive, and when."""

    one_version: bool = (
        False  # all clients of an aggregation worked on the newest model
    )
    leaves_clients_behind: bool = (
        True  # an aggregation may not wait for all clients that started
    )
    # `unbiased_weights` hold only if every client starts again at once
    balance_needs_everyone: bool = True
    # the schedule of one of the closed forms in [Fraboni 2023, §4.4]
    schedule: Literal["synchronous", "asynchronous", "fixed-window"] | None = None
    window: float | None = None  # dt of a fixed window
    balance_rule: str = ""  # the formula of `unbiased_weights`, as text


@dataclass(frozen=True)
class Tilt:
    """Coefficients are base weights times ``exp(± of / option)``, scaled to sum one."""

    of: Literal["loss", "improvement"]
    option: str  # the name of the option that divides the exponent
    rate: float | None = None  # the signed factor of the exponent; None if it varies


@dataclass(frozen=True)
class WeightingTraits:
    """Guarantees about the coefficients."""

    proportional: bool = False  # equal to the base weights, up to ``shortens_to``
    reads_updates: bool = True  # the coefficients may depend on the updates themselves
    shortens_to: float | None = None  # longer updates are scaled down to this length
    continuous: bool = (
        False  # small changes of the losses change the coefficients little
    )
    larger_losses_count_more: bool = False
    # compensates for how often each client answers, by given or estimated times
    times: Literal["given", "estimated", "elapsed"] | None = None
    # updates count by their gradients, however many local steps they took
    per_step: bool = False
    by_similarity: bool = False  # by the degree in the similarity graph
    tilt: Tilt | None = None
    favours: str = ""  # text that completes "clients that …"


@dataclass(frozen=True)
class ServerTraits:
    """Guarantees about how the direction is applied."""

    adds: bool = False  # theta <- theta + rate * direction, up to ``noise``
    stateless: bool = (
        False  # the server keeps no trace of earlier directions except the model
    )
    rate: float | None = (
        None  # the server's learning rate; None if it is not one number
    )
    noise: float = 0.0  # standard deviation of the Gaussian noise on the direction


@dataclass(frozen=True)
class AggregatorTraits:
    """Guarantees about how weighted updates become one direction."""

    linear: bool = False  # the direction is sum_i omega_i Delta_i
    # the server keeps every client's latest answer, and combines all of them
    latest: bool = False


@dataclass(frozen=True)
class ChannelTraits:
    """Guarantees about an update on its way to the server."""

    identity: bool = False  # updates arrive whole and unchanged


@dataclass(frozen=True)
class AttackTraits:
    """Facts about an attack."""

    omniscient: bool = False  # it sees the updates of honest clients


@dataclass(frozen=True)
class TaskTraits:
    """Guarantees about the losses of a task."""

    convex: Literal["quadratic", "logistic"] | None = None  # the kind of convex problem
    sums: bool = False  # the model is the mean of sums over each client's samples
    lowest_loss: float | None = None  # no loss is below; None if unknown
    directions: Directions = Directions()  # of its metrics


class Declares(Protocol[Declared]):
    """A part that declares traits."""

    @property
    def traits(self) -> Declared:
        """What it guarantees."""


def traits_of(part: object, kind: type[Traits]) -> Traits:
    """Return the traits that a part declares; the defaults of ``kind`` if it declares none.

    A subclass inherits the traits of a class only if it replaces nothing of that class
    but the values of its options: a proof may rely on any method.

    >>> class Everyone:
    ...     traits = SamplerTraits(selects_everyone=True)
    ...     def draw(self): ...
    >>> class Half(Everyone):
    ...     def draw(self): ...
    >>> [traits_of(sampler, SamplerTraits).selects_everyone for sampler in (Everyone(), Half())]
    [True, False]
    """
    if undeclared(part, kind):
        return kind()
    return cast("Declares[Traits]", part).traits


def undeclared(part: object, kind: type[Any]) -> str:
    """Return why a part guarantees nothing; empty if it declares traits that hold.

    >>> class Mine: ...
    >>> undeclared(Mine(), SamplerTraits)
    'Mine declares no traits'
    """
    name = type(part).__name__
    declared = _owner(part, "traits")
    if declared is None:
        return f"{name} declares no traits"
    replaced = ", ".join(replaced_in(part, declared))
    if replaced:
        return (
            f"{name} replaces {replaced} of {declared.__name__} and declares no "
            "traits of its own"
        )
    traits = cast("Declares[Any]", part).traits
    if not isinstance(traits, kind):
        return f"{name} declares {type(traits).__name__}, not {kind.__name__}"
    return ""


def still_holds(part: object, member: str) -> bool:
    """Return whether the answer of a member holds for a part: no subclass replaces other members.

    >>> class Counted:
    ...     def draw(self): ...
    ...     def chances(self): ...
    >>> class Other(Counted):
    ...     def draw(self): ...
    >>> still_holds(Counted(), "chances"), still_holds(Other(), "chances")
    (True, False)
    """
    owner = _owner(part, member)
    return owner is not None and not replaced_in(part, owner)


def replaced_members(cls: type, base: type) -> list[str]:
    """Return the members of ``base`` that a subclass replaces, except values of options."""
    options = {f.name for f in fields(base)} if is_dataclass(base) else set()
    replaced: set[str] = set()
    for name in _members(base) | READ:
        member = inspect.getattr_static(cls, name, None)
        if member is inspect.getattr_static(base, name, None):
            continue
        if name not in options or not _is_value(member):
            replaced.add(name)
    return sorted(replaced)


def _owner(part: object, member: str) -> type | None:
    """Return the class in the part's class hierarchy that defines a member."""
    return next((cls for cls in type(part).__mro__ if member in vars(cls)), None)


def replaced_in(part: object, base: type) -> list[str]:
    """Return the members of ``base`` that a part's class, or the part itself, replaces."""
    attributes: Iterable[str] = vars(part) if hasattr(part, "__dict__") else ()
    shadowed = {
        name
        for name in attributes
        if name in _members(base) and callable(inspect.getattr_static(base, name, None))
    }
    return sorted({*replaced_members(type(part), base), *shadowed})


def _members(base: type) -> set[str]:
    """Return the members of a class and its bases, without special and `NEUTRAL` members."""
    names = {name for cls in base.__mro__ if cls is not object for name in vars(cls)}
    return {name for name in names if not name.startswith("__")} - NEUTRAL | {
        "__getattribute__"
    }


def _is_value(value: object) -> bool:
    """Return whether a class attribute is a value, not a method or another descriptor."""
    return not callable(value) and not hasattr(type(value), "__get__")
