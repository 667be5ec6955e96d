"""Partition rules: nothing lost, sizes exact, limits of the laws, refusals."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.core.errors import InvalidOption
from poise.data.partitions import PARTITIONS, by_key
from poise.data.partitions.dirichlet import dirichlet, proportions
from poise.data.partitions.dirichlet_by_class import dirichlet_by_class
from poise.data.partitions.iid import iid
from poise.data.partitions.imbalanced import imbalanced
from poise.data.partitions.one_class import one_class
from poise.data.partitions.shards import shards

COMPLETE = ["iid", "shards", "dirichlet", "dirichlet-by-class"]


def counts(labels, parts, classes):
    return np.array([np.bincount(labels[part], minlength=classes) for part in parts])


@st.composite
def problems(draw):
    classes = draw(st.integers(2, 6))
    labels = np.array(
        draw(st.lists(st.integers(0, classes - 1), min_size=30, max_size=200))
    )
    clients = draw(st.integers(1, 15))
    return labels, clients, draw(st.integers(0, 2**40))


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@settings(max_examples=40)
@given(problem=problems())
def test_nothing_is_lost_or_dealt_twice(name, problem):
    labels, clients, seed = problem
    try:
        parts = PARTITIONS[name](labels, clients, seed)
    except InvalidOption:
        assert name in ("one-class", "imbalanced")  # too few samples of some class
        return
    dealt = np.concatenate(parts)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert all(part.dtype == np.int64 for part in parts)
    assert len(np.unique(dealt)) == len(dealt)
    assert dealt.min() >= 0
    assert dealt.max() < len(labels)
    if name in COMPLETE:
        assert len(dealt) == len(labels)
    again = PARTITIONS[name](labels, clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_another_seed_is_another_partition(name):
    labels = np.arange(600) % 5
    one, two = PARTITIONS[name](labels, 10, 0), PARTITIONS[name](labels, 10, 1)
    assert any(
        not np.array_equal(np.sort(a), np.sort(b))
        for a, b in zip(one, two, strict=True)
    )


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=10),
    alpha=st.sampled_from([1e-4, 0.1, 1.0, 1e6]),
    seed=st.integers(0, 1000),
)
def test_dirichlet_meets_sizes_exactly(sizes, alpha, seed):
    labels = np.arange(300) % 7
    parts = dirichlet(labels, len(sizes), seed, alpha=alpha, sizes=sizes)
    assert [len(part) for part in parts] == sizes
    dealt = np.concatenate(parts)
    assert len(np.unique(dealt)) == len(dealt)


def test_sizes_of_the_paper():
    labels = np.arange(60_000) % 10
    pairs = [(10, 100), (30, 250), (30, 500), (20, 750), (10, 1000)]
    parts = dirichlet(labels, 100, alpha=0.1, sizes=pairs)
    assert np.bincount([len(part) for part in parts])[
        [100, 250, 500, 750, 1000]
    ].tolist() == [
        10,
        30,
        30,
        20,
        10,
    ]


def test_dirichlet_small_alpha_is_one_class():
    labels = np.arange(10_000) % 10
    table = counts(labels, dirichlet(labels, 40, alpha=1e-4, sizes=100), 10)
    assert (
        table.max(axis=1) == 100
    ).mean() >= 0.95  # P(largest share < 0.995) is about 1e-2 at this alpha


def test_dirichlet_large_alpha_is_uniform():
    labels = np.arange(10_000) % 10
    table = counts(labels, dirichlet(labels, 40, alpha=1e8, sizes=200), 10)
    assert np.abs(table - 20).max() <= 1


def test_proportions_follow_their_law():
    """Mean 1/C and variance (C - 1)/(C² (Cα + 1)), within 5 standard errors of 20,000 draws."""
    classes, draws = 4, 20_000
    for alpha in (0.05, 1.0, 20.0):
        shares = proportions(3, np.arange(draws), alpha, classes)
        variance = (classes - 1) / (classes**2 * (classes * alpha + 1))
        assert np.abs(shares.mean(axis=0) - 1 / classes).max() < 5 * np.sqrt(
            variance / draws
        )
        spread = ((shares - 1 / classes) ** 2).std(axis=0) / np.sqrt(draws)
        assert (np.abs(shares.var(axis=0) - variance) < 5 * spread).all()


@settings(max_examples=30)
@given(clients=st.integers(1, 20), seed=st.integers(0, 1000))
def test_iid_has_the_same_labels_everywhere(clients, seed):
    labels = np.repeat(np.arange(4), [400, 200, 100, 100])
    parts = iid(labels, clients, seed)
    share = np.array([0.5, 0.25, 0.125, 0.125])
    size = np.array([len(part) for part in parts])[:, None]
    assert np.ptp(size) <= 1
    assert (np.abs(counts(labels, parts, 4) - size * share) <= 1 + 4 * share).all()


def test_shards_hold_few_classes():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    parts = shards(labels, 10, shard_size=150)
    assert {len(part) for part in parts} == {600}
    assert (counts(labels, parts, 10) > 0).sum(axis=1).max() <= 4
    assert (counts(labels, parts, 10) % 150 == 0).all()


def test_shards_cut_to_given_sizes():
    labels = np.repeat(np.arange(10), 1000)
    assert [len(p) for p in shards(labels, 50, shard_size=60, sizes=200)] == [200] * 50


def test_shards_random_deal_gives_everyone_one():
    labels = np.repeat(np.arange(10), 100)
    sizes = [len(p) for p in shards(labels, 20, shard_size=10, deal="random")]
    assert min(sizes) >= 10
    assert sum(sizes) == 1000
    assert len(set(sizes)) > 2


def test_one_class_means_one_class():
    labels = np.arange(5000) % 10
    parts = one_class(labels, 100, sizes=50)
    table = counts(labels, parts, 10)
    assert ((table > 0).sum(axis=1) == 1).all()
    assert ((table > 0).sum(axis=0) == 10).all()


def test_imbalanced_counts_by_hand():
    """n_max r^(c/9) for r = 0.01, n_max = 100: 100, 59.9, 35.9, 21.5, 12.9, 7.7, 4.6, 2.8, 1.7,
    1."""
    labels = np.arange(10_000) % 10
    table = counts(labels, imbalanced(labels, 3, ratio=0.01, n_max=100), 10)
    assert table.tolist() == [[100, 60, 36, 22, 13, 8, 5, 3, 2, 1]] * 3


def test_imbalanced_by_pairs_and_drawn():
    labels = np.arange(20_000) % 10
    table = counts(
        labels, imbalanced(labels, 10, ratios=[(4, 1.0), (6, 0.1)], n_max=100), 10
    )
    assert (table[:4] == 100).all()
    assert (table[4:, -1] == 10).all()
    drawn = counts(labels, imbalanced(labels, 40, ratios=[1.0, 0.1], n_max=40), 10)
    assert set(drawn[:, -1].tolist()) == {40, 4}


def test_dirichlet_by_class_balanced_limit():
    labels = np.arange(6000) % 10
    table = counts(labels, dirichlet_by_class(labels, 20, kappa=float("inf")), 10)
    assert (table == 30).all()


def test_dirichlet_by_class_sizes_follow_phi2():
    labels = np.arange(60_000) % 10
    flat = np.array(
        [len(p) for p in dirichlet_by_class(labels, 100, kappa=10.0, phi2=0.0)]
    )
    wide = np.array(
        [len(p) for p in dirichlet_by_class(labels, 100, kappa=10.0, phi2=1.0)]
    )
    assert np.abs(flat - 600).max() <= 10
    assert (
        0.7 < np.log(wide).std() < 1.3
    )  # a deviation of 1 from 100 draws, standard error 0.07


def test_dirichlet_by_class_imbalance_grows_as_kappa_falls():
    labels = np.arange(20_000) % 10
    spread = [
        counts(labels, dirichlet_by_class(labels, 20, kappa=kappa), 10)
        .std(axis=0)
        .mean()
        for kappa in (100.0, 1.0, 0.05)
    ]
    assert spread == sorted(spread)


def test_by_key_picks():
    keys = np.repeat([0, 1, 2], [2, 5, 3])
    assert [len(p) for p in by_key(keys)[0]] == [2, 5, 3]
    assert by_key(keys, 2)[1].tolist() == [0, 1]
    assert by_key(keys, 2, pick="largest")[1].tolist() == [1, 2]
    assert by_key(keys, min_samples=3)[1].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda y: dirichlet(y, 5, alpha=0), "alpha = 0"),
        (lambda y: dirichlet(y, 5, alpha=-1.0), "alpha"),
        (lambda y: dirichlet(y, 101), "101 clients, but only 100 samples"),
        (lambda y: iid(y, 0), "clients = 0"),
        (lambda y: iid(y, 2, sizes=[3, -1]), "client 1"),
        (lambda y: iid(y, 2, sizes=[3, 99]), "sum to 102"),
        (lambda y: iid(y, 3, sizes=[(1, 2), (1, 2)]), "describe 2 clients"),
        (lambda y: shards(y, 5, shard_size=50), "2 shards of 100 samples"),
        (lambda y: shards(y, 5, shard_size=0), "shard_size"),
        (lambda y: imbalanced(y, 5, ratio=1.5), "must lie in"),
        (lambda y: imbalanced(y, 5, n_max=50), "n_max = 10 would fit"),
        (lambda y: one_class(y, 4, sizes=[40, 1, 20, 1]), "need 60 samples"),
        (lambda y: dirichlet_by_class(y, 4, kappa=0.0), "kappa"),
        (lambda y: dirichlet(y.astype(float), 4), "one class per sample"),
        (lambda y: by_key(y, 3), "2 keys"),
    ],
)
def test_refusals_name_what_is_wrong(call, words):
    with pytest.raises(InvalidOption, match=words):
        call(np.arange(100) % 2)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_sixty_thousand_samples_take_less_than_a_second(name):
    labels = np.random.default_rng(0).integers(0, 10, 60_000)
    start = time.perf_counter()
    PARTITIONS[name](labels, 1000)
    assert time.perf_counter() - start < 1.0
