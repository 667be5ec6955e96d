"""The facts of the real data sets; each test is skipped, by name, where its set is absent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.core.errors import DataError, InvalidOption
from poise.data import federation
from poise.data.sources.shakespeare import VOCABULARY

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mnist(need):
    need("mnist")
    fed = federation("mnist", clients=100)
    assert fed.label_counts().sum(axis=0).tolist() == MNIST_TRAIN
    assert np.bincount(fed.test_shard.labels).tolist() == MNIST_TEST
    assert fed.feature_shape == (1, 28, 28)
    assert fed.source.train.raw.dtype == torch.uint8
    standard = federation("mnist", clients=100, normalize="standard").source.train
    assert 1 / (255 * standard.scale) == pytest.approx(0.3081, abs=5e-5)
    assert -standard.shift / (255 * standard.scale) == pytest.approx(0.1307, abs=5e-5)


def test_mnist_by_writer_and_series(need):
    need("mnist")
    fed = federation("mnist", "by-key", by="writer")
    assert fed.clients == 539
    assert len(fed.test_shard.rows) == 10_000
    whole = federation("mnist", "by-key", by="writer", client_test_share=0.0)
    assert (whole.sizes.min(), np.median(whole.sizes), whole.sizes.max()) == (
        19,
        116,
        131,
    )
    own = np.array([len(fed.client_test(i)[1]) for i in range(0, 539, 50)])
    assert np.abs(own - 0.2 * whole.sizes[::50]).max() <= 0.5
    series = federation("mnist", "by-key", by="series", client_test_share=0.0)
    assert series.names == ("series/0", "series/4")
    assert series.sizes.tolist() == [30_950, 29_050]
    with pytest.raises(InvalidOption, match="did you mean 'writer'"):
        federation("mnist", "by-key", by="writers")


def test_fashion_mnist(need):
    need("fashion-mnist")
    fed = federation("fashion-mnist", clients=10)
    assert fed.label_counts().sum(axis=0).tolist() == [6000] * 10
    assert np.bincount(fed.test_shard.labels).tolist() == [1000] * 10


def test_cifar10(need):
    need("cifar10")
    try:
        fed = federation("cifar10", clients=10, version="subset")
    except DataError:
        pytest.skip("the subset of 'cifar10' is not in the data folder")
    assert fed.label_counts().sum(axis=0).tolist() == [2000] * 10
    assert "subset" in fed.source.notes
    mean = fed.source.train.raw[::10].float().mean(dim=(0, 2, 3)) / 255
    assert np.allclose(
        mean, [0.4928, 0.4828, 0.4471], atol=0.01
    )  # the layout is red, green, blue
    small = federation("cifar10", clients=10, version="subset", size=16)
    assert small.feature_shape == (3, 16, 16)
    assert "16x16" in small.source.notes
    blocks = (
        fed.source.train.raw[:5].float().reshape(5, 3, 16, 2, 16, 2).mean(dim=(3, 5))
    )
    assert (small.source.train.raw[:5] - blocks).abs().max() <= 0.5
    with pytest.raises(InvalidOption, match="size = 20"):
        federation("cifar10", clients=10, version="subset", size=20)


def test_usps(need):
    need("usps")
    fed = federation("usps", clients=10)
    assert fed.label_counts().sum(axis=0).tolist() == [
        1194,
        1005,
        731,
        658,
        652,
        556,
        664,
        645,
        542,
        644,
    ]
    assert np.bincount(fed.test[1]).tolist() == [
        359,
        264,
        198,
        166,
        200,
        160,
        170,
        147,
        166,
        177,
    ]
    assert fed.test[0].min() == 0
    assert fed.test[0].max() == pytest.approx(1)


def test_heart_disease(need):
    need("heart-disease")
    whole = federation("heart-disease", "by-key", test_share=0.0)
    assert whole.names == ("cleveland", "hungarian", "switzerland", "va")
    assert whole.sizes.tolist() == [303, 261, 46, 130]
    assert whole.feature_shape == (10,)
    fed = federation("heart-disease", "by-key")
    own = [len(fed.client_test(i)[1]) for i in range(4)]
    assert (fed.sizes + own).tolist() == [303, 261, 46, 130]
    assert sum(own) == len(fed.test[1])
    x = np.concatenate([fed.client(i)[0] for i in range(4)])
    assert np.abs(x.mean(axis=0)).max() < 1e-5
    assert np.abs(x.std(axis=0) - 1).max() < 1e-5


def test_shakespeare(need):
    need("shakespeare")
    fed = federation("shakespeare", "by-key", stride=10)
    assert fed.clients == 637
    assert fed.classes == 100
    assert fed.feature_shape == (80,)
    hamlet = fed.names.index("hamlet/HAMLET")
    x, y = fed.client(hamlet)
    text = "".join(VOCABULARY[t] for t in x[1]) + VOCABULARY[y[1]]
    assert VOCABULARY[x[0][10]] == text[0]
    assert len(text) == 81
    held_x, _ = fed.client_test(hamlet)
    assert len(x) + len(held_x) == pytest.approx(61_458 / 10, abs=20)
    few = federation(
        "shakespeare",
        "by-key",
        clients=5,
        stride=80,
        min_characters=10_000,
        test_samples=64,
    )
    assert few.clients == 5
    assert len(few.test[1]) == 64
