"""What figures show, and what they say they left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poise.analysis.reports import (
    Group,
    class_composition,
    learning_curves,
    participation,
    weight_map,
)
from poise.analysis.reports.bins import heat
from poise.analysis.reports.curves import curve, thinned
from poise.core.errors import InvalidOption
from reports.ledgers import made_run

LINE = {"accuracy": [0.1, 0.2, 0.4]}


def test_band_is_the_interval_over_seeds() -> None:
    runs = tuple(
        made_run({"accuracy": [0.1, v]}, seed=k)
        for k, v in enumerate((0.80, 0.82, 0.87))
    )
    line = curve(Group("g", runs), "accuracy")
    assert line is not None
    assert line.mean.tolist() == pytest.approx([0.1, 0.83])
    assert line.high[1] - line.low[1] == pytest.approx(
        2 * 4.30265 * 0.0360555 / math.sqrt(3), rel=1e-4
    )
    band, mean = learning_curves([Group("g", runs)], "accuracy").data
    assert band.fill == "toself"
    assert mean.name == "g"


def test_runs_of_unequal_length_are_averaged_where_they_were_measured() -> None:
    group = Group("g", (made_run(LINE), made_run({"accuracy": [0.3]}, seed=1)))
    line = curve(group, "accuracy")
    assert line is not None
    assert line.mean.tolist() == pytest.approx([0.2, 0.2, 0.4])
    assert line.seeds.tolist() == [2, 1, 1]


def test_against_time_each_run_counts_with_its_newest_model() -> None:
    slow = made_run({"accuracy": [0.0, 0.5]}, times=[1.0, 4.0])
    fast = made_run({"accuracy": [0.2, 0.4, 0.6]}, times=[2.0, 3.0, 4.0], seed=1)
    line = curve(Group("g", (slow, fast)), "accuracy", "time")
    assert line is not None
    assert line.x.tolist() == [2.0, 3.0, 4.0]
    assert line.mean.tolist() == pytest.approx([0.1, 0.2, 0.55])
    bytes_line = curve(Group("g", (slow,)), "accuracy", "bytes")
    assert bytes_line is not None
    assert bytes_line.x.tolist() == [150.0, 300.0]


def test_metric_per_client_is_drawn_as_its_spread() -> None:
    run = made_run({"client_loss": [np.array([1.0, 3.0, 1.0, 3.0])]})
    figure = learning_curves([Group("g", (run,))], "client_loss")
    assert figure.data[0].y.tolist() == [1.0]
    assert "standard deviation" in figure.layout.title.text


def test_nothing_measured_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidOption, match="no run measured"):
        learning_curves([Group("g", (made_run(rounds=2),))], "accuracy")


def test_down_sampled_weights_still_sum_to_the_weight_of_an_aggregation() -> None:
    rng = np.random.default_rng(0)
    cohorts = [
        {
            int(c): w
            for c, w in zip(
                rng.choice(23, 5, replace=False), rng.random(5), strict=True
            )
        }
        for _ in range(11)
    ]
    run = made_run(rounds=11, clients=23, cohorts=cohorts)
    image = heat(run, most_clients=7, most_rounds=4)
    assert image.values.shape == (4, 6)
    totals = run.weights.sum(axis=1)
    means = [
        totals[a:b].mean()
        for a, b in zip(image.rounds.edges, image.rounds.edges[1:], strict=False)
    ]
    assert image.values.sum(axis=1) == pytest.approx(means)
    assert (
        "Down-sampled: 23 clients in bins of 4, weights summed; 11 aggregations"
        in image.note
    )
    exact = heat(run, 100, 100)
    assert exact.values == pytest.approx(run.weights)
    assert exact.note == ""


def test_weight_map_says_that_it_was_down_sampled() -> None:
    figure = weight_map(made_run(rounds=2, clients=201))
    assert "201 clients in bins of 2" in figure.layout.title.subtitle.text
    assert len(figure.data[0].z) == 101


def test_class_bars_show_an_even_sample_of_many_clients() -> None:
    counts = np.arange(250 * 3).reshape(250, 3)
    figure = class_composition(
        made_run(rounds=1, clients=250, arrays={"label_counts": counts})
    )
    assert len(figure.data) == 3
    assert len(figure.data[0].x) == 100
    assert figure.data[0].x[-1] == "249"
    assert (
        figure.layout.title.subtitle.text == "Shows 100 of 250 clients, evenly spaced."
    )
    with pytest.raises(InvalidOption, match="no classes"):
        class_composition(made_run(rounds=1))


def test_participation_counts_each_client_once_per_aggregation() -> None:
    run = made_run(rounds=2, clients=3, cohorts=[{0: 0.5, 1: 0.5}, {0: 1.0}])
    figure = participation([Group("g", (run,))])
    assert figure.data[0].y.tolist() == [2.0, 1.0, 0.0]


def test_thinning_keeps_both_ends() -> None:
    assert thinned(np.arange(1000.0), 10)[[0, -1]].tolist() == [0.0, 999.0]
