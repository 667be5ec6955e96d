"""Clients made on demand: alone, together, among ten or a million, always the same."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.core.errors import InvalidOption
from poise.core.rng import keys
from poise.data import federation
from poise.data.partitions.imbalanced import RATIOS, class_counts, equal_counts
from poise.data.populations import POPULATIONS
from poise.data.populations.distinct import distinct

OPTIONS = {
    "iid": {"samples_per_client": 20},
    "dirichlet": {"samples_per_client": 20, "alpha": 0.3},
    "one-class": {"samples_per_client": 20},
    "imbalanced": {"n_max": 30},
}


@settings(max_examples=60)
@given(size=st.integers(1, 400), stream=st.integers(0, 2**63))
def test_distinct_is_a_permutation(size, stream):
    row = distinct(
        np.full(size, stream, np.uint64), np.arange(size), np.full(size, size)
    )
    assert sorted(row.tolist()) == list(range(size))


def test_distinct_is_uniform():
    """First entries of 20,000 permutations of 50: chi-square with 49 degrees of freedom, below
    99.99 %."""
    streams = keys(0, "test", np.arange(20_000))
    for position in (0, 1, 49):
        first = distinct(streams, np.full(20_000, position), np.full(20_000, 50))
        counted = np.bincount(first, minlength=50)
        assert ((counted - 400) ** 2 / 400).sum() < 95


@pytest.mark.parametrize("rule", sorted(POPULATIONS))
def test_a_client_depends_on_nobody_else(rule):
    few = federation(
        "digits", rule, clients=50, on_demand=True, seed=3, **OPTIONS[rule]
    )
    many = federation(
        "digits", rule, clients=10**6, on_demand=True, seed=3, **OPTIONS[rule]
    )
    together = many.shards([7, 999_999, 7, 41])
    for k, client in enumerate([7, 999_999, 7, 41]):
        rows = together.rows[together.offsets[k] : together.offsets[k + 1]]
        assert rows.equal(many.shards([client]).rows)
        assert len(rows.unique()) == len(rows)
        if client < 50:
            assert rows.equal(few.shards([client]).rows)
    other = federation(
        "digits", rule, clients=50, on_demand=True, seed=4, **OPTIONS[rule]
    )
    assert not other.shards([7]).rows.equal(few.shards([7]).rows)


@pytest.mark.parametrize("rule", sorted(POPULATIONS))
def test_sizes_say_what_clients_own(rule):
    fed = federation("digits", rule, clients=30, on_demand=True, **OPTIONS[rule])
    assert fed.sizes.tolist() == fed.shards(np.arange(30)).sizes.tolist()
    assert fed.importance.sum() == pytest.approx(1)
    assert fed.label_counts().sum(axis=1).tolist() == fed.sizes.tolist()


def test_imbalanced_on_demand_has_the_counts_of_the_rule():
    fed = federation("digits", "imbalanced", clients=60, on_demand=True, n_max=50)
    allowed = {tuple(row) for row in class_counts(np.array(RATIOS), 10, 50).tolist()}
    seen = {tuple(row) for row in fed.label_counts().tolist()}
    assert seen <= allowed
    assert len(seen) >= 5


def test_one_class_and_dirichlet_on_demand():
    one = federation(
        "digits", "one-class", clients=20, on_demand=True, samples_per_client=10
    ).label_counts()
    assert (one[np.arange(20), np.arange(20) % 10] == 10).all()
    many = federation(
        "digits",
        "dirichlet",
        clients=200,
        on_demand=True,
        alpha=1e7,
        samples_per_client=50,
    )
    assert np.abs(many.label_counts() - 5).max() <= 1


@pytest.mark.parametrize("rule", sorted(POPULATIONS))
def test_a_million_clients_take_no_memory(rule):
    federation(
        "digits", rule, clients=2, on_demand=True, **OPTIONS[rule]
    )  # load the pool first
    tracemalloc.start()
    fed = federation("digits", rule, clients=10**6, on_demand=True, **OPTIONS[rule])
    fed.shards(np.arange(0, 10**6, 20_000))
    if rule != "imbalanced":
        assert len(fed.sizes) == len(fed.importance) == 10**6
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3e6


def test_refusals():
    with pytest.raises(InvalidOption, match="cannot be made on demand"):
        federation("digits", "shards", on_demand=True)
    with pytest.raises(InvalidOption, match="at most"):
        federation("digits", "one-class", on_demand=True, samples_per_client=1000)
    with pytest.raises(InvalidOption, match="too many to count"):
        federation("digits", on_demand=True, clients=20_000).label_counts()
    with pytest.raises(InvalidOption, match="alpha"):
        federation("digits", "dirichlet", on_demand=True, alpha=0)
    with pytest.raises(InvalidOption, match="plain list"):
        federation(
            "digits",
            "imbalanced",
            on_demand=True,
            clients=2,
            ratios=[(1, 0.5), (1, 1.0)],
        )


def test_imbalanced_clients_of_equal_size_keep_their_proportions():
    fed = federation(
        "digits",
        "imbalanced",
        clients=60,
        on_demand=True,
        samples_per_client=50,
        equal_sizes=True,
    )
    assert fed.sizes.tolist() == [50] * 60
    table = fed.label_counts()
    assert (table.sum(axis=1) == 50).all()
    assert table.min() == 1
    assert (np.diff(table, axis=1) <= 0).all()  # classes thin out
    assert {tuple(row) for row in table.tolist()} <= {
        tuple(row) for row in equal_counts(np.array(RATIOS), 10, 50)
    }
    assert np.unique(table, axis=0).shape[0] > 3
    assert (
        federation(
            "digits",
            "imbalanced",
            clients=60,
            on_demand=True,
            **{"samples_per_client": 50, "equal_sizes": True},
        ).digest()
        == fed.digest()
    )


def test_every_client_has_its_own_order_of_classes_where_asked():
    options = {
        "clients": 200,
        "on_demand": True,
        "ratio": 0.01,
        "samples_per_client": 60,
        "equal_sizes": True,
    }
    same, own = (
        federation("digits", "imbalanced", own_order=o, **options).label_counts()
        for o in (False, True)
    )
    assert (np.sort(same, axis=1) == np.sort(own, axis=1)).all()
    assert set(same.argmax(axis=1)) == {0}
    heads = np.bincount(
        own.argmax(axis=1), minlength=10
    )  # 200 draws of 10: mean 20, standard deviation 4.2
    assert heads.min() > 20 - 4 * 4.3
    assert heads.max() < 20 + 4 * 4.3


def test_no_samples_at_all_are_refused():
    with pytest.raises(InvalidOption, match="n_max = 0 must be at least 1"):
        federation(
            "digits", "imbalanced", clients=5, on_demand=True, samples_per_client=9
        )


def test_equal_counts_by_hand():
    # r = 0.01 over three classes: 1, 0.1, 0.01, that is 90.09, 9.009 and 0.9009 of 100
    assert equal_counts(np.array([0.01]), 3, 100).tolist() == [[90, 9, 1]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_max": 5}, "n_max does not work with equal_sizes"),
        ({"samples_per_client": 9}, "less than one of each of 10 classes"),
        ({"samples_per_client": 400}, "largest class of a client = "),
    ],
)
def test_equal_sizes_that_cannot_be_are_refused(options, words):
    with pytest.raises(InvalidOption, match=words):
        federation(
            "digits",
            "imbalanced",
            clients=5,
            on_demand=True,
            equal_sizes=True,
            **options,
        )
