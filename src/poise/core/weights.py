"""What loss-based weightings have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from poise.core.errors import InvalidOption, UpdateRefused, require
from poise.core.types import Floats, Ints

Floor: TypeAlias = float | Literal["running_min"] | Mapping[int, float] | tuple[float, ...]
"""F_i*: one number for all, the lowest loss seen for each client, or one number per client."""


def renormalised(base: Floats, exponents: Floats) -> Floats:
    """``base_i * exp(exponent_i)``, divided by its sum; the exponents are shifted by their maximum first.

    An exponent beyond all numbers is the largest one: a loss that somebody made up must not end the run of all.

    >>> renormalised(np.array([0.5, 0.5]), np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    >>> renormalised(np.array([0.5, 0.5]), np.array([1.0, np.inf]))
    array([0., 1.])
    """
    if len(base) == 0:
        return np.zeros(0)
    alive = base > 0
    require(bool(alive.any()), "every client of the cohort has base weight 0: there is nothing to renormalise")
    most = np.finfo(np.float64).max
    within = np.clip(exponents, -most, most)
    with np.errstate(over="ignore"):  # a difference of -inf is a weight of 0
        shifted = np.exp(np.where(alive, within - within[alive].max(), 0.0))
    raised = np.where(alive, base * shifted, 0.0)
    return np.asarray(raised / raised.sum(), dtype=np.float64)


def finite(name: str, values: Floats | None, rows: int, clients: Ints | None) -> Floats:
    """Reported losses as an array; a missing or non-finite one is refused by its client's name."""
    if values is None:
        raise InvalidOption(f"this weighting needs {name}, and it was not reported")
    losses = np.asarray(values, dtype=np.float64)
    require(losses.shape == (rows,), f"{name} has shape {losses.shape}, the cohort has {rows} clients")
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        who = int(bad[0] if clients is None else clients[bad[0]])
        raise UpdateRefused(f"client {who} reported {name} = {losses[bad[0]]}", "lower the learning rate or clip=")
    return losses


def gaps(floor: Floor, losses: Floats, clients: Ints | None, lowest: Floats | None) -> Floats:
    """``F_i - F_i*`` for each row."""
    if isinstance(floor, str):
        if lowest is None:
            raise InvalidOption("the running minimum needs the clients' earlier losses", "give lowest_loss=")
        return losses - np.minimum(lowest, losses)
    if isinstance(floor, int | float):
        return losses - floor
    if clients is None:
        raise InvalidOption("floors per client need the clients' numbers", "give clients=")
    try:
        return losses - np.array([floor[int(c)] for c in clients], dtype=np.float64)
    except (KeyError, IndexError) as error:
        raise InvalidOption(f"no floor was given for client {error}") from error


def loss_gaps(floor: Floor, rows: int, reports: Mapping[str, Any]) -> Floats:
    """``F_i - F_i*`` from what the clients reported; refused by client where a loss is not finite."""
    clients = reports.get("clients")
    losses = finite("loss_before", reports.get("loss_before"), rows, clients)
    return gaps(floor, losses, clients, reports.get("lowest_loss"))


def check_floor(name: str, floor: Any) -> None:
    """Floors must be finite numbers, or the running minimum."""
    values = [floor] if isinstance(floor, int | float) else list(getattr(floor, "values", lambda: floor)())
    if isinstance(floor, str):
        require(floor == "running_min", f"{name}: floor {floor!r}", "known: a number, 'running_min', one per client")
    else:
        require(all(np.isfinite(v) for v in values), f"{name}: every floor must be finite")


def check_k(name: str, k: int | float) -> None:
    """K is a number of clients, or a share of the cohort."""
    fits = k >= 1 if isinstance(k, int) else 0 < k < 1
    require(fits, f"{name}: k = {k}", "a whole number from 1 on, or a share of the cohort between 0 and 1")


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


def without_barred(omega: Floats, clients: Ints, barred: frozenset[int]) -> Floats:
    """Coefficients in which barred clients count nothing and the others as much in total as all did.

    Where everyone is barred, nothing is aggregated.

    >>> without_barred(np.array([0.25, 0.25, 0.5]), np.array([4, 7, 9]), frozenset({9})).tolist()
    [0.5, 0.5, 0.0]
    """
    if not barred:
        return omega
    kept = np.where([c in barred for c in clients.tolist()], 0.0, omega)
    rest = float(kept.sum())
    return np.asarray(kept * (float(omega.sum()) / rest)) if rest != 0 else np.zeros_like(omega)
