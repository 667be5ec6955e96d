"""Corruptions change what they say, for whom they say, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.core.errors import InvalidOption
from poise.data import federation
from poise.data.corruptions import Domain, FlipLabels, Watermark


@settings(max_examples=80)
@given(classes=st.integers(2, 20), ratio=st.floats(0.01, 1), seed=st.integers(0, 1000))
def test_flipping_deranges_the_chosen_classes(classes, ratio, seed):
    table = FlipLabels(rate=1.0, ratio=ratio, seed=seed).tables(np.arange(5), classes)
    chosen = max(1, int(np.floor(ratio * classes + 0.5)))
    moved = table != np.arange(classes)
    assert (moved.sum(axis=1) == chosen).all()
    if chosen > 1:  # a derangement: a permutation that fixes none of the chosen
        assert (np.sort(table, axis=1) == np.arange(classes)).all()


def test_every_label_is_wrong_at_ratio_one():
    clean = federation("digits", clients=10)
    flipped = clean.with_corruption("flip-labels", rate=1.0)
    for i in range(10):
        assert (clean.client(i)[1] != flipped.client(i)[1]).all()
        assert (clean.client(i)[0] == flipped.client(i)[0]).all()
    assert (clean.test[1] == flipped.test[1]).all()


def test_rate_is_the_share_of_corrupted_clients():
    hit = FlipLabels(rate=1 / 3).corrupted(np.arange(9000))
    assert abs(hit.mean() - 1 / 3) < 5 * np.sqrt(2 / 9 / 9000)  # five standard errors
    assert not FlipLabels(rate=0.0).corrupted(np.arange(100)).any()


def test_watermark_sets_exactly_those_pixels():
    clean = federation("digits", clients=5)
    marked = clean.with_corruption("watermark", pixels=10, clients=[1, 3], seed=2)
    places = Watermark(pixels=10, seed=2).places(np.arange(5), (1, 8, 8))
    for i in range(5):
        before, after = clean.client(i)[0], marked.client(i)[0]
        expected = before.copy().reshape(len(before), -1)
        if i in (1, 3):
            expected[:, places[i]] = 1.0
        assert (after.reshape(len(after), -1) == expected).all()
    assert len({tuple(row) for row in places.tolist()}) == 5
    assert all(len(set(row)) == 10 for row in places.tolist())


def test_domains():
    clean = federation("digits", clients=12, client_test_share=0.2)
    for name, expected in (
        ("identity", lambda x: x),
        ("invert", lambda x: 1 - x),
        ("contrast", lambda x: np.round(8 + 0.4 * (16 * x - 8)) / 16),
    ):
        made = clean.with_corruption("domain", transforms=[name])
        assert np.allclose(made.client(3)[0], expected(clean.client(3)[0]), atol=1e-6)
        assert np.allclose(
            made.client_test(3)[0], expected(clean.client_test(3)[0]), atol=1e-6
        )
        assert (made.test[0] == clean.test[0]).all()
    turned = clean.with_corruption("domain", transforms="rotate").client(0)[0]
    assert any(
        (np.rot90(clean.client(0)[0], k, (2, 3)) == turned).all() for k in (1, 2, 3)
    )
    noisy = clean.with_corruption("domain", transforms=["noise"]).client(0)[0]
    assert noisy.min() >= 0
    assert noisy.max() <= 1
    assert 0.05 < np.abs(noisy - clean.client(0)[0]).mean() < 0.2


def test_domains_differ_between_clients():
    assert len({Domain().of(client) for client in range(40)}) == 5


def test_domain_by_a_function():
    clean = federation("digits", clients=3)
    made = clean.with_corruption(
        "domain", transforms=lambda client, raw, labels: (raw * 0 + client, labels)
    )
    assert [float(made.client(i)[0].max()) * 16 for i in range(3)] == [0, 1, 2]
    assert made.spec is None
    bad = clean.with_corruption(
        "domain", transforms=lambda client, raw, labels: (raw[:1], labels)
    )
    with pytest.raises(InvalidOption, match="client 0"):
        bad.client(0)


def test_clients_of_a_group_share_their_watermark():
    marks = Watermark(pixels=5, groups=3).places(np.arange(7), (1, 8, 8))
    assert (marks[0] == marks[3]).all()
    assert (marks[1] == marks[4]).all()
    assert len({tuple(row) for row in marks.tolist()}) == 3
    with pytest.raises(InvalidOption, match="groups = 0"):
        Watermark(groups=0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flip-labels", {"rate": 0.5}),
        ("watermark", {"pixels": 5}),
        ("domain", {}),
        ("domain", {"seed": 4}),
    ],
)
def test_held_and_on_demand_agree_with_themselves(name, options):
    held = federation("digits", clients=8).with_corruption(name, **options)
    made = federation(
        "digits", clients=10**5, on_demand=True, samples_per_client=12
    ).with_corruption(name, **options)
    for fed in (held, made):
        together = fed.shards([5, 2])
        for k, client in enumerate([5, 2]):
            for got, alone in zip(together.arrays(k), fed.client(client), strict=True):
                assert (got == alone).all()


def test_corruptions_stack_and_leave_the_original_alone():
    clean = federation("digits", clients=4)
    before = clean.client(0)[0].copy()
    both = clean.with_corruption("watermark", pixels=4).with_corruption(
        "flip-labels", rate=1.0
    )
    x, y = both.client(0)
    assert (x != before).any()
    assert (y != clean.client(0)[1]).all()
    assert (clean.client(0)[0] == before).all()
    again = federation(**both.spec)
    assert (again.client(0)[0] == x).all()
    assert again.digest() == both.digest() != clean.digest()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("flip-lables", {"rate": 1.0}, "flip-labels"),
        ("flip-labels", {"rat": 1.0}, "did you mean"),
        ("flip-labels", {"rate": 1.5}, "rate"),
        ("flip-labels", {"rate": "x"}, "must be a number"),
        ("flip-labels", {}, "needs rate"),
        ("watermark", {"pixels": 65}, "a sample has 64"),
        ("watermark", {"clients": [9]}, "client 9"),
        ("domain", {"transforms": ["inverted"]}, "did you mean 'invert'"),
    ],
)
def test_refusals(name, options, words):
    with pytest.raises(InvalidOption, match=words):
        federation("digits", clients=4).with_corruption(name, **options)


def test_labels_of_a_regression_cannot_be_flipped():
    fed = federation((np.zeros((6, 2)), np.linspace(0, 1, 6)), clients=2)
    with pytest.raises(InvalidOption, match="one class per sample"):
        fed.with_corruption("flip-labels", rate=1.0)
