"""Samples: compact storage, and what a model sees of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.core.errors import InvalidOption
from poise.core.samples import Samples
from poise.testing import SampleFederation

ROWS = torch.tensor([2, 0])


def test_bytes_become_scaled_floats() -> None:
    raw = torch.arange(12, dtype=torch.uint8).view(3, 4)
    plain = Samples(raw, torch.zeros(3))
    assert plain.plain
    assert plain.features(ROWS).dtype == torch.float32
    assert torch.equal(plain.features(ROWS), raw[ROWS].float())
    scaled = Samples(raw, torch.zeros(3), scale=1 / 255, shift=-0.5)
    assert torch.allclose(scaled.features(ROWS), raw[ROWS].float() / 255 - 0.5)
    per_column = Samples(
        raw,
        torch.zeros(3),
        scale=torch.tensor([1.0, 2.0, 3.0, 4.0]),
        shift=torch.ones(4),
    )
    assert torch.allclose(
        per_column.features(ROWS), raw[ROWS] * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1
    )
    assert torch.equal(raw, torch.arange(12, dtype=torch.uint8).view(3, 4)), (
        "the storage is left alone"
    )


def test_floats_are_not_modified_by_scaling() -> None:
    raw = torch.ones(2, 2)
    Samples(raw, torch.zeros(2), scale=3.0, shift=1.0).features(
        torch.tensor([0, 1])
    ).mul_(5)
    Samples(raw, torch.zeros(2)).features(torch.tensor([0, 1])).mul_(5)
    assert torch.equal(raw, torch.ones(2, 2))


def test_tokens_are_whole_numbers() -> None:
    pool = Samples(
        torch.arange(6, dtype=torch.uint8).view(3, 2),
        torch.zeros(3),
        tokens=True,
        vocabulary=6,
    )
    assert pool.features(ROWS).dtype == torch.int64


def test_a_missing_label_is_refused() -> None:
    with pytest.raises(InvalidOption, match="3 samples but 2 labels"):
        Samples(torch.zeros(3, 1), torch.zeros(2))


def test_shards_hold_each_clients_own_samples() -> None:
    fed = SampleFederation.random([3, 1, 4], shape=(2,), classes=3)
    shard = fed.shards(np.array([2, 0]))
    assert shard.sizes.tolist() == [4, 3]
    assert len(shard) == 2
    x, y = shard.arrays(1)
    assert np.array_equal(x, fed.samples.raw[:3].numpy())
    assert np.array_equal(y, fed.samples.labels[:3].numpy())
    test = fed.test_shard
    assert test is not None
    assert test.rows.tolist() == list(range(8, 24))
    other = fed.samples.with_labels(torch.zeros(24))
    assert other.raw is fed.samples.raw
    assert other.classes == 3
