"""L and mu of linear models: bounds that hold for every client and every batch.

With ``X`` the n samples of a client and a column of ones for the bias, the Hessian of
softmax regression is at most ``1/2 X'X/n``, since ``diag(p) - p p' <= 1/2``. The Hessian
of the squared error of C outputs is ``2/C X'X/n``. The largest eigenvalue of a batch is
at most the largest ``|x|^2`` of its samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from poise.core.curvature import ConvexKind, Curvature
from poise.core.samples import Shards

BLOCK = 4096
"""Samples that are read at a time."""


def linear_curvature(
    shards: Shards, kind: ConvexKind, outputs: int, batch_size: int | None
) -> Curvature:
    """Return the curvature of a linear model with bias on the samples of these clients."""
    scale = hessian_scale(kind, outputs)
    largest = 0.0
    smallest = torch.inf
    whole = True
    for first, last in pairwise(shards.offsets.tolist()):
        if first == last:
            continue
        if batch_size is None or batch_size >= last - first:
            low, high = gram_eigenvalues(_samples(shards, first, last))
        else:
            low = 0.0
            high = _longest(shards, first, last)
            whole = False
        largest = max(largest, high)
        smallest = min(smallest, low)
    mu = 0.0
    if kind == "least-squares":
        mu = scale * max(smallest, 0.0)
    return Curvature(
        kind, scale * largest, convexity=mu, exact=whole and kind == "least-squares"
    )


def hessian_scale(kind: ConvexKind | None, outputs: int) -> float:
    """Return c with ``Hessian <= c X'X/n`` for a linear model.

    >>> hessian_scale("logistic", 10), hessian_scale("least-squares", 1)
    (0.5, 2.0)
    """
    if kind == "least-squares":
        return 2 / outputs
    return 0.5


def gram_eigenvalues(x: torch.Tensor) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue of ``X'X/n``, X with a bias column.

    >>> gram_eigenvalues(torch.tensor([[1.0], [-1.0]]))
    (1.0, 1.0)
    """
    rows = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    n, columns = rows.shape
    if n < columns:
        return 0.0, float(torch.linalg.eigvalsh(rows @ rows.T)[-1]) / n
    eigenvalues = torch.linalg.eigvalsh(rows.T @ rows) / n
    return float(eigenvalues[0]), float(eigenvalues[-1])


def _longest(shards: Shards, first: int, last: int) -> float:
    """Return the largest ``|x|^2 + 1`` of the samples at these positions."""
    return max(
        float(x.square().sum(dim=1).max()) + 1 for x in _blocks(shards, first, last)
    )


def _samples(shards: Shards, first: int, last: int) -> torch.Tensor:
    """Return the samples at these positions, one flat row each, in double precision."""
    return torch.cat(list(_blocks(shards, first, last)))


def _blocks(shards: Shards, first: int, last: int) -> Iterator[torch.Tensor]:
    """Yield the samples at these positions in blocks."""
    for start in range(first, last, BLOCK):
        x, _ = shards.take(torch.arange(start, min(start + BLOCK, last)))
        assert isinstance(x, torch.Tensor)
        yield x.reshape(len(x), -1).double()
