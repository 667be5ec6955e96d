"""Minimisation of convex problems by Barzilai-Borwein steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

from poise.core.vectors import Stack

Gradient = Callable[[Stack], Stack]


def minimise(
    gradient: Gradient,
    start: Stack,
    step: torch.Tensor,
    passes: int,
    exact: float = 1e-12,
) -> Stack:
    """Minimise every row by its own Barzilai-Borwein gradient steps [Barzilai 1988].

    Returns the rows with the smallest gradients. With strong convexity mu, a row is
    within ``|g|^2/(2 mu)`` of the minimum.

    Args:
        gradient: gradient of stacked rows, (m, d) -> (m, d).
        start: initial rows, (m, d).
        step: first step length of each row, 1/L, (m, 1).
        passes: number of gradient evaluations.
        exact: stop when no gradient is longer than this share of the first.
    """
    rows = start.clone()
    slope = gradient(start)
    first = slope.norm(dim=1).max()
    best = rows.clone()
    least = slope.norm(dim=1)
    length = step.clone()
    for k in range(passes - 1):
        moved = -length * slope
        after = rows + moved
        turned = gradient(after) - slope
        rows = after
        slope = slope + turned
        norms = slope.norm(dim=1)
        better = norms < least
        best[better], least[better] = rows[better], norms[better]
        if float(least.max()) <= exact * float(first):
            break
        along = (moved * turned).sum(dim=1, keepdim=True)
        long = moved.square().sum(dim=1, keepdim=True) / along
        short = along / turned.square().sum(dim=1, keepdim=True)
        wanted = long if k % 2 else short
        good = torch.isfinite(wanted) & (along > 0)
        length = torch.where(good, wanted.clamp(min=step / 10, max=step * 1e6), step)
        lost = norms > 10 * first  # diverged: return to the best row with a small step
        if bool(lost.any()):
            rows[lost], length[lost] = best[lost], step[lost]
            slope = gradient(rows)
    return best
