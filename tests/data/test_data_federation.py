"""The federation: arrays in, clients out; specs, importance, subsets, mistakes."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from poise.core.errors import InvalidOption
from poise.data import Federation, federation


@pytest.fixture
def toy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 3)), np.arange(120) % 4


def test_arrays_come_back(toy):
    x, y = toy
    parts = [np.array([5, 3]), np.array([0]), np.arange(10, 20)]
    fed = federation((x, y), parts, test=(x[:7], y[:7]))
    assert fed.clients == 3
    assert fed.sizes.tolist() == [2, 1, 10]
    assert fed.classes == 4
    for i, part in enumerate(parts):
        got_x, got_y = fed.client(i)
        assert np.allclose(got_x, x[part])
        assert (got_y == y[part]).all()
    assert np.allclose(fed.test[0], x[:7])
    assert fed.spec is None
    assert not fed.has_client_test


def test_arrays_of_bytes_and_regression(toy):
    images = np.full((8, 1, 2, 2), 255, np.uint8)
    assert federation((images, np.arange(8) % 2), clients=2).client(0)[0].max() == 1.0
    assert (
        federation((images, np.arange(8) % 2), clients=2, normalize="none")
        .client(0)[0]
        .max()
        == 255.0
    )
    fed = federation((toy[0], toy[0][:, 0]), clients=4, test_share=0.25)
    assert fed.classes == 0
    assert fed.client(0)[1].dtype == np.float32
    assert len(fed.test[1]) == 30


def test_same_seed_same_federation():
    one, two = (
        federation("digits", "dirichlet", clients=9, alpha=0.3, seed=5)
        for _ in range(2)
    )
    other = federation("digits", "dirichlet", clients=9, alpha=0.3, seed=6)
    assert one.digest() == two.digest() != other.digest()
    assert all((one.client(i)[0] == two.client(i)[0]).all() for i in range(9))


@pytest.mark.parametrize(
    "options",
    [
        {
            "partition": "dirichlet",
            "alpha": 0.3,
            "clients": 7,
            "sizes": [(3, 20), (4, np.int64(50))],
        },
        {
            "partition": "iid",
            "clients": 5,
            "samples": 300,
            "test_samples": 50,
            "importance": np.arange(1.0, 6.0),
        },
        {
            "partition": "imbalanced",
            "clients": 10**5,
            "on_demand": True,
            "n_max": 20,
            "normalize": "standard",
        },
        {"partition": "one-class", "clients": 20, "client_test_share": 0.25, "seed": 3},
        {"partition": "iid", "corruption": {"name": "flip-labels", "rate": 0.5}},
    ],
)
def test_spec_makes_it_again(options):
    fed = federation("digits", **options)
    again = federation(**json.loads(json.dumps(fed.spec)))
    assert again.digest() == fed.digest()
    assert again.spec == fed.spec
    assert (again.client(1)[0] == fed.client(1)[0]).all()
    assert (again.client(1)[1] == fed.client(1)[1]).all()


def test_importance():
    sizes = {"sizes": [10, 30, 60], "clients": 3}
    assert federation("digits", **sizes).importance.tolist() == [0.1, 0.3, 0.6]
    assert (
        federation("digits", importance="equal", **sizes).importance.tolist()
        == [1 / 3] * 3
    )
    assert federation("digits", importance=[1, 1, 2], **sizes).importance.tolist() == [
        0.25,
        0.25,
        0.5,
    ]
    for wrong, words in (
        ([1, 1], "shape"),
        ([1, -1, 1], "client 1"),
        ([0, 0, 0], "every client"),
        ("sise", "size"),
    ):
        with pytest.raises(InvalidOption, match=words):
            federation("digits", importance=wrong, **sizes)


def test_subsets_are_class_balanced():
    fed = federation("digits", clients=10, samples=500, test_samples=100)
    assert fed.label_counts().sum(axis=0).tolist() == [50] * 10
    assert np.bincount(fed.test[1]).tolist() == [10] * 10
    other = federation("digits", clients=10, samples=500, seed=1)
    assert set(fed.holdings.flat.tolist()) != set(other.holdings.flat.tolist())
    with pytest.raises(InvalidOption, match="1438"):
        federation("digits", samples=10**6)


def test_client_tests_are_held_back():
    whole, fed = (
        federation("digits", clients=10),
        federation("digits", clients=10, client_test_share=0.2),
    )
    for i in range(10):
        assert len(fed.client(i)[1]) + len(fed.client_test(i)[1]) == len(
            whole.client(i)[1]
        )
        assert len(fed.client_test(i)[1]) == round(0.2 * len(whole.client(i)[1]))
    assert not set(fed.holdings.flat.tolist()) & set(fed.client_tests[1].flat.tolist())


def test_by_key_of_arrays(toy):
    fed = federation(toy, "by-key", keys=np.array(["b", "a", "b"] * 40))
    assert fed.names == ("a", "b")
    assert fed.sizes.tolist() == [40, 80]


def test_synthetic_has_natural_clients():
    fed = federation("synthetic", "by-key", clients=6, size=50)
    assert fed.clients == 6
    assert fed.sizes.tolist() == [40] * 6
    assert len(fed.client_test(2)[1]) == 10
    more = federation("synthetic", "by-key", clients=8, size=50, test_share=0.0)
    again = federation("synthetic", "by-key", clients=6, size=50, test_share=0.0)
    assert (more.client(5)[0] == again.client(5)[0]).all()
    alike = federation("synthetic", "by-key", clients=20, size=200, alpha=0.0, beta=0.0)
    apart = federation(
        "synthetic", "by-key", clients=20, size=200, alpha=0.0, beta=50.0
    )
    mean = [np.std([f.client(i)[0].mean() for i in range(20)]) for f in (alike, apart)]
    assert mean[1] > 5 * mean[0]


def test_shards_are_the_clients_in_order():
    fed = federation("digits", "dirichlet", clients=20, alpha=0.2)
    shards = fed.shards(np.array([7, 0, 7]))
    for k, i in enumerate([7, 0, 7]):
        assert all(
            (a == b).all() for a, b in zip(shards.arrays(k), fed.client(i), strict=True)
        )
    assert len(fed.shards([])) == 0


def test_five_hundred_clients_in_three_milliseconds():
    x, y = np.zeros((60_000, 4), np.uint8), np.arange(60_000) % 10
    fed = federation((x, y), clients=500)
    order = np.random.default_rng(0).permutation(500)
    fed.shards(order)
    best = min(_timed(fed, order) for _ in range(10))
    assert best < 3e-3


def _timed(fed: Federation, order: np.ndarray) -> float:
    start = time.perf_counter()
    fed.shards(order)
    return time.perf_counter() - start


def test_words_for_people():
    fed = federation("digits", "shards", clients=20, shard_size=30)
    assert (
        repr(fed)
        == "Federation('digits', shards(shard_size=30), 20 clients, 10 classes, seed 0)"
    )
    assert "20 clients" in fed.summary()
    assert "classes per client" in fed.summary()
    made = federation("digits", clients=10**6, on_demand=True).with_corruption(
        "watermark"
    )
    assert "1,000,000 clients, on demand" in repr(made)
    assert "Watermark" in made.summary()


def test_what_is_handed_out_cannot_be_spoilt():
    fed = federation("digits", clients=5)
    x, _ = fed.client(0)
    x[:] = -1
    assert fed.client(0)[0].min() >= 0
    with pytest.raises(ValueError, match="read-only"):
        fed.sizes[0] = 3
    with pytest.raises(AttributeError):
        fed.seed = 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: federation("mnits"), "did you mean 'mnist'"),
        (lambda: federation("digits", "dirichlt"), "did you mean 'dirichlet'"),
        (lambda: federation("digits", "dirichlet", alfa=1), "did you mean 'alpha'"),
        (lambda: federation("digits", normalise="unit"), "did you mean 'normalize'"),
        (lambda: federation("digits", sample=3), "did you mean 'samples'"),
        (lambda: federation("digits", "dirichlet", alpha="much"), "must be a number"),
        (lambda: federation("digits", normalize="units"), "did you mean 'unit'"),
        (lambda: federation("digits", clients=2.5), "whole number"),
        (lambda: federation("digits", "by-key"), "no natural clients"),
        (lambda: federation("digits", clients=10).client(10), "no client 10.*0 to 9"),
        (lambda: federation("digits", clients=10).shards([0, -1]), "no client -1"),
        (lambda: federation("digits").client_test(0), "client_test_share"),
        (lambda: federation("digits", [[0, 1], []]), "client 1 owns no samples"),
        (
            lambda: federation("digits", [[0], [1438]]),
            "client 1: there is no sample 1438",
        ),
        (lambda: federation("digits", [[0.5]]), "client 0: indices"),
        (lambda: federation("digits", [[0]], clients=2), "1 index arrays"),
        (lambda: federation((np.zeros((3, 2)), [0, 1])), "3 samples but 2 labels"),
        (
            lambda: federation((np.array([[np.nan], [1.0]]), [0, 1])),
            "x is not finite in row 0",
        ),
        (lambda: federation((np.zeros((2, 2)), [-1, 1])), "labels start at -1"),
        (
            lambda: federation((np.zeros((2, 2)), [0, 1]), clients=2).test,
            "no held-out data",
        ),
        (lambda: federation("digits", corruption=[{"rate": 1}]), "has no name"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(InvalidOption, match=words):
        call()


@pytest.mark.parametrize(
    "options",
    [{}, {"on_demand": True, "samples_per_client": 20}],
    ids=["held", "on demand"],
)
def test_clients_that_leave_take_nothing_from_the_others(
    options: dict[str, Any],
) -> None:
    whole = federation("digits", "iid", clients=6, seed=2, **options)
    whole = whole.with_corruption("flip-labels", rate=0.5, ratio=0.5)
    left = whole.without([1, 4])
    assert left.members.tolist() == [0, 2, 3, 5]
    assert left.importance.sum() == pytest.approx(1.0)
    assert left.sizes.tolist() == whole.sizes[left.members].tolist()
    for k, i in enumerate(left.members.tolist()):
        for mine, theirs in zip(left.client(k), whole.client(i), strict=True):
            assert np.array_equal(mine, theirs)
    assert {name: v.tolist() for name, v in left.traits().items()} == {
        name: v[left.members].tolist() for name, v in whole.traits().items()
    }
    assert federation(**left.spec).digest() == left.digest() != whole.digest()
    assert left.without([0]).members.tolist() == [2, 3, 5]
    assert left.without([0]).spec["without"] == [0, 1, 4]


def test_importance_and_own_tests_stay_with_their_clients() -> None:
    whole = federation(
        "digits", clients=4, importance=[1.0, 2.0, 3.0, 4.0], client_test_share=0.25
    )
    left = whole.without([0, 2])
    assert left.importance.tolist() == pytest.approx([2 / 6, 4 / 6])
    assert np.array_equal(left.client_test(1)[0], whole.client_test(3)[0])
    assert np.array_equal(left.label_counts(), whole.label_counts()[[1, 3]])


def test_somebody_must_stay() -> None:
    fed = federation("digits", clients=3)
    with pytest.raises(InvalidOption, match="no client of 3 would be left"):
        fed.without([0, 1, 2])
    with pytest.raises(InvalidOption, match="there is no client 3"):
        fed.without([3])
