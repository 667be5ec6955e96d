"""Predictions of a run: the outputs of its model for given samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.errors import InvalidOption
from results.hospitals import SOLVER, hospitals, trained


def test_a_linear_model_by_hand(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", keep="all")
    state = run.state_dict()
    (weight, bias) = (state["1.weight"], state["1.bias"])
    x = hospitals().client("zurich")[0]
    by_hand = x @ weight.T + bias
    for each in (run, poise.open_run(tmp_path / "run")):
        outputs = each.predict(x)
        assert outputs.dtype == np.float32
        assert outputs == pytest.approx(by_hand, abs=1e-6)
        assert np.array_equal(each.predict(x, labels=True), by_hand.argmax(axis=1))
        assert np.array_equal(each.predict(x, 0), each.predict(torch.from_numpy(x), 0))
        assert np.abs(each.predict(x, 0) - outputs).max() > 1e-3  # not the first model


@pytest.mark.parametrize("model", ["mlp", "cnn-small", "lstm"])
def test_outputs_are_those_of_the_task(model: str) -> None:
    """The measured accuracy, from a kernel that computes many clients at once."""
    if model == "lstm":
        generator = np.random.default_rng(0)
        x = generator.integers(0, 12, size=(200, 9))
        data = (x[:160], x[:160, 0] % 3)
        fed = poise.federation(
            data, clients=4, test=(x[160:], x[160:, 0] % 3), vocabulary=12
        )
        task = poise.task("lstm", hidden=8)
    else:
        fed = poise.federation("digits", clients=4, samples=200, test_samples=90)
        if model == "cnn-small":
            pad = ((0, 0), (0, 0), (6, 6), (6, 6))
            train = tuple(
                np.concatenate(a) for a in zip(*map(fed.client, range(4)), strict=True)
            )
            fed = poise.federation(
                (np.pad(train[0], pad), train[1]),
                clients=4,
                test=(np.pad(fed.test[0], pad), fed.test[1]),
            )
        task = poise.task(model)
    run = poise.train(fed, task, SOLVER, rounds=3)
    x, y = fed.test
    outputs = torch.from_numpy(run.predict(x))
    assert float((run.predict(x, labels=True) == y).mean()) == pytest.approx(
        run.metric("accuracy")[-1]
    )
    loss = nn.functional.cross_entropy(outputs, torch.from_numpy(y))
    assert float(loss) == pytest.approx(run.metric("loss")[-1], rel=1e-4)


def test_more_samples_than_one_block() -> None:
    run = trained()
    x = np.random.default_rng(0).normal(size=(2500, 5)).astype(np.float32)
    apart = np.concatenate([run.predict(x[:1]), run.predict(x[1:])])
    assert run.predict(x) == pytest.approx(apart, abs=1e-6)


def test_a_client_predicts_with_its_personal_layers() -> None:
    fed = hospitals()
    personal = poise.personal.Layers("1")
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    run = poise.train(fed, poise.Task(module=net), SOLVER, rounds=3, personal=personal)
    x = fed.client(0)[0]
    for client in ("cleveland", "budapest"):
        state = run.state_dict(client=client)
        by_hand = (x @ state["0.weight"].T + state["0.bias"]) @ state["1.weight"].T
        assert run.predict(x, client=client) == pytest.approx(
            by_hand + state["1.bias"], abs=1e-5
        )
    one, other = (run.predict(x, client=c) for c in (0, 1))
    assert np.abs(one - other).max() > 1e-4
    with pytest.raises(InvalidOption, match="personal layers after 3"):
        run.predict(x, 1, client=0)


def test_classes_have_the_names_of_the_labels(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(60, 2)).astype(np.float32)
    y = np.where(x[:, 0] > 0, "sick", "healthy")
    fed = poise.federation((x, y), clients=3)
    solver = poise.solvers.SGD(lr=0.5, steps=20, batch_size=10)
    poise.train(fed, poise.task("logistic"), solver, rounds=20, out=tmp_path / "run")
    run = poise.open_run(tmp_path / "run")
    named = run.predict(x, labels=True)
    assert (named == y).mean() > 0.9
    scores = run.predict(x)
    names = run.meta.class_names
    assert sorted(names) == ["healthy", "sick"]
    assert list(named[:5]) == [names[k] for k in scores[:5].argmax(axis=1)]


def test_stored_bytes_are_refused_where_the_model_takes_normalised_values() -> None:
    x = np.random.default_rng(0).integers(0, 255, size=(30, 1, 4, 4)).astype(np.uint8)
    y = np.arange(30) % 3
    digits = poise.federation("digits", clients=2, samples=60)
    run = poise.train(digits, poise.task("logistic"), SOLVER, rounds=1)
    raw = digits.source.train.raw[:5].numpy()
    assert raw.dtype == np.uint8
    with pytest.raises(InvalidOption, match=r"normalised values.*divide it by 16\)"):
        run.predict(raw)
    assert run.predict(raw / 16).shape == (5, 10)
    own = poise.federation((x, y), clients=2)
    as_they_are = poise.train(own, poise.task("logistic"), SOLVER, rounds=1)
    given = own.client(0)[0]
    assert as_they_are.predict(given).shape == (len(given), 3)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(5, np.float32), "the model takes"),
        (np.zeros((2, 4), np.float32), r"shape \(4,\), the model takes \(5,\)"),
        (np.float32(1), "one number"),
        ((np.zeros((2, 5)), np.zeros((2, 5))), "takes 1 inputs, not 2"),
        (np.zeros((0, 5), np.float32), "no samples"),
    ],
)
def test_wrong_samples_are_one_error(x: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        trained().predict(x)  # type: ignore[arg-type]


def test_several_outputs_keep_their_form() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x), x.sum(dim=1)

    def loss(
        outputs: tuple[torch.Tensor, torch.Tensor], y: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs[0], y, reduction="none")

    run = poise.train(
        hospitals(), poise.Task(module=Both(), loss=loss), SOLVER, rounds=1
    )
    x = hospitals().client(0)[0]
    scores, sums = run.predict(x)
    assert scores.shape == (len(x), 2)
    assert sums == pytest.approx(x.sum(axis=1), abs=1e-5)
    with pytest.raises(InvalidOption, match="not one score per class"):
        run.predict(x, labels=True)
