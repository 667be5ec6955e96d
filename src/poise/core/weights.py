"""What loss-based weightings have in common."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, signature, unwrap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import InvalidOption, UpdateRefused, require
from poise.core.types import Floats, Ints

if TYPE_CHECKING:
    from poise.core.protocols import Weighting
    from poise.core.round_updates import RoundUpdates

Floor: TypeAlias = float | Literal["running_min"] | Mapping[int, float] | tuple[float, ...]
"""F_i*: one number for all, the lowest loss seen for each client, or one number per client."""


def by_columns(method: Callable[[Any, RoundUpdates], Floats]) -> Callable[..., Floats]:
    """Let ``coefficients`` also be called with base weights and columns instead of `RoundUpdates`.

    ``weighting.coefficients([0.5, 0.5], loss_before=[1.0, 2.0])`` is for whoever wants to see what
    a weighting does.
    """

    @wraps(method)
    def coefficients(self: Any, updates: RoundUpdates | ArrayLike, **columns: Any) -> Floats:
        from poise.core.round_updates import RoundUpdates

        if not isinstance(updates, RoundUpdates):
            updates = RoundUpdates.of_columns(updates, **columns)
        return method(self, updates)

    return coefficients


def weigh(weighting: Weighting, updates: RoundUpdates) -> Floats:
    """The coefficients that a weighting gives, (m,).

    A weighting written for poise 0.1 takes base weights and keyword columns, ``coefficients(self,
    base, **reports)``; it still works, with a warning.
    """
    if not _takes_columns(type(weighting)):
        return np.asarray(weighting.coefficients(updates), dtype=np.float64)
    warnings.warn(
        f"{type(weighting).__name__}.coefficients(base, **reports) is the old signature: "
        "write coefficients(self, updates), with poise.core.round_updates.RoundUpdates",
        FutureWarning,  # Python hides a DeprecationWarning from whoever wrote the weighting
        stacklevel=2,
    )
    by_name: Callable[..., Floats] = weighting.coefficients
    return np.asarray(by_name(updates.base_weights, **updates.columns()), dtype=np.float64)


@lru_cache
def _takes_columns(kind: type) -> bool:
    """Whether a class of weightings has the old signature, with keyword columns."""
    method = unwrap(vars(kind).get("coefficients") or kind.coefficients)  # type: ignore[attr-defined]
    _, first, *others = signature(method).parameters.values()
    return first.name == "base" or (
        first.name != "updates" and any(p.kind is Parameter.VAR_KEYWORD for p in others)
    )


def renormalised(base: Floats, exponents: Floats) -> Floats:
    """``base_i * exp(exponent_i)``, divided by its sum; the exponents are shifted by their maximum
    first.

    An exponent beyond all numbers is the largest one: a loss that somebody made up must not end the
    run of all.

    >>> renormalised(np.array([0.5, 0.5]), np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    >>> renormalised(np.array([0.5, 0.5]), np.array([1.0, np.inf]))
    array([0., 1.])
    """
    if len(base) == 0:
        return np.zeros(0)
    alive = base > 0
    require(
        bool(alive.any()),
        "every client of the cohort has base weight 0: there is nothing to renormalise",
    )
    most = np.finfo(np.float64).max
    within = np.clip(exponents, -most, most)
    with np.errstate(over="ignore"):  # a difference of -inf is a weight of 0
        shifted = np.exp(np.where(alive, within - within[alive].max(), 0.0))
    raised = np.where(alive, base * shifted, 0.0)
    return np.asarray(raised / raised.sum(), dtype=np.float64)


def finite_losses(name: Literal["loss_before", "loss_after"], updates: RoundUpdates) -> Floats:
    """Reported losses as an array; a missing or non-finite one is refused by its client's name."""
    values = updates.loss_before if name == "loss_before" else updates.loss_after
    if values is None:
        raise InvalidOption(f"this weighting needs {name}, and it was not reported")
    losses, rows = np.asarray(values, dtype=np.float64), len(updates)
    require(
        losses.shape == (rows,), f"{name} has shape {losses.shape}, the cohort has {rows} clients"
    )
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        who = int(updates.clients[bad[0]])
        raise UpdateRefused(
            f"client {who} reported {name} = {losses[bad[0]]}", "lower the learning rate or clip="
        )
    return losses


def loss_gaps(floor: Floor, updates: RoundUpdates) -> Floats:
    """``F_i - F_i*`` of each row; refused by client where a loss is not finite."""
    losses = finite_losses("loss_before", updates)
    if isinstance(floor, str):
        if updates.lowest_loss is None:
            raise InvalidOption(
                "the running minimum needs the clients' earlier losses", "give lowest_loss="
            )
        return losses - np.minimum(updates.lowest_loss, losses)
    if isinstance(floor, int | float):
        return losses - floor
    try:
        return losses - np.array([floor[int(c)] for c in updates.clients], dtype=np.float64)
    except (KeyError, IndexError) as error:
        raise InvalidOption(f"no floor was given for client {error}") from error


def floors_for(floor: Floor, stay: Sequence[int]) -> Floor:
    """The floors of the clients ``stay``, in this order; a floor that is one for all stays as it
    is.

    >>> floors_for((0.1, 0.2, 0.3), [2, 0]), floors_for({0: 0.1, 2: 0.3}, [2]), floors_for(0.5, [2])
    ((0.3, 0.1), {0: 0.3}, 0.5)
    """
    if isinstance(floor, str | int | float):
        return floor
    if isinstance(floor, Mapping):
        return {k: floor[c] for k, c in enumerate(stay) if c in floor}
    return tuple(floor[c] for c in stay)


def check_floor(name: str, floor: Floor) -> None:
    """Floors must be finite numbers, or the running minimum."""
    if isinstance(floor, str):
        require(
            floor == "running_min",
            f"{name}: floor {floor!r}",
            "known: a number, 'running_min', one per client",
        )
        return
    values = floor.values() if isinstance(floor, Mapping) else np.atleast_1d(floor)
    require(all(np.isfinite(v) for v in values), f"{name}: every floor must be finite")


def check_k(name: str, k: int | float) -> None:
    """K is a number of clients, or a share of the cohort."""
    fits = k >= 1 if isinstance(k, int) else 0 < k < 1
    require(
        fits,
        f"{name}: k = {k}",
        "a whole number from 1 on, or a share of the cohort between 0 and 1",
    )


def extreme(values: Floats, k: int | float) -> Floats:
    """``1/k`` on the k largest values; those that tie for the last places share them.

    >>> extreme(np.array([1.0, 3.0, 2.0, 2.0]), 2)
    array([0.  , 0.5 , 0.25, 0.25])
    """
    rows = len(values)
    if rows == 0:
        return np.zeros(0)
    count = min(rows, k if isinstance(k, int) else max(1, int(np.ceil(k * rows))))
    last = np.sort(values)[rows - count]
    above, tied = values > last, values == last
    return np.where(above, 1.0, np.where(tied, (count - above.sum()) / tied.sum(), 0.0)) / count


def without_excluded(omega: Floats, clients: Ints, excluded: frozenset[int]) -> Floats:
    """Coefficients in which excluded clients count nothing and the others as much in total as all
    did.

    Where everyone is excluded, nothing is aggregated.

    >>> without_excluded(np.array([0.25, 0.25, 0.5]), np.array([4, 7, 9]), frozenset({9})).tolist()
    [0.5, 0.5, 0.0]
    """
    if not excluded:
        return omega
    kept = np.where([c in excluded for c in clients.tolist()], 0.0, omega)
    rest = float(kept.sum())
    return np.asarray(kept * (float(omega.sum()) / rest)) if rest != 0 else np.zeros_like(omega)
