"""Ridge: sums, heads and outputs against hand computations and a plain NumPy solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.solvers import SGD, Sums

HAND_X = np.array([[1.0], [2.0], [0.0]])
HAND_Y = np.array([2.0, 2.0, 4.0])


def by_hand(**options: Any) -> Any:
    """Client 0 has the sample (1, 2), client 1 the samples (2, 2) and (0, 4)."""
    return poise.federation((HAND_X, HAND_Y), [[0], [1, 2]], **options)


def digits(**options: Any) -> Any:
    given = {"clients": 5, "samples": 300, "test_samples": 60, "alpha": 0.5, **options}
    return poise.federation("digits", "dirichlet", **given)


def solved(features: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    """The minimum of ``|F H - Y|^2 / n + penalty |H|^2``, from its normal equations by QR."""
    n, k = features.shape
    stacked = np.concatenate([features / np.sqrt(n), np.sqrt(penalty) * np.eye(k)])
    wanted = np.concatenate([targets / np.sqrt(n), np.zeros((k, targets.shape[1]))])
    return np.linalg.lstsq(stacked, wanted, rcond=None)[0]


def test_two_clients_by_hand() -> None:
    """F_0 = (1, 1), so F^T F = [[1, 1], [1, 1]] and F^T Y = (2, 2). F_1 = [[2, 1], [0, 1]], so
    F^T F / 2 = [[2, 1], [1, 1]] and F^T Y / 2 = (2, 3). With weights 1/3 and 2/3, the mean is
    [[5/3, 1], [1, 1]] and (2, 8/3); with penalty 1 the head is (4/13, 46/39)."""
    fed = by_hand()
    task = poise.ridge(penalty=1.0)
    run = poise.train(fed, task, Sums(), rounds=1, keep_updates=True)
    assert run.updates(0).tolist() == [[1, 1, 1, 2, 2], [2, 1, 1, 2, 3]]
    np.testing.assert_allclose(run.model, [5 / 3, 1, 1, 2, 8 / 3], rtol=1e-15)
    head = task.bind(fed).head(run.model)
    np.testing.assert_allclose(head[:, 0], [4 / 13, 46 / 39], rtol=1e-14)


def test_the_head_is_the_ridge_solution_of_the_pooled_data() -> None:
    fed = digits()
    task = poise.ridge(penalty=0.01)
    run = poise.train(fed, task, Sums(), rounds=1)
    data = [fed.client(i) for i in range(5)]
    x = np.concatenate([x.reshape(len(x), -1) for x, _ in data]).astype(np.float64)
    y = np.eye(10)[np.concatenate([y for _, y in data])]
    features = np.c_[x, np.ones(len(x))]
    wanted = solved(features, y, 0.01)
    np.testing.assert_allclose(task.bind(fed).head(run.model), wanted, atol=1e-10)
    tests = fed.test_shard.arrays()
    outputs = np.c_[tests[0].reshape(60, -1), np.ones(60)] @ wanted
    assert run.metric("accuracy")[-1] == (outputs.argmax(axis=1) == tests[1]).mean()
    loss = np.square(outputs - np.eye(10)[tests[1]]).mean()
    np.testing.assert_allclose(run.metric("loss")[-1], loss, rtol=1e-9)


def test_a_second_round_changes_nothing() -> None:
    fed = digits()
    once = poise.train(fed, poise.ridge("random", count=20), Sums(), rounds=1)
    thrice = poise.train(fed, poise.ridge("random", count=20), Sums(), rounds=3)
    np.testing.assert_allclose(once.model, thrice.model, atol=1e-13)


def test_random_features_are_rectified_and_depend_on_the_seed_alone() -> None:
    fed = digits()
    oracles = [poise.ridge("random", count=7, seed=s).bind(fed) for s in (0, 0, 1)]
    assert oracles[0].frozen == oracles[1].frozen != oracles[2].frozen
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    features = oracles[0].kernel.map.with_bias(x)
    assert features.shape == (4, 8)
    assert (features >= 0).all()
    assert (features[:, -1] == 1).all()
    assert not torch.equal(features, oracles[2].kernel.map.with_bias(x))


def test_the_outputs_of_a_module_are_features_and_the_module_stays_as_it_is() -> None:
    fed = digits()
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Tanh())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    task = poise.ridge(module)
    run = poise.train(fed, task, Sums(), rounds=1)
    assert run.model.shape == (7 * 8 // 2 + 7 * 10,)
    assert all(torch.equal(before[n], v) for n, v in module.state_dict().items())
    assert task.spec is None
    x = fed.test_shard.arrays()[0]
    with torch.no_grad():
        features = module.eval()(torch.from_numpy(x)).double()
    wanted = torch.cat([features, torch.ones(60, 1)], dim=1) @ task.bind(fed).head(
        run.model
    )
    shown = task.bind(fed).kernel.outputs(
        torch.from_numpy(run.model), torch.from_numpy(x)
    )
    assert torch.equal(shown, wanted)


def test_other_weights_of_the_module_are_refused_on_resume(tmp_path: Any) -> None:
    fed = digits()
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3)) for _ in range(2)]
    poise.train(fed, poise.ridge(modules[0]), Sums(), rounds=1, out=tmp_path / "run")
    with pytest.raises(IncompatibleParts, match="frozen parameters"):
        poise.resume(
            tmp_path / "run", federation=fed, task=poise.ridge(modules[1]), rounds=2
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "randm"}, "did you mean 'random'"),
        ({"features": "random", "count": 0}, "count"),
        ({"count": 2.5}, "count"),
        ({"seed": -1}, "seed"),
        ({"penalty": 0}, "above 0"),
        ({"penalty": float("inf")}, "penalty"),
        ({"penalty": True}, "penalty"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        poise.ridge(**options)


def test_a_task_of_sums_and_the_solver_belong_together() -> None:
    fed = digits()
    with pytest.raises(IncompatibleParts, match=r"SGD.*Sums\(\)"):
        poise.train(fed, poise.ridge(), SGD(lr=0.1, steps=1), rounds=1)
    with pytest.raises(IncompatibleParts, match=r"Sums.*poise\.ridge"):
        poise.train(fed, poise.task("logistic"), Sums(), rounds=1)
    with pytest.raises(InvalidOption, match=r"poise\.ridge"):
        poise.task("ridge")


def test_tokens_and_modules_that_do_not_fit_are_refused() -> None:
    text = poise.federation(
        (np.zeros((8, 5), dtype=np.int64), np.arange(8) % 2), clients=2, vocabulary=6
    )
    with pytest.raises(IncompatibleParts, match="token"):
        poise.ridge().bind(text)
    with pytest.raises(IncompatibleParts, match="does not take samples"):
        poise.ridge(nn.Linear(3, 2)).bind(digits())
