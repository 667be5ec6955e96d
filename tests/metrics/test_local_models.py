"""Metrics of the clients' models after their work, on the clients' own test data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise

FULL_BATCH = poise.solvers.SGD(lr=0.5, steps=1)


def federation(clients: int = 5) -> Any:
    return poise.federation(
        "digits", "dirichlet", clients, alpha=0.5, client_test_share=0.3, seed=1
    )


def train(fed: Any, **options: Any) -> Any:
    given = {"rounds": 1, "seed": 3, "metrics": ["client_local_accuracy"]}
    return poise.train(fed, poise.task("logistic"), FULL_BATCH, **(given | options))


def accuracy_after_one_step(theta: np.ndarray, fed: Any, client: int) -> float:
    """One full-batch step of softmax regression, by hand, on the client's own test."""
    x, y = fed.client(client)
    x = x.reshape(len(x), -1).astype(np.float64)
    weights = theta[:640].reshape(10, 64)
    bias = theta[640:]
    logits = x @ weights.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    errors = (shares - np.eye(10)[y]) / len(x)
    weights = weights - 0.5 * errors.T @ x
    bias = bias - 0.5 * errors.sum(axis=0)
    x, y = fed.client_test(client)
    logits = x.reshape(len(x), -1) @ weights.T + bias
    return float(np.mean(logits.argmax(axis=1) == y))


def test_the_values_are_those_of_a_step_made_by_hand() -> None:
    fed = federation()
    run = train(fed, metrics=["client_local_accuracy", "local_accuracy"])
    found = run.metric("client_local_accuracy")[0]
    by_hand = [accuracy_after_one_step(run.models(0), fed, i) for i in range(5)]
    assert found == pytest.approx(by_hand, abs=1e-12)
    assert len(set(found.tolist())) > 1
    mean = run.metric("local_accuracy")[0]
    assert mean == pytest.approx(fed.importance @ by_hand, abs=1e-12)


def test_clients_without_work_have_no_value_and_do_not_count() -> None:
    fed = federation()
    run = train(
        fed,
        sampler=poise.samplers.Uniform(2),
        rounds=6,
        metrics=["client_local_accuracy", "local_accuracy"],
    )
    for n in range(6):
        rows = run.contributions
        worked = set(
            np.asarray(rows["client"])[np.asarray(rows["round"]) == n].tolist()
        )
        values = run.metric("client_local_accuracy")[n]
        assert set(np.flatnonzero(~np.isnan(values)).tolist()) == worked
        clients = sorted(worked)
        weights = fed.importance[clients] / fed.importance[clients].sum()
        assert run.metric("local_accuracy")[n] == pytest.approx(
            weights @ values[clients]
        )


def test_a_late_answer_has_the_model_that_the_client_received_plus_its_update() -> None:
    fed = federation()
    together = train(fed, metrics=["client_local_loss"]).metric("client_local_loss")[0]
    durations = [1.0, 0.9, 0.8, 0.7, 0.6]
    clock = poise.clocks.Asynchronous(durations)
    run = train(fed, clock=clock, rounds=5, metrics=["client_local_loss"])
    alone = run.metric("client_local_loss")
    for n, client in enumerate([4, 3, 2, 1, 0]):  # all work on version 0
        assert alone[n, client] == pytest.approx(together[client], rel=1e-6)


def test_one_client_has_the_global_model_after_its_work() -> None:
    fed = federation(1)
    run = train(
        fed, rounds=3, metrics=["client_local_accuracy", "client_test_accuracy"]
    )
    np.testing.assert_array_equal(
        run.metric("client_local_accuracy"), run.metric("client_test_accuracy")
    )


def test_personal_layers_are_those_that_the_client_keeps() -> None:
    fed = federation(1)
    names = ["client_local_loss", "client_test_loss"]
    run = train(
        fed, rounds=3, metrics=names, personal=poise.personal.Layers("*.weight")
    )
    # with one client, the model after its work is the next one
    local, after = (run.metric(name) for name in names)
    np.testing.assert_array_equal(local, after)
    assert len(np.unique(local)) == 3


def test_without_test_data_of_clients_the_error_says_what_to_do() -> None:
    fed = poise.federation("digits", "iid", 3)
    with pytest.raises(poise.PoiseError, match="own test data") as caught:
        train(fed, metrics=["local_accuracy"])
    assert "client_test_share" in str(caught.value)
