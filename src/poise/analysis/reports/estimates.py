"""Confidence intervals over seeds: of a mean, and of the difference of two means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats

LEVEL = 0.95
"""The confidence level of every interval in a report."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % confidence interval.

    Args:
        mean: mean of the values.
        low: lower end of the interval; None without an interval.
        high: upper end of the interval; None without an interval.
        n: number of values.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval: the number after ±."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean of one group minus the mean of another.

    Args:
        method: ``"paired"`` (both groups have the same seeds) or ``"welch"`` (different
            seeds).
    """

    method: Literal["paired", "welch"] = "welch"

    @property
    def significant(self) -> bool | None:
        """Whether the interval excludes 0; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 0 <= self.high


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % confidence interval, mean ± t(0.975, n-1) · s / √n (Student).

    A single value, or values that are not all finite, have no interval.

    >>> e = estimate([1.0, 2.0, 3.0])
    >>> e.mean, round(e.low, 3), round(e.high, 3)
    (2.0, -0.484, 4.484)
    >>> estimate([1.0]).low is None
    True
    """
    mean, error = _mean_and_error(values)
    low, high = _interval(mean, error, len(values) - 1)
    return Estimate(mean, low, high, len(values))


@dataclass(frozen=True)
class Estimates:
    """The `estimate` at each of K points; nan where there is no interval.

    Args:
        mean: (K,)
        low: (K,)
        high: (K,)
        n: (K,) number of values.
    """

    mean: Floats
    low: Floats
    high: Floats
    n: Floats


def estimates(values: Floats, known: NDArray[np.bool_]) -> Estimates:
    """The `estimate` of each column, over the rows that are known there.

    >>> known = np.array([[True, True], [True, False], [True, False]])
    >>> e = estimates(np.array([[1.0, 1.0], [2.0, 9.0], [3.0, 9.0]]), known)
    >>> e.mean.tolist(), e.low.round(3).tolist(), e.n.tolist()
    ([2.0, 1.0], [-0.484, nan], [3.0, 1.0])
    """
    from scipy.special import stdtrit

    n = known.sum(axis=0).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=0) / n
        squares = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
        error = np.sqrt(squares / (n - 1) / n)
        reach = stdtrit(np.maximum(n - 1, 1.0), (1 + LEVEL) / 2) * error
    sure = np.isfinite(mean) & np.isfinite(error) & (n > 1)
    return Estimates(
        mean,
        low=np.where(sure, mean - reach, np.nan),
        high=np.where(sure, mean + reach, np.nan),
        n=n,
    )


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Mean of ``values[k] - baseline[k]``, with Student's interval over the pairs.

    >>> d = paired_difference([2.0, 3.1, 4.0], [1.0, 2.0, 3.0])
    >>> round(d.mean, 3), d.significant, d.method
    (1.033, True, 'paired')
    """
    e = estimate([a - b for a, b in zip(values, baseline, strict=True)])
    return Difference(e.mean, e.low, e.high, e.n, "paired")


def welch_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Difference of two means, with Welch's interval.

    se² = a + b and ν = (a + b)² / (a²/(n-1) + b²/(m-1)), where a and b are the squared
    standard errors of the two means. ``n`` of the result is the smaller number of
    values.

    >>> welch_difference([1.0, 2.0, 3.0], [1.1, 2.1, 3.1, 2.0]).significant
    False
    """
    (mean, error) = _mean_and_error(values)
    (other, other_error) = _mean_and_error(baseline)
    n = len(values)
    m = len(baseline)
    a = error**2
    b = other_error**2
    freedom = float(min(n, m) - 1)
    if min(n, m) > 1 and a + b > 0:
        freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    low, high = _interval(mean - other, math.sqrt(a + b), freedom)
    return Difference(mean - other, low, high, min(n, m), "welch")


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error s / √n; the error of a single value is nan."""
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return math.nan, math.nan
    with np.errstate(invalid="ignore", over="ignore"):
        if len(array) > 1:
            error = float(np.std(array, ddof=1) / math.sqrt(len(array)))
        else:
            error = math.nan
        return float(np.mean(array)), error


def _interval(
    mean: float, error: float, freedom: float
) -> tuple[float | None, float | None]:
    if not (math.isfinite(mean) and math.isfinite(error) and freedom > 0):
        return None, None
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return mean - reach, mean + reach
