"""Masks, several targets and several inputs on nodes: the same runs as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.apps.deploy.node_data import NodeData, open_node_data
from poise.apps.deploy.remote_federation import Remote, check_registered
from poise.backends.flower import nodes as flower_nodes
from poise.backends.flower import transport as flower_transport
from poise.core.errors import DataError, PoiseError
from poise.core.samples import Samples
from poise.tasks.models import MODELS

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from backends.test_flower_nodes import HOURS, Nodes
from poise.backends.flower import Flower
from poise.backends.flower.transport import Transport, connected

RNG = np.random.default_rng(2)
SIZES = [9, 6, 12]
STARTS = np.cumsum([0, *SIZES])
IMAGES = RNG.normal(size=(STARTS[-1], 1, 4, 4)).astype(np.float32)
MASKS = RNG.integers(0, 3, (STARTS[-1], 4, 4))
MASKS[:, 0, 0] = -100
TARGETS = RNG.normal(size=(STARTS[-1], 2))
FACTS = RNG.normal(size=(STARTS[-1], 3)).astype(np.float32)
SGD = poise.solvers.SGD(lr=0.2, epochs=2, batch_size=4)


class Both(nn.Module):
    """An image and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(19, 2)

    def forward(self, image: torch.Tensor, facts: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([image.flatten(1), facts], dim=1))


def segmenter(samples: Samples, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, outputs, 1)
    )


def both(samples: Samples, outputs: int) -> nn.Module:
    return Both()


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "segmenter", segmenter)
    monkeypatch.setitem(MODELS, "both", both)
    for module in (flower_transport, flower_nodes):
        monkeypatch.setattr(module, "time", HOURS)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "masks": (
        {"model": "segmenter"},
        {"x": IMAGES, "y": MASKS},
        {"classes": 3},
    ),
    "noisy masks": (
        {"model": "segmenter", "transform": "noise"},
        {"x": IMAGES, "y": MASKS},
        {"classes": 3},
    ),
    "targets": ({"model": "mlp", "hidden": 4}, {"x": FACTS, "y": TARGETS}, {}),
    "inputs": (
        {"model": "both"},
        {"image": IMAGES, "facts": FACTS, "y": TARGETS},
        {},
    ),
    "numbered inputs": (
        {"model": "both"},
        {"x0": IMAGES, "x1": FACTS, "y": TARGETS},
        {},
    ),
}


def on_file(
    folder: Path, arrays: dict[str, Any], client: int, **options: Any
) -> NodeData:
    rows = slice(STARTS[client], STARTS[client + 1])
    np.savez(folder / f"{client}.npz", **{k: v[rows] for k, v in arrays.items()})
    return open_node_data(client, {"file": f"{client}.npz", **options}, folder)


@pytest.mark.parametrize("name", CASES)
def test_nodes_train_the_same_model(name: str, tmp_path: Path) -> None:
    task, arrays, options = CASES[name]
    grid = Nodes([on_file(tmp_path, arrays, c, **options) for c in range(3)])
    registered = [{**h.facts(), "alters": False} for h in grid.node_data]
    check_registered(registered, None)
    remote = Remote(registered, "size", None, None)
    ids = {client: 100 + client for client in range(3)}
    with connected(Transport(grid, ids, "run", task, "a" * 32)):
        there = poise.train(
            remote, poise.task(**task), SGD, rounds=2, backend=Flower(patience=5.0)
        )
    x = {k: v for k, v in arrays.items() if k != "y"}
    inputs: Any = x
    if "x0" in x:
        inputs = tuple(x.values())
    if "x" in x:
        inputs = x["x"]
    owners = np.split(np.arange(STARTS[-1]), STARTS[1:-1])
    fed = poise.federation((inputs, arrays["y"]), owners, **options)
    here = poise.train(fed, poise.task(**task), SGD, rounds=2)
    assert np.abs(np.asarray(here.model)).max() > 0
    assert np.allclose(there.model, here.model, atol=1e-6)


def test_a_node_with_another_form_is_named(tmp_path: Path) -> None:
    one = on_file(tmp_path, {"x": IMAGES, "y": MASKS}, 0, classes=3).facts()
    other = on_file(tmp_path, {"x": IMAGES, "y": MASKS[:, :2]}, 1, classes=3).facts()
    with pytest.raises(PoiseError, match="client 1 has other labels than client 0"):
        check_registered([one, other], None)
    forged = {**one, "labels": {"shape": "x", "classes": -3, "multi_label": 1}}
    with pytest.raises(PoiseError, match="its registration is invalid"):
        check_registered([forged], None)


def test_labels_out_of_range_and_names_of_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the label in row 0 is 2"):
        on_file(tmp_path, {"x": IMAGES, "y": np.full_like(MASKS, 2)}, 0, classes=2)
    texts = np.array(["b", "a", "c"])[np.arange(STARTS[-1]) % 3]
    named = on_file(tmp_path, {"x": IMAGES, "y": texts}, 0, classes=["c", "b", "a"])
    assert named.shard.labels.tolist()[:3] == [1, 2, 0]
    with pytest.raises(PoiseError, match="y must be numbers"):
        on_file(tmp_path, {"x": IMAGES, "y": texts}, 0, classes=3)
