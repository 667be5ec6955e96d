"""``normalize = "centred"``: samples minus a public mean image, against NumPy by hand."""

import numpy as np
import pytest
import torch

import poise
from poise.core.errors import InvalidOption
from poise.data import federation, public_mean
from poise.data.sources.images import image_pools

NAME = "mean image of the held-out pool"


def images(seed, count=6, shape=(1, 3, 3), top=255, dtype=np.uint8):
    x = np.random.default_rng(seed).integers(0, top + 1, (count, *shape)).astype(dtype)
    return x, np.zeros(count, np.int64)


def test_two_pixels_by_hand():
    train = np.array([[[[0, 4]]], [[[2, 2]]]], np.uint8), np.zeros(2, np.int64)
    test = np.array([[[[1, 3]]], [[[3, 4]]]], np.uint8), np.zeros(2, np.int64)
    pool, held = image_pools(train, test, 4, "centred")
    assert pool.features(torch.arange(2)).reshape(2, 2).tolist() == [
        [-0.5, 0.125],
        [0.0, -0.375],
    ]
    assert held.features(torch.arange(2)).sum(dim=0).tolist() == [[[0.0, 0.0]]]
    assert pool.raw.dtype == torch.uint8


@pytest.mark.parametrize(
    ("top", "dtype", "shape"), [(255, np.uint8, (3, 4, 4)), (2000, np.int16, (1, 5, 5))]
)
def test_against_numpy(top, dtype, shape):
    train = images(0, 40, shape, top=top, dtype=dtype)
    test = images(1, 30, shape, top=top, dtype=dtype)
    pool, _ = image_pools(train, test, top, "centred")
    expected = train[0] / top - (test[0] / top).mean(axis=0)
    assert np.abs(pool.features(torch.arange(40)).numpy() - expected).max() < 1e-6


def test_the_mean_depends_on_the_held_out_images_alone():
    test = images(1)
    shifts = [image_pools(images(k), test, 255, "centred")[0].shift for k in (2, 3)]
    assert torch.equal(*shifts)
    other = image_pools(images(2), images(4), 255, "centred")[0].shift
    assert not torch.equal(shifts[0], other)
    with pytest.raises(InvalidOption, match="held-out pool, which is empty"):
        image_pools(images(0), images(1, count=0), 255, "centred")
    with pytest.raises(InvalidOption, match="choose test_share above 0"):
        federation("digits", clients=2, normalize="centred", test_share=0.0)


def mean_of_digits():
    return federation("digits", clients=2).test[0].astype(np.float64).mean(axis=0)


@pytest.mark.parametrize(
    "options",
    [
        {"clients": 5},
        {"clients": 3, "samples": 60, "test_samples": 20},
        {"clients": 4, "partition": "one-class", "seed": 3, "client_test_share": 0.2},
        {
            "clients": 1000,
            "on_demand": True,
            "samples_per_client": 12,
        },
        {"clients": 5, "without": [1]},
    ],
)
def test_every_federation_subtracts_the_same_mean(options):
    unit = federation("digits", **options)
    centred = federation("digits", normalize="centred", **options)
    mean = mean_of_digits()
    assert centred.source.train.raw.dtype == torch.uint8
    for i in range(3):
        x, y = centred.client(i)
        plain_x, plain_y = unit.client(i)
        assert x.dtype == np.float32
        assert np.abs(x - (plain_x - mean)).max() < 1e-6
        assert (y == plain_y).all()
    assert np.abs(centred.test[0] - (unit.test[0] - mean)).max() < 1e-6
    if centred.has_client_test:
        own = centred.client_test(0)[0]
        assert np.abs(own - (unit.client_test(0)[0] - mean)).max() < 1e-6


def test_corruptions_change_samples_and_not_the_mean():
    mean = mean_of_digits()
    marked = {"name": "watermark", "pixels": 4}
    unit = federation("digits", clients=4, corruption=marked)
    centred = federation("digits", clients=4, normalize="centred", corruption=marked)
    x = centred.client(2)[0]
    assert np.abs(x - (unit.client(2)[0] - mean)).max() < 1e-6
    bright = (unit.client(2)[0] == 1.0).all(axis=0)
    assert bright.sum() == 4
    assert np.abs(x[:, bright] - (1 - mean[bright])).max() < 1e-6
    assert torch.equal(
        centred.source.train.shift,
        federation("digits", clients=4, normalize="centred").source.train.shift,
    )
    flipped = centred.with_corruption("flip-labels", rate=1.0)
    assert (flipped.client(2)[0] == x).all()
    assert flipped.public_mean == NAME


def test_blocks_of_rows_and_single_rows_agree():
    fed = federation("digits", clients=4, normalize="centred")
    shards = fed.shards([0, 3])
    positions = torch.arange(12).view(3, 4)
    block, _ = shards.take(positions)
    reused, _ = shards.take(positions, out=torch.full((2000,), 9.0))
    rows = torch.stack(
        [shards.take(positions[i, j : j + 1])[0][0] for i in range(3) for j in range(4)]
    ).view(block.shape)
    assert torch.equal(block, rows)
    assert torch.equal(block, reused)
    assert (block.view(12, 1, 8, 8).numpy() == fed.client(0)[0][:12]).all()


def test_training_equals_training_on_arrays_centred_by_hand():
    fed = federation("digits", clients=4, normalize="centred")
    unit = federation("digits", clients=4)
    mean = mean_of_digits().astype(np.float32)
    x, y = zip(*(unit.client(i) for i in range(4)), strict=True)
    ends = np.cumsum([len(labels) for labels in y])
    by_hand = federation(
        (np.concatenate(x) - mean, np.concatenate(y)),
        np.split(np.arange(ends[-1]), ends[:-1]),
    )
    runs = [
        poise.train(
            data,
            poise.task("logistic"),
            solver=poise.solvers.SGD(lr=0.1, steps=3, batch_size=16),
            rounds=3,
        )
        for data in (fed, by_hand)
    ]
    assert np.abs(runs[0].model - runs[1].model).max() < 1e-6


def test_the_federation_and_its_table_name_the_mean():
    fed = federation("digits", clients=3, normalize="centred")
    assert fed.public_mean == NAME
    assert public_mean(fed.spec["normalize"]) == NAME
    assert f"centred: minus the {NAME}" in fed.summary()
    unit = federation("digits", clients=3)
    assert unit.public_mean == ""
    assert public_mean(unit.spec.get("normalize")) == ""
    assert unit.digest() != fed.digest()
    assert federation(**fed.spec).digest() == fed.digest()


@pytest.mark.parametrize("source", ["mnist", "fashion-mnist", "usps", "cifar10"])
def test_real_sets(need, source):
    need(source)
    options = {"version": "subset"} if source == "cifar10" else {}
    unit = federation(source, clients=50, **options)
    centred = federation(source, clients=50, normalize="centred", **options)
    mean = unit.test[0].mean(axis=0, dtype=np.float64)
    assert np.abs(centred.client(7)[0] - (unit.client(7)[0] - mean)).max() < 1e-6
    assert centred.public_mean == NAME
    lengths = [np.linalg.norm(fed.client(7)[0]) for fed in (unit, centred)]
    assert lengths[1] < lengths[0]
