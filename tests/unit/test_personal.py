"""Which entries stay with each client, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.parts import build, describe
from poise.core.vectors import Layout
from poise.personal import BatchNorm, Layers
from poise.testing.clauses import setting_of

NORM = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]


def network() -> nn.Module:
    block = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    layers = {"block": block, "norm1": nn.LayerNorm(2), "head": nn.Linear(2, 2)}
    return nn.Sequential(OrderedDict(layers))


def test_batch_norm_layers_of_every_kind() -> None:
    kinds = [
        nn.BatchNorm1d(2),
        nn.BatchNorm2d(2),
        nn.BatchNorm3d(2),
        nn.SyncBatchNorm(2),
    ]
    module = nn.Sequential(nn.Linear(2, 2), *kinds, nn.LayerNorm(2), nn.GroupNorm(1, 2))
    wanted = [f"{k}.{name}" for k in range(1, 5) for name in NORM]
    assert list(BatchNorm().names(module)) == wanted


def test_a_model_without_batch_norm_is_refused() -> None:
    with pytest.raises(IncompatibleParts, match="the model has no batch-norm layer"):
        BatchNorm().names(nn.Linear(2, 2))
    bare = nn.BatchNorm1d(2, affine=False, track_running_stats=False)
    with pytest.raises(IncompatibleParts, match="the model has no batch-norm layer"):
        BatchNorm().names(nn.Sequential(nn.Linear(2, 2), bare))


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (["head"], ["head.weight", "head.bias"]),
        (["head.*"], ["head.weight", "head.bias"]),
        (["head.bias"], ["head.bias"]),
        (
            ["head.*", "norm1"],
            ["norm1.weight", "norm1.bias", "head.weight", "head.bias"],
        ),
        (["norm?", "head.weight"], ["norm1.weight", "norm1.bias", "head.weight"]),
        (["block.1"], [f"block.1.{name}" for name in NORM]),
        (["*.running_*"], ["block.1.running_mean", "block.1.running_var"]),
        (
            ["b*"],
            ["block.0.weight", "block.0.bias", *(f"block.1.{name}" for name in NORM)],
        ),
    ],
)
def test_patterns(patterns: list[str], wanted: list[str]) -> None:
    module = network()
    assert list(Layers(*patterns).names(module)) == wanted
    assert list(Layers(patterns=patterns).names(module)) == wanted


def test_patterns_are_the_configuration() -> None:
    part = Layers("head.*", "norm1")
    assert (
        part
        == Layers(patterns=["head.*", "norm1"])
        == Layers("head.*", patterns=("norm1",))
    )
    assert describe(part) == {"name": "layers", "patterns": ["head.*", "norm1"]}
    assert (
        build("personal", {"name": "layers", "patterns": ["head.*", "norm1"]}) == part
    )
    assert Layers(patterns="head") == Layers("head")
    assert hash(part) == hash(replace(part))
    assert repr(part) == "Layers(patterns=('head.*', 'norm1'))"
    assert describe(BatchNorm()) == {"name": "batchnorm"}


@pytest.mark.parametrize(
    "patterns", [(), ("head", ""), ("head", 3), (("head", "body"),)]
)
def test_patterns_that_are_no_names_are_refused(patterns: Any) -> None:
    with pytest.raises(InvalidOption, match="Layers: patterns must"):
        Layers(*patterns)


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("haed", "head"),
        ("block.2.wieght", "block.0.weight"),
        ("Head", "head"),
        ("eight", "weight"),
    ],
)
def test_a_pattern_without_a_match_names_the_nearest(pattern: str, near: str) -> None:
    with pytest.raises(
        IncompatibleParts, match=rf"matches '{pattern}' \(nearest: .*{near}"
    ):
        Layers("head", pattern).names(network())


def test_all_trainable_parameters_are_refused() -> None:
    module = network()
    with pytest.raises(
        IncompatibleParts, match="Layers: all trainable parameters would stay"
    ):
        Layers("*").names(module)
    module.head.requires_grad_(False)
    with pytest.raises(IncompatibleParts, match="all trainable parameters"):
        Layers("block", "norm1").names(module)
    with pytest.raises(IncompatibleParts, match="BatchNorm: all trainable parameters"):
        BatchNorm().names(nn.BatchNorm1d(3))


def test_a_tied_parameter_is_personal_under_all_its_names() -> None:
    module = nn.Sequential(OrderedDict(first=nn.Linear(2, 2), last=nn.Linear(2, 2)))
    module.last.weight = module.first.weight
    names = Layers("last").names(module)
    assert names == ("first.weight", "last.weight", "last.bias")
    known = {entry.name for entry in Layout.of_module(module).entries}
    assert known & set(names) == {"first.weight", "last.bias"}


@pytest.mark.parametrize("personal", [BatchNorm(), Layers("head")], ids=repr)
def test_clients_on_demand_are_refused(personal: Any) -> None:
    personal.fit(setting_of())
    with pytest.raises(IncompatibleParts, match="made on demand keep no layers"):
        personal.fit(replace(setting_of(), on_demand=True))


def test_personal_layers_are_imported_without_pytorch() -> None:
    code = "import sys, poise.personal; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
