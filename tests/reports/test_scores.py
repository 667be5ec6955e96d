"""Scores of runs whose numbers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poise.analysis.reports import Group, score_table, scores
from poise.core.errors import InvalidOption
from reports.ledgers import made_run

RISING = {"accuracy": [0.1, 0.4, 0.6, 0.5, 0.9]}


def test_final_half_time_and_rounds_to() -> None:
    run = made_run(RISING)
    assert scores.final(run, "accuracy") == 0.9
    assert scores.half_time(run, "accuracy") == 0.4  # after 5 // 2 = 2 aggregations
    assert scores.rounds_to(run, 0.6) == 3
    assert scores.rounds_to(run, 0.95) is None


def test_a_loss_reaches_its_target_from_above() -> None:
    run = made_run({"loss": [2.0, 1.0, 0.4]})
    assert scores.rounds_to(run, 1.0, "loss") == 2


def test_smoothness_by_hand() -> None:
    run = made_run(RISING)
    changes = np.array([0.3, 0.2, -0.1, 0.4])
    expected = math.sqrt(((changes - 0.2) ** 2).mean()) / 0.2
    assert scores.smoothness(run) == pytest.approx(expected)
    assert math.isnan(scores.smoothness(made_run({"accuracy": [0.5, 0.5, 0.5]})))


def test_rounds_between_evaluations_are_not_measurements() -> None:
    plan = {"evaluate_every": 2, "rounds": 5}
    run = made_run({"accuracy": [None, 0.3, None, 0.5, 0.6]}, run=plan)
    assert scores.measured(run, "accuracy")[0].tolist() == [2, 4, 5]
    assert scores.final(run, "accuracy") == 0.6


def test_divergence_is_not_hidden_behind_the_last_finite_value() -> None:
    run = made_run(
        {"loss": [1.0, 5.0, math.nan]}, run={"evaluate_every": 1, "rounds": 3}
    )
    assert math.isnan(scores.final(run, "loss"))
    assert scores.half_time(run, "loss") == 1.0


def test_spread_and_weighted_accuracy_over_clients() -> None:
    metrics = {
        "client_loss": [np.array([1.0, 3.0, 1.0, 3.0])],
        "client_accuracy": [np.array([1.0, 0.5, 0.0, np.nan])],
    }
    run = made_run(metrics, arrays={"importance": np.array([0.4, 0.2, 0.2, 0.2])})
    assert scores.loss_spread(run) == 1.0
    assert scores.weighted_accuracy(run) == pytest.approx((0.4 + 0.1) / 0.8)
    with pytest.raises(InvalidOption, match="one value per client"):
        scores.final(run, "client_loss")


def test_distinct_clients_and_classes_per_round() -> None:
    counts = np.array([[5, 0, 0], [5, 1, 0], [0, 0, 2], [0, 0, 9]])
    cohorts = [{0: 0.5, 1: 0.5}, {2: 0.5, 3: 0.5}, {0: 1.0}]
    run = made_run(RISING, rounds=3, cohorts=cohorts, arrays={"label_counts": counts})
    assert scores.distinct_clients(run).tolist() == [2, 2, 1]
    classes = scores.distinct_classes(run)
    assert classes is not None
    assert classes.tolist() == [2, 1, 1]
    assert scores.distinct_classes(made_run(RISING)) is None


def test_cost() -> None:
    run = made_run(RISING, times=[1.0, 1.5, 4.0, 4.5, 9.0])
    assert (
        scores.bytes_up(run),
        scores.bytes_down(run),
        scores.simulated_time(run),
    ) == (
        500.0,
        250.0,
        9.0,
    )


def test_a_run_without_rounds_has_no_scores_but_costs() -> None:
    (row,) = score_table([Group("empty", (made_run(),))])
    assert row.rounds == 0
    assert row.scores["sent to the server"].known == (0.0,)
    assert "clients per round" not in row.scores


def test_table_averages_a_target_only_when_every_seed_reached_it() -> None:
    runs = tuple(
        made_run({"accuracy": [0.2, top]}, seed=k)
        for k, top in enumerate((0.7, 0.9, 0.5))
    )
    (row,) = score_table([Group("g", runs)], targets=(0.5, 0.6, 0.99))
    assert row.scores["rounds to accuracy 0.5"].known == (2.0, 2.0, 2.0)
    assert row.scores["rounds to accuracy 0.6"].estimate is None
    assert row.scores["rounds to accuracy 0.6"].values == (2.0, 2.0, None)
    assert row.scores["rounds to accuracy 0.99"].known == ()


def test_every_row_has_the_same_columns() -> None:
    rows = score_table(
        [Group("a", (made_run(RISING),)), Group("b", (made_run({"loss": [1.0]}),))]
    )
    assert list(rows[0].scores) == list(rows[1].scores)
    assert rows[1].scores["final accuracy"].values == (None,)
