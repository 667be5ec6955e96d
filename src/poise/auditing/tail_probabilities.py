"""Tail probabilities of the detectors; the first call imports SciPy."""

from __future__ import annotations

import numpy as np

from poise.core.types import Floats


def at_least(count: Floats, trials: Floats, rate: float) -> Floats:
    """``P(Binomial(trials, rate) >= count)``; 1 where the count is 0.

    >>> at_least(np.array([0.0, 1.0, 2.0]), np.array([2.0, 2.0, 2.0]), 0.1).round(4).tolist()
    [1.0, 0.19, 0.01]
    """
    from scipy.special import bdtrc

    below = np.maximum(count - 1, 0).astype(np.int64)
    return np.where(
        count > 0, bdtrc(below, np.maximum(trials, 1).astype(np.int64), rate), 1.0
    )


def normal(z: Floats) -> Floats:
    """``P(N(0, 1) <= z)``.

    >>> normal(np.array([0.0, -1.96])).round(3).tolist()
    [0.5, 0.025]
    """
    from scipy.special import ndtr

    return np.asarray(ndtr(z))
