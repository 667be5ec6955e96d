"""Architectures: where batch norm sits, and that it can stay with each client."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import poise
from poise.core.errors import InvalidOption
from poise.solvers import SGD
from poise.tasks.models import MODELS


def layers(model: str, **options: object) -> list[type]:
    fed = poise.federation("digit-domains", "by-key", domains=["digits"])
    return [type(layer) for layer in MODELS[model](fed.source.train, 10, **options)]


def test_norm_follows_every_hidden_layer_and_no_other():
    assert layers("mlp", hidden=[5, 4], norm=True) == [
        nn.Flatten,
        *[nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2,
        nn.Linear,
    ]
    assert layers("cnn", norm=True) == [
        *[nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.ReLU] * 2,
        nn.Flatten,
        nn.Linear,
    ]
    assert not {nn.BatchNorm1d, nn.BatchNorm2d} & {*layers("mlp"), *layers("cnn")}


def test_the_network_of_the_text_has_a_dense_layer_of_1600_units():
    """Counted by hand for images of 28x28: 320 + 18,496 + 1600² + 1600 + 16,010 parameters."""
    fed = poise.federation(
        (np.zeros((4, 1, 28, 28), "f4"), np.arange(4) % 2), clients=1
    )
    network = MODELS["cnn"](fed.source.train, 10, hidden=1600)
    assert sum(p.numel() for p in network.parameters()) == 2_596_426
    kinds = [type(layer) for layer in network]
    assert kinds[-4:] == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    with pytest.raises(InvalidOption, match="hidden must be a whole number"):
        MODELS["cnn"](fed.source.train, 10, hidden=-1)


def test_domains_keep_their_own_batch_norm():
    fed = poise.federation(
        "digit-domains",
        "by-key",
        domains=["digits"],
        clients_per_domain=2,
        samples_per_domain=200,
    )
    task = poise.task("mlp", hidden=5, norm=True)
    run = poise.train(
        fed,
        task,
        SGD(lr=0.1, steps=3, batch_size=16),
        rounds=2,
        personal="batchnorm",
        metrics=["client_test_accuracy"],
    )
    assert np.isfinite(run.metric("own_accuracy")).all()
    assert run.metric("client_test_accuracy").shape == (2, 2)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_norm_is_yes_or_no(model):
    fed = poise.federation("digit-domains", "by-key", domains=["digits"])
    with pytest.raises(InvalidOption, match="norm must be true or false"):
        poise.train(
            fed, poise.task(model, norm="layer"), SGD(lr=0.1, steps=1), rounds=1
        )
