"""Digits of several data sets in one shape: who owns what, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.core.errors import DataError, InvalidOption
from poise.data import federation
from poise.data.sources.digit_domains import digit_domains, resized
from poise.data.sources.digits import digits


def test_resizing_keeps_grey_values_and_averages_when_shrinking():
    flat = torch.full((2, 1, 8, 8), 0.5)
    assert resized(flat, 16).unique().tolist() == [128]
    assert resized(flat, 4).shape == (2, 1, 4, 4)
    image = torch.zeros(1, 1, 4, 4)
    image[..., :2] = 1.0  # left half is ink
    small = resized(image, 2)[0, 0]
    assert (small[:, 0] > 200).all()
    assert (small[:, 1] < 55).all()
    assert abs(float(small.float().mean()) - 127.5) < 1


def test_the_same_size_changes_nothing_but_the_scale():
    made, before = digit_domains(["digits"], size=8), digits()
    rows = torch.arange(len(before.train))
    assert (
        made.train.features(rows) - before.train.features(rows)
    ).abs().max() <= 0.5 / 255 + 1e-6
    assert torch.equal(made.train.labels, before.train.labels)


def test_a_domain_is_split_into_clients_with_equal_classes():
    fed = federation(
        "digit-domains", "by-key", domains=["digits"], clients_per_domain=4
    )
    assert fed.names == ("digits/0", "digits/1", "digits/2", "digits/3")
    assert fed.sizes.sum() == 1438
    assert np.ptp(fed.label_counts(), axis=0).max() <= 1
    assert sum(len(fed.client_test(i)[1]) for i in range(4)) == 359


def test_subsets_are_balanced_and_depend_on_the_seed():
    options = {
        "domains": ["digits"],
        "samples_per_domain": 100,
        "test_samples_per_domain": 50,
        "size": 8,
    }
    one, same, other = (
        federation("digit-domains", "by-key", seed=s, **options) for s in (1, 1, 2)
    )
    assert one.label_counts().tolist() == [[10] * 10]
    assert np.array_equal(one.client(0)[0], same.client(0)[0])
    assert not np.array_equal(one.client(0)[0], other.client(0)[0])
    assert len(one.client_test(0)[1]) == 50


def test_four_domains_become_four_clients_with_tests_of_their_own(need):
    need("mnist")
    need("usps")
    fed = federation(
        "digit-domains", "by-key", samples_per_domain=200, test_samples_per_domain=100
    )
    assert fed.names == ("mnist-series-0", "mnist-series-4", "usps", "digits")
    assert fed.sizes.tolist() == [200] * 4
    assert fed.feature_shape == (1, 16, 16)
    ink = [float(fed.client(i)[0].mean()) for i in range(4)]
    assert max(ink[:2]) < min(ink[2:])  # MNIST has margins, the others fill their frame
    assert federation(**fed.spec).digest() == fed.digest()


def test_series_share_no_sample_and_tests_are_not_trained_on(need):
    need("mnist")
    source = digit_domains(["mnist-series-0", "mnist-series-4"], size=28)
    assert len(source.train) + len(source.test) == 60_000
    seen = {image.numpy().tobytes() for image in source.train.raw}
    assert sum(image.numpy().tobytes() in seen for image in source.test.raw) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"domains": []}, "domains is empty"),
        ({"domains": ["usp"]}, "unknown domain 'usp' .did you mean 'usps'"),
        ({"domains": ["digits", "digits"]}, "names a domain twice"),
        ({"domains": ["mnist", "mnist-series-4"]}, "contains the digits of its series"),
        ({"domains": ["digits"], "size": 2}, "size = 2"),
        ({"domains": ["digits"], "clients_per_domain": 0}, "clients_per_domain = 0"),
        (
            {"domains": ["digits"], "samples_per_domain": 5000},
            "5000 samples is not possible",
        ),
        ({"domains": "digits"}, "domains must be a list, not"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(InvalidOption, match=words):
        federation("digit-domains", "by-key", **options)


def test_a_missing_data_set_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("POISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="usps: its files are in no data folder"):
        federation("digit-domains", "by-key", domains=["digits", "usps"])
    with pytest.raises(DataError, match="mnist: its files are in no data folder"):
        federation("digit-domains", "by-key")
