"""Which objective a scheme really minimises, and how far that is from the one asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.types import Floats, Ints


def normalised(weights: ArrayLike) -> Floats:
    """``q~ = q / sum q``: the objective of a scheme whose clients have the mean weights q (E
    section 4.2.5).

    >>> normalised([1.0, 3.0])
    array([0.25, 0.75])
    """
    q = np.asarray(weights, dtype=np.float64)
    require(bool((q >= 0).all()) and q.sum() > 0, "mean weights must be 0 or more, and not all 0")
    return np.asarray(q / q.sum())


def chi_squared(importance: ArrayLike, objective: ArrayLike) -> float:
    """``chi^2 = sum_i (p_i - q~_i)^2 / q~_i``; inf where a client that counts is never heard.

    >>> chi_squared([0.5, 0.5], [0.25, 0.75])
    0.3333333333333333

    Source: E Theorem 4.2.
    """
    p, q = np.asarray(importance, dtype=np.float64), normalised(objective)
    if bool((p[q == 0] > 0).any()):
        return float("inf")
    heard = q > 0
    return float(((p[heard] - q[heard]) ** 2 / q[heard]).sum())


def local_progress(steps: Ints | Floats, momentum: float = 0.0, pull: float = 0.0) -> Floats:
    """``a_i = |a_i|_1``: how many plain gradient steps K_i local steps are worth.

    K without momentum; with momentum b the k-th gradient moves the model by ``(1 - b^(K-k)) / (1 -
    b)`` in all; with FedProx's pull ``c = lr * mu`` by ``(1 - c)^(K-1-k)``.

    Args:
        steps: K_i.
        momentum: b, heavy-ball coefficient.
        pull: c, learning rate times FedProx's mu.

    >>> local_progress(np.array([1, 3]), momentum=0.5).tolist()
    [1.0, 4.25]

    Source: E appendix A.2.1 (the accumulation vectors of J. Wang et al. 2020).
    """
    k = np.asarray(steps, dtype=np.float64)
    require(
        momentum == 0 or pull == 0,
        "local progress is known with momentum or with a pull, not with both",
    )
    if momentum:
        return np.asarray((k - momentum * (1 - momentum**k) / (1 - momentum)) / (1 - momentum))
    return np.asarray((1 - (1 - pull) ** k) / pull) if pull else k


def with_local_work(weights: ArrayLike, progress: ArrayLike) -> Floats:
    """``w_i = q_i a_i / sum_j q_j a_j``: whoever works more counts more (objective inconsistency).

    >>> with_local_work([0.5, 0.5], [1.0, 3.0])
    array([0.25, 0.75])

    Source: E Theorem A.1 (J. Wang et al. 2020).
    """
    return normalised(
        np.asarray(weights, dtype=np.float64) * np.asarray(progress, dtype=np.float64)
    )


def total_variation(importance: ArrayLike, objective: ArrayLike) -> float:
    """Share of the objective that is not where it was asked to be, ``1/2 sum |p_i - q~_i|``.

    >>> total_variation([0.5, 0.5], [0.25, 0.75])
    0.25
    """
    return float(np.abs(np.asarray(importance, dtype=np.float64) - normalised(objective)).sum() / 2)
