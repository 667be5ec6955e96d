"""What a part promises, declared as a value.

Proofs, accounting, `explain` and the composition of a run ask a part for its traits. The defaults
promise nothing, so a part that declares no traits gets the weaker answer. `poise.testing` checks
that declared traits are true.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

Traits = TypeVar("Traits")
Declared = TypeVar("Declared", covariant=True)

READ = frozenset(
    {"coins", "for_clients", "inner", "finally_used", "mean_coefficients", "memory", "seeded"}
)
"""Members that poise reads of a part that has them: a subclass that adds one changes what is
computed."""

NEUTRAL = frozenset({"fit", "statistics", "slot", "name"})
"""Members that a subclass may replace and keep the promises: no proof rests on them."""


@dataclass(frozen=True)
class SamplerTraits:
    """Promises about who is drawn."""

    selects_everyone: bool = False  # every client, in every round, with weight p_i
    independent: bool = False  # every client is drawn by a coin of its own
    data_dependent: bool = True  # who is drawn may depend on what clients sent
    repeats_clients: bool = False  # one client may work several times in a round
    uses_norms: bool = False  # who is drawn depends on the norms of earlier updates
    favours_losses: bool = False  # clients with large losses are asked more often
    absent_keep: bool = False  # a client that is not drawn counts with the old model
    per_round: int | None = None  # m: clients per round, or draws
    law: Literal["uniform", "multinomial"] | None = None  # the laws that E Corollary 2.1 compares


@dataclass(frozen=True)
class SolverTraits:
    """Promises about the local steps of a client.

    A step is ``w <- w - rate (g_i(w) + weight_decay w + pull (w - theta))`` where
    ``gradient_steps`` is true, up to the momentum and the clipping that are named beside it.
    """

    gradient_steps: bool = False
    weight_decay: float = 0.0  # lambda
    pull: float = 0.0  # mu of FedProx
    momentum: float = 0.0
    clips: bool = False  # gradients may be shortened
    constant_rate: bool = False  # the learning rate is the same in every round
    sends_only_updates: bool = False  # clients and server exchange nothing but models and updates
    removes_drift: bool = (
        False  # the fixed point does not depend on how many steps each client makes
    )
    own_share: float | None = (
        None  # beta: gradients are taken at beta w + (1 - beta) times the neighbours' mean
    )

    @property
    def plain_gradient(self) -> bool:
        """Gradient steps without momentum and clipping."""
        return self.gradient_steps and self.momentum == 0 and not self.clips


@dataclass(frozen=True)
class ClockTraits:
    """Promises about who is heard, and when."""

    one_version: bool = False  # whoever is heard in an aggregation worked on the newest model
    leaves_clients_behind: bool = True  # an aggregation may go on without somebody who was asked
    balance_needs_everyone: bool = (
        True  # `unbiased_weights` hold only where every client starts again at once
    )
    schedule: Literal["synchronous", "asynchronous", "fixed-window"] | None = (
        None  # closed forms of E section 4.4
    )
    window: float | None = None  # dt of a fixed window
    balance_rule: str = ""  # the formula of `unbiased_weights`, for people


@dataclass(frozen=True)
class Tilt:
    """Coefficients that are base weights times ``exp(± of / option)``, summing to one."""

    of: Literal["loss", "improvement"]
    option: str  # the name of the option that the exponent is divided by


@dataclass(frozen=True)
class WeightingTraits:
    """Promises about the coefficients."""

    proportional: bool = False  # the base weights, up to the shortening named below
    reads_updates: bool = True  # the coefficients may depend on the updates themselves
    shortens_to: float | None = None  # the length that every longer update is scaled down to
    continuous: bool = False  # small changes of the losses change the coefficients little
    larger_losses_count_more: bool = False
    times: Literal["given", "estimated"] | None = None  # makes up for how often each client answers
    by_similarity: bool = False  # by the degree in the similarity graph
    tilt: Tilt | None = None
    favours: str = ""  # completes "clients that …", for people


@dataclass(frozen=True)
class ServerTraits:
    """Promises about how the direction is applied."""

    adds: bool = False  # theta <- theta + rate * direction, up to the noise named below
    stateless: bool = False  # no direction leaves a trace beside the model
    rate: float | None = None  # the server's learning rate, where one number says it
    noise: float = 0.0  # standard deviation of the Gaussian noise on the direction


@dataclass(frozen=True)
class AggregatorTraits:
    """Promises about how weighted updates become one direction."""

    linear: bool = False  # the direction is sum_i omega_i Delta_i


@dataclass(frozen=True)
class ChannelTraits:
    """Promises about what happens to an update on its way to the server."""

    identity: bool = False  # updates arrive as they were sent, in full


@dataclass(frozen=True)
class AttackTraits:
    """What an attack does and knows."""

    omniscient: bool = False  # it sees the updates of honest clients


@dataclass(frozen=True)
class TaskTraits:
    """Promises about the losses of a task."""

    convex: Literal["quadratic", "logistic"] | None = None  # the kind of convex problem that it is


class Declares(Protocol[Declared]):
    """A part that declares traits."""

    @property
    def traits(self) -> Declared:
        """What it promises."""


def traits_of(part: object, kind: type[Traits]) -> Traits:
    """The traits that a part declares; the defaults of ``kind`` where it declares none.

    A subclass inherits the promise of a class only as long as it replaces nothing of that class but
    the values of its options: a proof may rest on any method.

    >>> class Everyone:
    ...     traits = SamplerTraits(selects_everyone=True)
    ...     def draw(self): ...
    >>> class Some(Everyone):
    ...     def draw(self): ...
    >>> [traits_of(one, SamplerTraits).selects_everyone for one in (Everyone(), Some())]
    [True, False]
    """
    if undeclared(part, kind):
        return kind()
    return cast("Declares[Traits]", part).traits


def undeclared(part: object, kind: type[Any]) -> str:
    """Why a part promises nothing; empty where it declares traits that hold.

    >>> class Mine: ...
    >>> undeclared(Mine(), SamplerTraits)
    'Mine declares no traits'
    """
    name = type(part).__name__
    declared = _owner(part, "traits")
    if declared is None:
        return f"{name} declares no traits"
    changed = replaced_in(part, declared)
    if changed:
        what = ", ".join(changed)
        return f"{name} replaces {what} of {declared.__name__} and declares no traits of its own"
    traits = cast("Declares[Any]", part).traits
    if not isinstance(traits, kind):
        return f"{name} declares {type(traits).__name__}, not {kind.__name__}"
    return ""


def still_holds(part: object, member: str) -> bool:
    """Whether what a member says of its class holds for a part: no subclass replaces anything else.

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
    """The members of ``base`` that a subclass replaces, values of options aside."""
    options = {f.name for f in fields(base)} if is_dataclass(base) else set()
    found: set[str] = set()
    for name in _members(base) | READ:
        mine = inspect.getattr_static(cls, name, None)
        if mine is inspect.getattr_static(base, name, None):
            continue
        if name not in options or not _is_value(mine):
            found.add(name)
    return sorted(found)


def _owner(part: object, member: str) -> type | None:
    """The class of a part that defines a member."""
    return next((cls for cls in type(part).__mro__ if member in vars(cls)), None)


def replaced_in(part: object, base: type) -> list[str]:
    """What a part's own class, or the part itself, has in the place of members of ``base``."""
    own: Iterable[str] = vars(part) if hasattr(part, "__dict__") else ()
    shadowed = {
        name
        for name in own
        if name in _members(base) and callable(inspect.getattr_static(base, name, None))
    }
    return sorted({*replaced_members(type(part), base), *shadowed})


def _members(base: type) -> set[str]:
    """What a class and its bases define, without Python's own names and `NEUTRAL` members."""
    names = {name for cls in base.__mro__ if cls is not object for name in vars(cls)}
    return {name for name in names if not name.startswith("__")} - NEUTRAL | {"__getattribute__"}


def _is_value(value: object) -> bool:
    """Whether a class attribute is a value rather than a method, a property or another
    descriptor.
    """
    return not callable(value) and not hasattr(type(value), "__get__")
