"""Metrics that a loss of the user's own keeps, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.errors import IncompatibleParts
from poise.tasks.losses import accuracy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype("float32")
LABELS: dict[str, Any] = {
    "two classes": (X[:, 0] > 0).astype(np.int64),
    "three classes": RNG.integers(0, 3, 60),
    "tokens": RNG.integers(0, 3, (60, 4)),
    "numbers": X[:, 0] * 2,
    "pairs": X[:, :2] * 2,
    "multi-label": X[:, :3] > 0,
}


def mean_square(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss that takes any shapes."""
    return outputs.reshape(len(outputs), -1).square().mean(dim=1) + 0 * labels.sum()


def shaped(*shape: int) -> Callable[[], nn.Module]:
    """A module with outputs of this shape."""
    if shape == ():
        return lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))
    return lambda: nn.Sequential(
        nn.Linear(5, int(np.prod(shape))), nn.Unflatten(1, shape)
    )


def trained(labels: str, shape: tuple[int, ...], **options: Any) -> Any:
    fed = poise.federation((X, LABELS[labels]), clients=2, test_share=0.2)
    task = poise.Task(module=shaped(*shape), loss=mean_square, **options)
    return poise.train(fed, task, poise.solvers.SGD(lr=0.01, steps=1), rounds=1)


KEPT = [
    ("two classes", (2,), ["accuracy", "loss"]),
    ("two classes", (1,), ["loss"]),  # a logit or a probability
    ("three classes", (3,), ["accuracy", "loss"]),
    ("three classes", (5,), ["accuracy", "loss"]),
    ("three classes", (1,), ["loss"]),
    ("tokens", (3, 4), ["accuracy", "loss"]),
    ("tokens", (4, 3), ["loss"]),
    ("tokens", (4, 4), ["loss"]),  # classes first or last?
    ("numbers", (1,), ["loss", "mae"]),
    ("numbers", (), ["loss", "mae"]),
    ("numbers", (2,), ["loss"]),
    ("pairs", (2,), ["loss", "mae"]),
    ("pairs", (1,), ["loss"]),
    ("multi-label", (3,), ["loss"]),
]


@pytest.mark.parametrize(("labels", "shape", "metrics"), KEPT)
def test_an_own_loss_keeps_what_makes_sense(
    labels: str, shape: tuple[int, ...], metrics: list[str]
) -> None:
    assert trained(labels, shape).metrics == metrics


REFUSED = [
    ("three classes", (1,), "accuracy", "one output per label for 3 classes"),
    ("three classes", (2,), "accuracy", r"outputs of shape \(2,\) for 3 classes"),
    ("three classes", (3,), "mae", r"outputs of shape \(3,\) for labels of shape \(\)"),
    ("numbers", (2,), "mae", r"outputs of shape \(2,\) for labels of shape \(\)"),
    ("pairs", (1,), "mae", r"outputs of shape \(1,\) for labels of shape \(2,\)"),
    ("multi-label", (2,), "accuracy", r"for labels of shape \(3,\)"),
]


@pytest.mark.parametrize(("labels", "shape", "metric", "reason"), REFUSED)
def test_a_metric_without_meaning_is_refused_with_the_reason(
    labels: str, shape: tuple[int, ...], metric: str, reason: str
) -> None:
    with pytest.raises(
        IncompatibleParts, match=f"{metric!r} cannot be measured: .*{reason}"
    ):
        trained(labels, shape, metrics=(metric,))


def test_one_output_for_two_classes_counts_as_a_logit() -> None:
    labels = torch.tensor([0, 1, 1, 0])
    outputs = torch.tensor([[-2.0], [3.0], [-1.0], [0.5]])
    assert accuracy(outputs, labels).tolist() == [1, 1, 0, 0]
    # the same four answers with two outputs per sample
    pairs = torch.cat([torch.zeros_like(outputs), outputs], dim=1)
    assert accuracy(pairs, labels).tolist() == [1, 1, 0, 0]


def test_ignored_entries_do_not_count_with_one_output() -> None:
    labels = torch.tensor([[1, -100], [0, 1]])
    outputs = torch.tensor([[2.0, 2.0], [1.0, 1.0]])
    assert accuracy(outputs, labels).tolist() == [1.0, 0.5]


def test_bce_with_class_labels_measures_the_right_accuracy() -> None:
    y = LABELS["two classes"]
    fed = poise.federation((X, y), clients=2, test=(X, y))
    task = poise.Task(module=lambda: nn.Linear(5, 1), loss="bce")
    run = poise.train(fed, task, poise.solvers.SGD(lr=0.5, steps=20), rounds=5)
    layer = run.model
    outputs = X @ layer[:5] + layer[5]
    by_hand = float(np.mean((outputs > 0) == (y == 1)))
    assert run.metric("accuracy")[-1] == pytest.approx(by_hand)
    assert by_hand > 0.9
