"""`synthetic`: logistic data with adjustable differences between clients."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from poise.core.errors import require
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.types import Floats, Ints
from poise.data.sources.source import Source
from poise.data.splits import held_out, share_of


@lru_cache(maxsize=4)
def synthetic(
    clients: int = 100,
    seed: int = 0,
    alpha: float = 1.0,
    beta: float = 1.0,
    features: int = 60,
    classes: int = 10,
    size: int | None = None,
    test_share: float = 0.2,
) -> Source:
    """Synthetic(α, β): data of clients with different linear models and feature means.

    For client i: u_i ~ N(0, α), b_i ~ N(0, β); model W_i, c_i with entries N(u_i, 1);
    mean v_i with entries N(b_i, 1); x ~ N(v_i, diag(j^-1.2)), y = argmax(W_i x + c_i).
    N takes variances, not deviations. A larger α separates the models, a larger β the
    features. The natural owner of a sample is its client i.

    Args:
        clients: number of clients, from the federation.
        seed: from the federation; the samples of client i depend on (seed, i) only.
        alpha: variance of the models' means over clients, >= 0.
        beta: variance of the feature means over clients, >= 0.
        features: dimension of x.
        classes: number of classes.
        size: samples per client; None draws 50 + LogNormal(4, 2).
        test_share: the held-out share of each client's samples.

    >>> source = synthetic(clients=3, size=10)
    >>> source.train.shape, np.bincount(source.keys).tolist()
    ((60,), [8, 8, 8])

    Source: [Li 2020, §5.1 and App. C.1].
    """
    require(
        clients >= 1,
        f"synthetic: clients = {clients} must be at least 1",
        where="clients",
    )
    require(
        alpha >= 0 and beta >= 0,
        f"synthetic: alpha = {alpha} and beta = {beta} must not be negative",
        where="alpha",
    )
    require(
        features >= 1 and classes >= 2,
        "synthetic: needs features >= 1 and classes >= 2",
        where="features",
    )
    require(
        size is None or size >= 1,
        f"synthetic: size = {size} must be at least 1",
        where="size",
    )
    data = [
        _client(
            seed,
            i,
            alpha=alpha,
            beta=beta,
            features=features,
            classes=classes,
            size=size,
        )
        for i in range(clients)
    ]
    keys = np.repeat(
        np.arange(clients, dtype=np.int64), [len(labels) for _, labels in data]
    )
    x = np.concatenate([rows for rows, _ in data])
    y = np.concatenate([labels for _, labels in data])
    test = held_out(
        keys, share_of(test_share, "test_share"), generator(seed, "synthetic/test")
    )

    def pool(chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Samples:
        features = torch.from_numpy(x[chosen]).float()
        return Samples(features, torch.from_numpy(y[chosen]), classes=classes)

    source = Source(
        "synthetic",
        pool(~test),
        keys=keys[~test],
        key_names=tuple(f"synthetic/{i}" for i in range(clients)),
        notes=f"Synthetic({alpha:g}, {beta:g})",
    )
    if test.any():
        return replace(source, test=pool(test), test_keys=keys[test])
    return source


def _client(
    seed: int,
    i: int,
    alpha: float,
    beta: float,
    features: int,
    classes: int,
    size: int | None,
) -> tuple[Floats, Ints]:
    rng = generator(seed, "synthetic", i)
    model_mean = rng.normal(0, alpha**0.5)
    feature_mean = rng.normal(0, beta**0.5)
    weights = rng.normal(model_mean, 1, (features, classes))
    bias = rng.normal(model_mean, 1, classes)
    centre = rng.normal(feature_mean, 1, features)
    if size is None:
        size = 50 + int(rng.lognormal(4, 2))
    x = rng.normal(centre, np.arange(1, features + 1) ** -0.6, (size, features))
    return x, np.argmax(x @ weights + bias, axis=1).astype(np.int64)
