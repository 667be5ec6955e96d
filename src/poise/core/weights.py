"""Functions that weightings share, and the call of their ``coefficients``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, signature, unwrap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from poise.core.deprecation import warn_deprecated
from poise.core.errors import InvalidOption, UpdateRefused, require
from poise.core.types import LOSS_REPORTS, Floats, Ints

if TYPE_CHECKING:
    from poise.core.protocols import Weighting
    from poise.core.round_updates import RoundUpdates

Floor: TypeAlias = (
    float | Literal["running_min"] | Mapping[int, float] | tuple[float, ...]
)
"""F_i*: one number, each client's lowest loss so far, or one number per client."""

LossOf: TypeAlias = Literal["before", "after", "mean"]
"""F_i: the loss before the local work, after it, or the mean of both."""

REPORTS_OF_LOSS: Mapping[str, frozenset[str]] = {
    "before": frozenset({"loss_before"}),
    "after": frozenset({"loss_after"}),
    "mean": LOSS_REPORTS,
}
"""What clients report for each `LossOf`."""


def by_columns(method: Callable[[Any, RoundUpdates], Floats]) -> Callable[..., Floats]:
    """Let callers of ``coefficients`` pass columns in place of `RoundUpdates`.

    ``weighting.coefficients([0.5, 0.5], loss_before=[1.0, 2.0])`` shows what a
    weighting does.
    """

    @wraps(method)
    def coefficients(
        self: Any, updates: RoundUpdates | ArrayLike, **columns: Any
    ) -> Floats:
        from poise.core.round_updates import RoundUpdates

        if not isinstance(updates, RoundUpdates):
            updates = RoundUpdates.of_columns(updates, **columns)
        return method(self, updates)

    return coefficients


def weigh(weighting: Weighting, updates: RoundUpdates) -> Floats:
    """Return the coefficients of a weighting, (m,).

    A weighting for poise 0.1, ``coefficients(self, base, **reports)``, still works,
    with a warning.
    """
    if not _takes_columns(type(weighting)):
        return np.asarray(weighting.coefficients(updates), dtype=np.float64)
    warn_deprecated(
        f"{type(weighting).__name__}.coefficients(base, **reports)",
        "coefficients(self, updates), with poise.core.round_updates.RoundUpdates",
        removed_in="0.3",
    )
    by_name: Callable[..., Floats] = weighting.coefficients
    return np.asarray(
        by_name(updates.base_weights, **updates.columns()), dtype=np.float64
    )


@lru_cache
def _takes_columns(kind: type[Weighting]) -> bool:
    """Return whether a class of weightings has the old signature with keywords."""
    method = unwrap(vars(kind).get("coefficients") or kind.coefficients)
    _, first, *others = signature(method).parameters.values()
    if first.name in ("base", "updates"):
        return first.name == "base"
    return any(parameter.kind is Parameter.VAR_KEYWORD for parameter in others)


def renormalised(base: Floats, exponents: Floats) -> Floats:
    """Return ``base_i * exp(exponent_i)``, divided by its sum.

    The exponents are first shifted by their maximum. An infinite exponent counts as the
    largest number: a loss that one client made up must not end the run.

    >>> renormalised(np.array([0.5, 0.5]), np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    >>> renormalised(np.array([0.5, 0.5]), np.array([1.0, np.inf]))
    array([0., 1.])
    """
    if len(base) == 0:
        return np.zeros(0)
    positive = base > 0
    require(
        bool(positive.any()),
        "every client of the cohort has base weight 0: there is nothing to renormalise",
    )
    largest = np.finfo(np.float64).max
    finite = np.clip(exponents, -largest, largest)
    with np.errstate(over="ignore"):  # a difference of -inf is a weight of 0
        factors = np.exp(np.where(positive, finite - finite[positive].max(), 0.0))
    weights = np.where(positive, base * factors, 0.0)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def finite_losses(
    name: Literal["loss_before", "loss_after"], updates: RoundUpdates
) -> Floats:
    """Return the reported losses; raises for missing ones, infinite ones and nan."""
    values = updates.loss_before if name == "loss_before" else updates.loss_after
    if values is None:
        raise InvalidOption(f"this weighting needs {name}, but no client reported it")
    losses = np.asarray(values, dtype=np.float64)
    rows = len(updates)
    require(
        losses.shape == (rows,),
        f"{name} has shape {losses.shape}, the cohort has {rows} clients",
    )
    bad_rows = np.flatnonzero(~np.isfinite(losses))
    if len(bad_rows):
        row = bad_rows[0]
        raise UpdateRefused(
            f"client {int(updates.clients[row])} reported {name} = {losses[row]}",
            "lower the learning rate, or clip gradients (clip=)",
        )
    return losses


def chosen_losses(loss: LossOf, updates: RoundUpdates) -> Floats:
    """Return the loss before the local work, after it, or their mean."""
    if loss == "before":
        return finite_losses("loss_before", updates)
    after = finite_losses("loss_after", updates)
    if loss == "after":
        return after
    return (finite_losses("loss_before", updates) + after) / 2


def loss_gaps(floor: Floor, updates: RoundUpdates, loss: LossOf = "before") -> Floats:
    """Return ``F_i - F_i*`` of each row; raises for a loss that is not finite."""
    losses = chosen_losses(loss, updates)
    if isinstance(floor, str):
        if updates.lowest_loss is None:
            raise InvalidOption(
                "the running minimum needs the clients' earlier losses",
                "give lowest_loss=",
            )
        return losses - np.minimum(updates.lowest_loss, losses)
    if isinstance(floor, int | float):
        return losses - floor
    try:
        return losses - np.array(
            [floor[int(c)] for c in updates.clients], dtype=np.float64
        )
    except (KeyError, IndexError) as error:
        raise InvalidOption(f"no floor was given for client {error}") from error


def floors_for(floor: Floor, stay: Sequence[int]) -> Floor:
    """Select the floors of the clients ``stay``, in order; a common floor stays.

    >>> floors_for((0.1, 0.2, 0.3), [2, 0]), floors_for({0: 0.1, 2: 0.3}, [2]), floors_for(0.5, [2])
    ((0.3, 0.1), {0: 0.3}, 0.5)
    """
    if isinstance(floor, str | int | float):
        return floor
    if isinstance(floor, Mapping):
        return {
            number: floor[client]
            for number, client in enumerate(stay)
            if client in floor
        }
    return tuple(floor[client] for client in stay)


def check_floor(name: str, floor: Floor) -> None:
    """Raise unless the floors are finite numbers, or the running minimum."""
    if isinstance(floor, str):
        require(
            floor == "running_min",
            f"{name}: floor {floor!r}",
            "known: a number, 'running_min', one per client",
        )
        return
    if isinstance(floor, Mapping):
        floor = tuple(floor.values())
    finite = bool(np.isfinite(np.asarray(floor)).all())
    require(finite, f"{name}: every floor must be finite")


def check_k(name: str, k: int | float) -> None:
    """Raise unless k is a number of clients, or a share of the cohort."""
    valid = k >= 1 if isinstance(k, int) else 0 < k < 1
    require(
        valid,
        f"{name}: k = {k}",
        "give a whole number from 1 on, or a share of the cohort between 0 and 1",
    )


def extreme(values: Floats, k: int | float) -> Floats:
    """Return ``1/k`` for each of the k largest values; ties share the last places.

    >>> extreme(np.array([1.0, 3.0, 2.0, 2.0]), 2)
    array([0.  , 0.5 , 0.25, 0.25])
    """
    rows = len(values)
    if rows == 0:
        return np.zeros(0)
    if not isinstance(k, int):
        k = max(1, int(np.ceil(k * rows)))
    count = min(rows, k)
    last = np.sort(values)[rows - count]
    above = values > last
    tied = values == last
    share_of_tied = (count - above.sum()) / tied.sum()
    return np.where(above, 1.0, np.where(tied, share_of_tied, 0.0)) / count


def effective_clients(weights: Floats) -> float:
    """Return ``(sum c_i)^2 / sum c_i^2``: how many equal weights would vary as much.

    >>> effective_clients(np.full(4, 0.25)), effective_clients(np.array([1.0, 0.0]))
    (4.0, 1.0)
    """
    return float(weights.sum() ** 2 / (weights @ weights))


def mild_temperature(
    base: Floats, exponents: Floats, least: float, share: float
) -> float:
    """Return a T >= ``least`` with enough effective clients in ``base_i exp(e_i / T)``.

    Enough is ``share`` times the effective clients of the base weights. T is ``least``
    if that is mild enough, otherwise a T at which the number is just enough, by
    bisection of 1/T.

    >>> T = mild_temperature(np.array([0.5, 0.5]), np.array([0.0, 1.0]), least=0.1, share=0.8)
    >>> round(1 / T, 4)  # weights 1/(1 + x) and x/(1 + x) with x = e^(1/T) = 3
    1.0986
    """
    if len(base) == 0:
        return least
    enough = share * effective_clients(base)

    def mild(rate: float) -> bool:
        return effective_clients(renormalised(base, exponents * rate)) >= enough

    if effective_clients(renormalised(base, exponents / least)) >= enough:
        return least
    low, high = 0.0, 1 / least
    for _ in range(60):
        middle = (low + high) / 2
        if mild(middle):
            low = middle
        else:
            high = middle
    return 1 / low if low else np.inf


def check_effective(name: str, share: float | None) -> None:
    """Raise unless the share of effective clients is above 0 and at most 1, or None."""
    require(
        share is None or 0 < share <= 1,
        f"{name}: effective = {share}",
        "give the least share of effective clients, above 0 and at most 1",
        where="effective",
    )


def check_cap(name: str, cap: float | None) -> None:
    """Raise unless the cap is a share of the total weight, or None."""
    require(
        cap is None or 0 < cap <= 1,
        f"{name}: cap = {cap}",
        "give the largest share of the weight that one client may get, above 0 and at most 1",
        where="cap",
    )


def capped(weights: Floats, base: Floats, cap: float | None) -> Floats:
    """Limit each weight to a share ``cap`` of the total, which stays the same.

    The other clients get the rest in proportion to their base weights. If the cohort is
    so small that cap times its clients is below 1, all clients get the same weight.

    >>> capped(np.array([1.0, 0.0, 0.0]), np.array([0.2, 0.2, 0.6]), 0.6)
    array([0.6, 0.1, 0.3])
    """
    if cap is None or len(weights) == 0:
        return weights
    eligible = (base > 0) | (weights > 0)
    total = float(weights.sum())
    limit = total * max(cap, 1 / int(eligible.sum()))
    result = np.array(weights, dtype=np.float64)
    full = np.zeros(len(result), dtype=bool)
    while (result > limit * (1 + 1e-12)).any():
        full |= result >= limit
        result[full] = limit
        others = eligible & ~full
        shares = np.where(others, base, 0.0)
        if shares.sum() == 0:
            shares = others.astype(np.float64)
        if shares.sum() > 0:
            result += shares * ((total - result.sum()) / shares.sum())
    return result


def without_excluded(omega: Floats, clients: Ints, excluded: frozenset[int]) -> Floats:
    """Set excluded clients' coefficients to 0; scale the others to the same total.

    If every client is excluded, all coefficients are 0.

    >>> without_excluded(np.array([0.25, 0.25, 0.5]), np.array([4, 7, 9]), frozenset({9})).tolist()
    [0.5, 0.5, 0.0]
    """
    if not excluded:
        return omega
    remaining = np.where(
        [client in excluded for client in clients.tolist()], 0.0, omega
    )
    total = float(remaining.sum())
    if total == 0:
        return np.zeros_like(omega)
    return np.asarray(remaining * (float(omega.sum()) / total))
