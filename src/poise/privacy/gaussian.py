"""The Gaussian mechanism, calibrated exactly: how much noise hides a change of the model.

Two normal distributions with standard deviation sigma and means at distance Psi are
(epsilon, delta)-indistinguishable. The pairs (epsilon, delta) depend on
``r = Psi / sigma`` alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import exp, inf, isfinite, log, sqrt
from typing import Literal

from poise.core.errors import require

Calibration = Literal["analytic", "classical"]


def privacy_curve(r: float, epsilon: float) -> float:
    """Return the least delta: ``Phi(r/2 - epsilon/r) - e^epsilon Phi(-r/2 - epsilon/r)``.

    >>> round(privacy_curve(3.218, 10.0), 4)  # the classical formula claims 0.01
    0.0406

    Source: [Balle 2018, Thm 8].
    """
    # not at the top: training does not need it
    from scipy.special import (
        log_ndtr,
        ndtr,
    )

    require(
        r >= 0 and epsilon >= 0,
        f"privacy_curve: r = {r} and epsilon = {epsilon} must not be negative",
    )
    if r == 0:
        return 0.0
    if r == inf:
        return 1.0
    return float(ndtr(r / 2 - epsilon / r)) - exp(
        epsilon + float(log_ndtr(-r / 2 - epsilon / r))
    )


def epsilon_at(r: float, delta: float) -> float:
    """Return the least epsilon at this delta, for means r standard deviations apart.

    >>> round(epsilon_at(2.856, 0.01), 2)
    10.0
    """
    require(0 < delta < 1, f"epsilon_at: delta must be between 0 and 1, not {delta}")
    if privacy_curve(r, 0.0) <= delta:
        return 0.0
    if r == inf:
        return inf
    high = 1.0
    while privacy_curve(r, high) > delta:
        high *= 2
    return _root(lambda e: privacy_curve(r, e) - delta, high, 1e-12)


def sensitivity_budget(
    sigma: float, epsilon: float, delta: float, calibration: Calibration = "analytic"
) -> float:
    """Return Psi*, the largest distance of two models that noise sigma hides.

    ``analytic``: the largest Psi with ``privacy_curve(Psi / sigma, epsilon) <= delta``,
    exact for every epsilon. ``classical``: ``epsilon sigma / sqrt(2 ln(1.25/delta))``,
    proved for epsilon < 1 only, with a warning above.

    Args:
        sigma: standard deviation of the noise.
        epsilon: above 0.
        delta: between 0 and 1.
        calibration: ``analytic`` or ``classical``.

    >>> round(sensitivity_budget(1.0, 10, 0.01), 3)
    2.856

    Source: [Fraboni 2023, eq. 5.13]; [Balle 2018]; [Dwork 2014, Thm A.1].
    """
    check_budget(sigma, epsilon, delta, calibration)
    if calibration == "classical":
        return _classical(epsilon, delta) * sigma
    return _ratio(epsilon, delta) * sigma


def check_budget(
    sigma: float,
    epsilon: float,
    delta: float,
    calibration: Calibration,
    stacklevel: int = 3,
) -> None:
    """Raise for an invalid budget, and warn if the classical formula does not hold for it.

    ``stacklevel`` selects the line that the warning names; by default, that of the
    caller's caller.
    """
    known = calibration in ("analytic", "classical")
    require(
        known,
        f"calibration = {calibration!r}",
        "known: analytic, classical",
        where="calibration",
    )
    for name, value in (("sigma", sigma), ("epsilon", epsilon), ("delta", delta)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(number, f"{name} must be a number, not {value!r}", where=name)
    require(
        sigma >= 0 and isfinite(sigma),
        f"sigma must be 0 or more, not {sigma}",
        where="sigma",
    )
    require(
        epsilon > 0 and isfinite(epsilon),
        f"epsilon must be above 0, not {epsilon}",
        where="epsilon",
    )
    require(0 < delta < 1, f"delta must be between 0 and 1, not {delta}", where="delta")
    if calibration == "classical" and epsilon >= 1:
        actual_delta = privacy_curve(_classical(epsilon, delta), epsilon)
        warnings.warn(
            (
                "the classical calibration is proved for epsilon < 1; at epsilon = "
                f"{epsilon:g} it "
                f"gives delta = {actual_delta:.4g}, not {delta:g}: use "
                "calibration='analytic'"
            ),
            stacklevel=stacklevel,
        )


def _classical(epsilon: float, delta: float) -> float:
    return epsilon / sqrt(2 * log(1.25 / delta))


def _ratio(epsilon: float, delta: float) -> float:
    """Return the largest r with privacy_curve(r, epsilon) <= delta; the curve rises with r."""
    high = 1.0
    while privacy_curve(high, epsilon) < delta:
        high *= 2
    return _root(lambda r: privacy_curve(r, epsilon) - delta, high, 1e-13)


def _root(function: Callable[[float], float], high: float, precision: float) -> float:
    """Return the zero of a function between 0 and ``high``."""
    from scipy.optimize import brentq

    return float(brentq(function, 0.0, high, xtol=precision, rtol=1e-14))
