"""Channels by hand, over several rounds, with ties, and byte for byte."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poise.channels import Plain, TopK
from poise.channels.top_k import largest
from poise.core.errors import InvalidOption
from poise.core.payloads import payload_bytes
from poise.core.traits import ChannelTraits, traits_of

BOTH = [torch.float32, torch.float64]


def randn(
    rows: int, size: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.randn(
        rows, size, generator=torch.Generator().manual_seed(seed), dtype=dtype
    )


def test_three_rounds_with_error_feedback_by_hand() -> None:
    channel = TopK(0.2)  # one of five
    kept = {"residual": torch.zeros(2, 5)}
    update = torch.tensor([[1.0, -5.0, 3.0, 0.0, 2.0], [0.0, 0.0, 0.5, 0.5, 0.25]])
    wanted = [
        # what arrives, and what is left of update plus residual
        ([0, -5, 0, 0, 0], [1, 0, 3, 0, 2], [0, 0, 0.5, 0, 0], [0, 0, 0, 0.5, 0.25]),
        ([0, 0, 6, 0, 0], [2, -5, 0, 0, 4], [0, 0, 0, 1, 0], [0, 0, 0.5, 0, 0.5]),
        ([0, -10, 0, 0, 0], [3, 0, 3, 0, 6], [0, 0, 1, 0, 0], [0, 0, 0, 0.5, 0.75]),
    ]
    for first, first_left, second, second_left in wanted:
        encoded = channel.encode(update, kept)
        assert channel.decode(encoded.payload, 5).tolist() == [first, second]
        assert encoded.kept["residual"].tolist() == [first_left, second_left]
        kept = encoded.kept


def test_without_error_feedback_nothing_is_kept() -> None:
    channel = TopK(0.4, error_feedback=False)
    update = torch.tensor([[1.0, -5.0, 3.0, 0.0, 2.0]])
    for _ in range(2):
        encoded = channel.encode(update, {})
        assert channel.decode(encoded.payload, 5).tolist() == [[0, -5, 3, 0, 0]]
        assert encoded.kept == {}
    assert channel.keeps == ()


SIX = st.lists(st.integers(-3, 3).map(float), min_size=6, max_size=6)


@given(rows=st.lists(SIX, min_size=1, max_size=4), count=st.integers(1, 6))
def test_the_largest_entries_and_the_first_of_equal_ones(rows: Any, count: int) -> None:
    wanted = [
        sorted(sorted(range(6), key=lambda j: (-abs(row[j]), j))[:count])
        for row in rows
    ]
    for dtype in (*BOTH, torch.float16):
        assert largest(torch.tensor(rows, dtype=dtype), count).tolist() == wanted


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.999])
def test_the_same_entries_as_torch(dtype: torch.dtype, share: float) -> None:
    deltas = randn(5, 1234, dtype=dtype)
    count = ceil(share * 1234)
    wanted = torch.zeros_like(deltas)
    index = deltas.abs().topk(count, dim=1).indices
    wanted.scatter_(1, index, deltas.gather(1, index))
    channel = TopK(share, error_feedback=False)
    assert torch.equal(channel.decode(channel.encode(deltas, {}).payload, 1234), wanted)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 0.999])
def test_no_bit_is_lost_between_what_is_sent_and_kept(
    dtype: torch.dtype, share: float
) -> None:
    channel = TopK(share)
    residual = torch.zeros(3, 50, dtype=dtype)
    for seed in range(4):
        deltas = randn(3, 50, seed=seed, dtype=dtype)
        encoded = channel.encode(deltas, {"residual": residual})
        arrived = channel.decode(encoded.payload, 50)
        assert torch.equal(arrived + encoded.kept["residual"], deltas + residual)
        assert not (
            arrived * encoded.kept["residual"]
        ).any()  # an entry is sent or kept
        residual = encoded.kept["residual"]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("feedback", [True, False])
def test_all_entries_arrive_with_the_bits_of_plain(
    dtype: torch.dtype, feedback: bool
) -> None:
    channel = TopK(1.0, error_feedback=feedback)
    deltas = randn(4, 30, dtype=dtype)
    deltas[0, 0] = -0.0
    encoded = channel.encode(deltas, {})
    plain = Plain().decode(Plain().encode(deltas, {}).payload, 30)
    assert (
        channel.decode(encoded.payload, 30).numpy().tobytes() == plain.numpy().tobytes()
    )
    assert channel.keeps == ()
    assert payload_bytes(encoded.payload) == 30 * deltas.element_size()


def test_a_share_of_all_entries_of_a_small_model_leaves_no_residual() -> None:
    deltas = randn(3, 4)
    encoded = TopK(0.9).encode(deltas, {"residual": torch.zeros(3, 4)})
    assert torch.equal(TopK(0.9).decode(encoded.payload, 4), deltas)
    assert not encoded.kept["residual"].any()


@pytest.mark.parametrize(
    ("share", "dtype", "wanted"),
    [
        (0.001, torch.float32, 1 * 8),
        (0.07, torch.float32, 7 * 8),
        (0.49, torch.float32, 49 * 8),
        (
            0.5,
            torch.float32,
            100 * 4,
        ),  # an index and a value need as much as two values
        (0.9, torch.float32, 100 * 4),
        (0.1, torch.float64, 10 * 12),
        (0.66, torch.float64, 66 * 12),
        (0.67, torch.float64, 100 * 8),
    ],
)
def test_bytes_of_an_update(share: float, dtype: torch.dtype, wanted: int) -> None:
    deltas = randn(3, 100, dtype=dtype)
    encoded = TopK(share).encode(deltas, {"residual": torch.zeros_like(deltas)})
    assert payload_bytes(encoded.payload) == wanted
    assert wanted <= payload_bytes(Plain().encode(deltas, {}).payload)
    kept = int((TopK(share).decode(encoded.payload, 100) != 0).sum(dim=1).max())
    assert kept == TopK(share).count(100)


def test_numbers_that_are_not_finite_are_sent() -> None:
    deltas = torch.tensor([[1.0, float("nan"), float("inf"), 5.0]])
    channel = TopK(0.5, error_feedback=False)
    arrived = channel.decode(channel.encode(deltas, {}).payload, 4)
    assert np.isnan(arrived[0, 1].item())
    assert arrived[0, [0, 2, 3]].tolist() == [0.0, float("inf"), 0.0]


def test_plain_copies_nothing() -> None:
    deltas = randn(2, 3)
    payload = Plain().encode(deltas, {}).payload
    assert Plain().decode(payload, 3) is deltas
    assert payload_bytes(payload) == 12


def test_what_is_declared() -> None:
    promised = [
        traits_of(c, ChannelTraits).identity for c in (Plain(), TopK(0.1), TopK(1.0))
    ]
    assert promised == [True, False, False]
    assert TopK(0.1).keeps == ("residual",)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InvalidOption, match=r"TopK: share must be in \(0, 1\]"):
        TopK(share)
