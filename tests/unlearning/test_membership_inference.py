"""The AUC of a loss threshold, against values computed by hand and pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

import poise
from poise import solvers
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.unlearning import membership_auc
from poise.unlearning.membership_inference import auc


@pytest.mark.parametrize(
    ("members", "others", "weights", "expected"),
    [
        ([2.0], [1.0], None, 1.0),
        ([1.0], [2.0], None, 0.0),
        ([1.0], [1.0], None, 0.5),
        ([3.0, 1.0], [2.0, 0.0], None, 3 / 4),
        ([1.0, 2.0], [1.0, 2.0, 3.0], None, (0.5 + 1.5) / 6),
        ([2.0], [1.0, 3.0], [3.0, 1.0], 3 / 4),
        ([1.0, 4.0], [1.0, 3.0, 5.0], [2.0, 0.0, 2.0], (0.25 + 0.5) / 2),
    ],
)
def test_auc_by_hand(
    members: list[float],
    others: list[float],
    weights: list[float] | None,
    expected: float,
) -> None:
    given = None if weights is None else np.array(weights)
    assert auc(np.array(members), np.array(others), given) == pytest.approx(expected)


def test_auc_needs_both_sides() -> None:
    with pytest.raises(InvalidOption, match="no members"):
        auc(np.zeros(0), np.zeros(2))
    with pytest.raises(InvalidOption, match="no others"):
        auc(np.zeros(2), np.zeros(0))


def _cross_entropy(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The loss of softmax regression in float64; the vector has weights, then biases."""
    x = x.reshape(len(x), -1).astype(np.float64)
    classes = 10
    weight = theta[: classes * x.shape[1]].reshape(classes, -1).astype(np.float64)
    scores = x @ weight.T + theta[classes * x.shape[1] :]
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]


def test_held_out_samples_count_by_the_classes_of_the_members() -> None:
    """Every member against every held-out sample, classes weighted alike, by hand."""
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.3, samples=300)
    run = poise.train(
        fed, poise.task("logistic"), solvers.SGD(lr=0.3, steps=3), rounds=20
    )
    clients = [1, 3]
    members = [fed.client(c) for c in clients]
    x = np.concatenate([np.asarray(xs) for xs, _ in members])
    y = np.concatenate([np.asarray(ys) for _, ys in members])
    shard = fed.test_shard
    held_x, held_y = shard.arrays()
    own = _cross_entropy(run.model, x, y)
    held = _cross_entropy(run.model, np.asarray(held_x), np.asarray(held_y))
    won = total = 0.0
    for loss, label in zip(held, np.asarray(held_y), strict=True):
        share = (y == label).sum() / (held_y == label).sum()
        won += share * ((own < loss).sum() + 0.5 * (own == loss).sum())
        total += share * len(own)
    found = membership_auc(run, {"m": run, "0": np.zeros_like(run.model)}, clients, fed)
    assert found["m"] == pytest.approx(won / total, abs=1e-4)
    assert found["m"] > 0.5
    assert found["0"] == pytest.approx(0.5)  # all losses are log 10


def test_runs_without_samples_are_refused() -> None:
    quad = poise.quadratics(np.eye(3))
    run = poise.train(quad, quad.task, solvers.SGD(lr=0.1, steps=1), rounds=1)
    with pytest.raises(IncompatibleParts, match="no samples"):
        membership_auc(run, {"m": run}, [0], quad, quad.task)


def test_a_class_without_held_out_samples_is_named() -> None:
    fed = poise.federation("digits", "one-class", clients=10, test_samples=3)
    run = poise.train(
        fed, poise.task("logistic"), solvers.SGD(lr=0.1, steps=1), rounds=1
    )
    held = set(np.asarray(fed.test_shard.arrays()[1]).tolist())
    labels = {c: int(fed.client(c)[1][0]) for c in range(10)}
    absent = next(c for c, label in labels.items() if label not in held)
    with pytest.raises(InvalidOption, match=f"has class \\[{labels[absent]}\\]"):
        membership_auc(run, {"m": run}, [absent], fed)


def test_unknown_clients_are_named() -> None:
    fed = poise.federation("digits", clients=4)
    run = poise.train(
        fed, poise.task("logistic"), solvers.SGD(lr=0.1, steps=1), rounds=1
    )
    with pytest.raises(InvalidOption, match="there is no client 9"):
        membership_auc(run, {"m": run}, [1, 9], fed)
