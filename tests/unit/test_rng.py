"""Addressed randomness: uniform, independent of order, distinct by purpose."""

from __future__ import annotations

from itertools import permutations as all_orders

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from poise.core.rng import (
    address,
    generator,
    keys,
    permutations,
    torch_generator,
    words,
)

LEVEL = 1e-6  # probability that a correct implementation fails a chi-square test


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("streams", ["clients", "rounds", "seeds"])
def test_permutations_are_uniform(size: int, streams: str) -> None:
    count = 24_000 if streams != "seeds" else 6_000
    numbers = np.arange(count)
    if streams == "clients":
        key = keys(0, "work", 3, numbers, 0)
    elif streams == "rounds":
        key = keys(0, "work", numbers, 5, 0)
    else:
        key = np.concatenate([keys(s, "work", 0, 1, 0) for s in range(count)])
    drawn = permutations(key, size)
    cells = {order: k for k, order in enumerate(all_orders(range(size)))}
    seen = np.bincount(
        [cells[tuple(row)] for row in drawn.tolist()], minlength=len(cells)
    )
    expected = count / len(cells)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    assert statistic < chi2.ppf(1 - LEVEL, len(cells) - 1), seen


def test_words_of_neighbouring_streams_are_uncorrelated() -> None:
    bits = (
        np.unpackbits(
            words(keys(0, "work", 0, np.arange(4000), 0), 2).view(np.uint8), axis=1
        ).astype(float)
        - 0.5
    )
    correlation = (bits.T @ bits) / len(bits) * 4
    off = correlation - np.diag(np.diag(correlation))
    assert np.abs(off).max() < 6 / np.sqrt(len(bits))  # 128*127/2 pairs at six sigma
    assert np.abs(bits.mean(axis=0)).max() < 6 * 0.5 / np.sqrt(len(bits))


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 60))
def test_asking_for_less_gives_a_prefix(seed: int, size: int, need: int) -> None:
    key = keys(seed, "batches", np.arange(4))
    whole = permutations(key, size)
    assert sorted(whole[0].tolist()) == list(range(size))
    assert np.array_equal(permutations(key, size, need), whole[:, : min(need, size)])


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=8, unique=True),
    st.randoms(use_true_random=False),
)
def test_a_key_does_not_depend_on_the_cohort(
    clients: list[int], random: object
) -> None:
    together = keys(3, "work", 7, np.array(clients), 0)
    alone = np.concatenate([keys(3, "work", 7, c, 0) for c in clients])
    assert np.array_equal(together, alone)
    assert len(np.unique(together)) == len(clients)


def test_addresses_differ_by_seed_purpose_and_every_number() -> None:
    names = [
        (0, "a", 1, 2),
        (1, "a", 1, 2),
        (0, "b", 1, 2),
        (0, "a", 2, 1),
        (0, "a", 1),
        (0, "a", 1, 2, 0),
        (0, "a", 12),
    ]
    assert len({address(*n) for n in names}) == len(names)
    assert len({int(keys(*n)[0]) for n in names}) == len(names)
    draws = [generator(*n).integers(2**62) for n in names] + [
        int(torch_generator(*n).initial_seed()) for n in names
    ]
    assert len(set(draws)) == len(draws)


@settings(max_examples=30)
@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(0, 20))
def test_words_are_addressed_by_position(seed: int, start: int, count: int) -> None:
    stream = keys(seed, "x", 0)
    assert np.array_equal(
        words(stream, count, start), words(stream, start + count)[:, start:]
    )


def test_keys_of_versions_clients_and_occurrences_do_not_collide() -> None:
    version, client, occurrence = (
        a.ravel() for a in np.meshgrid(np.arange(60), np.arange(60), np.arange(4))
    )
    assert len(np.unique(keys(0, "work", version, client, occurrence))) == len(version)
