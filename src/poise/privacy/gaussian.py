"""How much noise hides a change of the model: the Gaussian mechanism, calibrated exactly.

Two normal laws with standard deviation sigma whose means are Psi apart cannot be told from each
other better than (epsilon, delta); all depends on ``r = Psi / sigma``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import exp, inf, isfinite, log, sqrt
from typing import Literal

from poise.core.errors import require

Calibration = Literal["analytic", "classical"]


def privacy_curve(r: float, epsilon: float) -> float:
    """The least delta at this epsilon: ``Phi(r/2 - epsilon/r) - e^epsilon Phi(-r/2 - epsilon/r)``.

    >>> round(privacy_curve(3.218, 10.0), 4)  # what the classical formula takes for 0.01
    0.0406

    Source: Balle & Wang 2018, Theorem 8.
    """
    from scipy.special import (
        log_ndtr,
        ndtr,
    )  # here: a run that nobody asks to forget starts without it

    require(
        r >= 0 and epsilon >= 0,
        f"privacy_curve: r = {r} and epsilon = {epsilon} must not be negative",
    )
    if r == 0:
        return 0.0
    if r == inf:
        return 1.0
    return float(ndtr(r / 2 - epsilon / r)) - exp(epsilon + float(log_ndtr(-r / 2 - epsilon / r)))


def epsilon_at(r: float, delta: float) -> float:
    """The least epsilon at this delta, for means that are r standard deviations apart.

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
    """Psi*: how far apart two models may be so that noise sigma makes them (epsilon, delta)-alike.

    ``analytic``: the largest Psi with ``privacy_curve(Psi / sigma, epsilon) <= delta``, exact for
    every epsilon. ``classical``: ``epsilon sigma / sqrt(2 ln(1.25/delta))``, proved for epsilon < 1
    only; it warns above.

    Args:
        sigma: standard deviation of the noise.
        epsilon: above 0.
        delta: between 0 and 1.
        calibration: ``analytic`` or ``classical``.

    >>> round(sensitivity_budget(1.0, 10, 0.01), 3)
    2.856

    Source: E eq. 5.13; Balle & Wang 2018; Dwork & Roth 2014, Theorem A.1.
    """
    check_budget(sigma, epsilon, delta, calibration)
    ratio = _classical(epsilon, delta) if calibration == "classical" else _ratio(epsilon, delta)
    return ratio * sigma


def check_budget(
    sigma: float, epsilon: float, delta: float, calibration: Calibration, stacklevel: int = 3
) -> None:
    """Refuse what is no budget, and warn of one that the classical formula does not reach.

    ``stacklevel`` says whose line the warning names: by default that of the caller's caller.
    """
    known = calibration in ("analytic", "classical")
    require(
        known, f"calibration = {calibration!r}", "known: analytic, classical", where="calibration"
    )
    for name, value in (("sigma", sigma), ("epsilon", epsilon), ("delta", delta)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(number, f"{name} must be a number, not {value!r}", where=name)
    require(sigma >= 0 and isfinite(sigma), f"sigma must be 0 or more, not {sigma}", where="sigma")
    require(
        epsilon > 0 and isfinite(epsilon),
        f"epsilon must be above 0, not {epsilon}",
        where="epsilon",
    )
    require(0 < delta < 1, f"delta must be between 0 and 1, not {delta}", where="delta")
    if calibration == "classical" and epsilon >= 1:
        really = privacy_curve(_classical(epsilon, delta), epsilon)
        warnings.warn(
            f"the classical calibration is proved for epsilon < 1; at epsilon = {epsilon:g} it gives "
            f"delta = {really:.4g}, not {delta:g}: use calibration='analytic'",
            stacklevel=stacklevel,
        )


def _classical(epsilon: float, delta: float) -> float:
    return epsilon / sqrt(2 * log(1.25 / delta))


def _ratio(epsilon: float, delta: float) -> float:
    """The largest r with privacy_curve(r, epsilon) <= delta; the curve rises with r from 0 to 1."""
    high = 1.0
    while privacy_curve(high, epsilon) < delta:
        high *= 2
    return _root(lambda r: privacy_curve(r, epsilon) - delta, high, 1e-13)


def _root(function: Callable[[float], float], high: float, precision: float) -> float:
    """Where a function is zero between 0 and ``high``."""
    from scipy.optimize import brentq

    return float(brentq(function, 0.0, high, xtol=precision, rtol=1e-14))
