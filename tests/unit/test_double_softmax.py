"""The loss of a model that ends in a softmax layer, under a cross-entropy with its own."""

from __future__ import annotations

from math import e, log
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.errors import PoiseError
from poise.tasks.losses import double_softmax

OWNERS = [np.arange(0, 7), np.arange(7, 24), np.arange(24, 40)]
SOLVER = poise.solvers.SGD(lr=2.0, epochs=2, batch_size=5)


def federation(classes: int = 4) -> Any:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    return poise.federation((x, np.arange(40) % classes), OWNERS, test_share=0.0)


def network(*last: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), *last)


def test_losses_of_ten_classes_lie_between_1_46_and_2_46() -> None:
    """Right and certain: log(1 + 9/e). Wrong and certain: log(e + 9). Undecided: log 10."""
    outputs = torch.zeros(3, 10, dtype=torch.float64)
    outputs[0, 4] = outputs[1, 5] = 1e3
    labels = torch.tensor([4, 4, 4])
    values = double_softmax(outputs, labels).tolist()
    assert values == pytest.approx([log(1 + 9 / e), log(e + 9), log(10)], rel=1e-12)
    assert np.round(values, 2).tolist() == [1.46, 2.46, 2.3]


@pytest.mark.parametrize("path", ["dense", "rows", "functional"])
def test_the_loss_equals_a_softmax_layer_under_cross_entropy(path: Any) -> None:
    """The same steps as PyTorch's cross-entropy of a module with the layer; batches of
    unequal sizes, several batches."""
    fed = federation()
    layered = poise.Task(module=network(nn.Softmax(1)), path="rows", dtype="float64")
    task = poise.Task(
        module=network(), loss="double-softmax", path=path, dtype="float64"
    )
    measured = ["train_loss", "train_accuracy"]
    expected = poise.train(fed, layered, SOLVER, rounds=4, metrics=measured)
    run = poise.train(fed, task, SOLVER, rounds=4, metrics=measured)
    start = task.bind(fed).initial(0).numpy()
    assert np.abs(expected.model - start).max() > 0.05
    assert np.allclose(run.model, expected.model, rtol=0, atol=1e-12)
    for metric in measured:
        assert run.metric(metric) == pytest.approx(expected.metric(metric))


def test_models_by_name_take_the_loss_in_a_file() -> None:
    task = poise.task("mlp", hidden=5, loss="double-softmax")
    assert task.spec == {"model": "mlp", "hidden": 5, "loss": "double-softmax"}
    fed = poise.federation("digits", clients=4)
    run = poise.train(fed, task, poise.solvers.SGD(lr=1.0, steps=20), rounds=3)
    losses = run.metric("loss")
    assert ((log(1 + 9 / e) < losses) & (losses < log(e + 9))).all()
    assert run.metric("accuracy")[-1] > 0.2


def test_a_linear_model_is_not_called_convex() -> None:
    """Halfway from wrong and certain to right, the loss is above the mean of both."""
    fed = federation()
    assert poise.task("logistic").bind(fed).curvature(5) is not None
    assert poise.task("logistic", loss="double-softmax").bind(fed).curvature(5) is None
    label = torch.tensor([0])
    ends = [torch.tensor([[-30.0, 0.0]]), torch.tensor([[2.0, 0.0]])]
    middle = double_softmax((ends[0] + ends[1]) / 2, label)
    assert (
        middle > (double_softmax(ends[0], label) + double_softmax(ends[1], label)) / 2
    )


def test_numbers_are_refused() -> None:
    numbers = (np.zeros((4, 6), np.float32), np.zeros(4))
    fed = poise.federation(numbers, [np.arange(4)], test_share=0.0)
    with pytest.raises(PoiseError, match="double-softmax needs class labels"):
        poise.task("logistic", loss="double-softmax").bind(fed)
    few = poise.Task(module=nn.Linear(6, 2), loss="double-softmax")
    with pytest.raises(PoiseError, match="for 4 classes"):
        few.bind(federation())
