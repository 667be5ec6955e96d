"""The objective that a scheme minimises, and its distance from the intended one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.types import Floats, Ints


def normalised(weights: ArrayLike) -> Floats:
    """``q~ = q / sum q``: the objective of a scheme with the mean weights q.

    >>> normalised([1.0, 3.0])
    array([0.25, 0.75])

    Source: [Fraboni 2023, §4.2.5].
    """
    q = np.asarray(weights, dtype=np.float64)
    require(
        bool((q >= 0).all()) and q.sum() > 0,
        "mean weights must be 0 or more, and not all 0",
    )
    return np.asarray(q / q.sum())


def chi_squared(importance: ArrayLike, objective: ArrayLike) -> float:
    """``chi^2 = sum_i (p_i - q~_i)^2 / q~_i``; inf if a client never contributes.

    >>> chi_squared([0.5, 0.5], [0.25, 0.75])
    0.3333333333333333

    Source: [Fraboni 2023, Thm 4.2].
    """
    p = np.asarray(importance, dtype=np.float64)
    q = normalised(objective)
    if bool((p[q == 0] > 0).any()):
        return float("inf")
    counted = q > 0
    return float(((p[counted] - q[counted]) ** 2 / q[counted]).sum())


def local_progress(
    steps: Ints | Floats, momentum: float = 0.0, pull: float = 0.0
) -> Floats:
    """``a_i = |a_i|_1``: the number of plain gradient steps that K_i local steps equal.

    K without momentum; with momentum b the k-th gradient moves the model by
    ``(1 - b^(K-k)) / (1 - b)`` in total; with FedProx's pull ``c = lr * mu`` by
    ``(1 - c)^(K-1-k)``.

    Args:
        steps: K_i.
        momentum: b, heavy-ball coefficient.
        pull: c, learning rate times FedProx's mu.

    >>> local_progress(np.array([1, 3]), momentum=0.5).tolist()
    [1.0, 4.25]

    Source: [Fraboni 2023, App. A.2.1] (the accumulation vectors of [Wang 2020]).
    """
    k = np.asarray(steps, dtype=np.float64)
    require(
        momentum == 0 or pull == 0,
        "local progress has no closed form with both momentum and a pull",
        "set momentum or pull to 0",
    )
    if momentum:
        return np.asarray(
            (k - momentum * (1 - momentum**k) / (1 - momentum)) / (1 - momentum)
        )
    if pull:
        return np.asarray((1 - (1 - pull) ** k) / pull)
    return k


def with_local_work(weights: ArrayLike, progress: ArrayLike) -> Floats:
    """``w_i = q_i a_i / sum_j q_j a_j``: more local work counts more.

    >>> with_local_work([0.5, 0.5], [1.0, 3.0])
    array([0.25, 0.75])

    Source: [Fraboni 2023, Thm A.1], [Wang 2020].
    """
    return normalised(
        np.asarray(weights, dtype=np.float64) * np.asarray(progress, dtype=np.float64)
    )


def total_variation(importance: ArrayLike, objective: ArrayLike) -> float:
    """Share of the objective on the wrong clients, ``1/2 sum |p_i - q~_i|``.

    >>> total_variation([0.5, 0.5], [0.25, 0.75])
    0.25
    """
    return float(
        np.abs(np.asarray(importance, dtype=np.float64) - normalised(objective)).sum()
        / 2
    )
