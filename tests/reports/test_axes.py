"""Axes of counts, bands inside the range of a metric, and findings in a fixed order."""

from __future__ import annotations

import numpy as np
import pytest

from poise.analysis.reports import Group, compare, sections
from poise.analysis.reports.cohorts import cohort_size_figure, staleness_figure
from poise.analysis.reports.estimates import estimate, estimates
from poise.analysis.reports.figures import learning_curves, participation, weight_map
from poise.analysis.reports.timelines import timeline_figure
from poise.core.directions import bounds_of
from poise.results import Run
from poise.results.drawing import empty_figure
from reports.ledgers import made_run


def few(rounds: int = 3) -> Run:
    return made_run({"accuracy": [0.2, 0.5, 0.9][:rounds]})


def test_few_clients_and_rounds_have_whole_ticks() -> None:
    run = few()
    group = Group("a", (run,))
    drawn = {
        "curves": (learning_curves([group], "accuracy"), "x"),
        "map": (weight_map(run), "xy"),
        "participation": (participation([group]), "xy"),
        "cohorts": (cohort_size_figure(run), "xy"),
        "staleness": (staleness_figure(run), "xy"),
        "timeline": (timeline_figure(run), "y"),
    }
    for name, (figure, axes) in drawn.items():
        for axis in axes:
            assert figure.layout[f"{axis}axis"].dtick == 1, (name, axis)


def test_many_rounds_have_ticks_of_plotly_s_choice() -> None:
    figure = learning_curves([Group("a", (made_run({"loss": [0.5] * 30}),))], "loss")
    assert figure.layout.xaxis.dtick is None
    assert figure.layout.xaxis.tickformat == "d"


def test_the_band_of_a_share_stays_between_0_and_1() -> None:
    # by hand: 0.9 and 1.0 have mean 0.95 and half width 12.7 · 0.0707/√2 = 0.635
    runs = tuple(made_run({"accuracy": [v]}, seed=k) for k, v in enumerate([0.9, 1.0]))
    figure = learning_curves([Group("a", runs)], "accuracy")
    band, mean = figure.data
    assert (min(band.y), max(band.y)) == (pytest.approx(0.95 - 0.63531, abs=1e-5), 1.0)
    assert mean.customdata[0].tolist()[1] == 1.0
    losses = tuple(made_run({"loss": [v]}, seed=k) for k, v in enumerate([0.9, 1.0]))
    band, _ = learning_curves([Group("a", losses)], "loss").data
    assert max(band.y) > 1.5, "a loss has no largest value"


def test_the_spread_over_clients_is_not_negative() -> None:
    values = [np.array([0.1, 0.1]), np.array([0.0, 1.0])]
    runs = tuple(
        made_run({"client_accuracy": [v]}, seed=k, clients=2)
        for k, v in enumerate(values)
    )
    band, _ = learning_curves([Group("a", runs)], "client_accuracy").data
    assert min(band.y) == 0.0
    assert max(band.y) > 1.0, "the spread itself is no share"


def test_a_metric_of_ones_own_that_leaves_the_range_keeps_its_mean() -> None:
    runs = tuple(
        made_run({"own_accuracy": [v]}, seed=k) for k, v in enumerate([90.0, 92.0])
    )
    band, mean = learning_curves([Group("a", runs)], "own_accuracy").data
    assert mean.y.tolist() == [91.0]
    assert max(band.y) == 91.0


def test_ranges_by_name() -> None:
    shares = ("accuracy", "client_accuracy", "balanced-accuracy", "f1-micro", "auroc")
    assert {bounds_of(name) for name in shares} == {(0.0, 1.0)}
    assert bounds_of("r2") == (-np.inf, np.inf), "R² can be negative"
    assert bounds_of("train_rmse") == (0.0, np.inf)


def test_estimates_of_columns_are_those_of_each_column() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 40))
    values[2, 5] = np.nan  # diverged: no interval
    known = rng.random((6, 40)) < 0.6
    known[0] = True
    known[1:, 7] = False  # one seed: no interval
    found = estimates(values, known)
    for k in range(40):
        one = estimate(values[known[:, k], k].tolist())
        assert found.n[k] == one.n
        assert found.mean[k] == pytest.approx(one.mean, nan_ok=True)
        for mine, other in ((found.low[k], one.low), (found.high[k], one.high)):
            expected = np.nan if other is None else other
            assert mine == pytest.approx(expected, nan_ok=True)


def group(label: str, finals: list[float]) -> Group:
    runs = (
        made_run({"accuracy": [0.1, v]}, seed=k, solver={"name": label})
        for k, v in enumerate(finals)
    )
    return Group(label, tuple(runs))


def test_an_interval_has_the_direction_that_the_words_name() -> None:
    high = [0.80, 0.90, 0.85]
    low = [0.60, 0.72, 0.64]  # differences -0.20, -0.18, -0.21
    words = compare([group("a", high), group("b", low)]).contrasts[0].finding
    # by hand: mean 0.19667, s 0.015275, half width 4.3027 · s/√3 = 0.037946
    assert words.startswith(
        "final accuracy is 0.197 lower (95 % CI 0.159 to 0.235, paired"
    )
    words = compare([group("a", low), group("b", high)]).contrasts[0].finding
    assert words.startswith(
        "final accuracy is 0.197 higher (95 % CI 0.159 to 0.235, paired"
    )
    words = (
        compare([group("a", high), group("b", [0.7, 1.0, 0.8])]).contrasts[0].finding
    )
    assert "no significant difference" in words
    assert " lower to " in words
    assert words.count(" higher") == 1


def test_findings_rank_first_and_say_last_what_cannot_be_compared() -> None:
    groups = [
        group("middle", [0.5, 0.5]),
        group("best", [0.9, 0.8]),
        group("worst", [0.2, 0.3]),
        group("broken", [0.2, float("nan")]),
    ]
    page = sections.findings(compare(groups))
    order = [
        "Ranking by final accuracy",
        "<strong>best</strong>",
        "<strong>middle</strong>",
        "<strong>worst</strong>",
        "Without a value: broken",
        "best vs middle",
        "Not comparable",
        "cannot be compared: it is not finite in every run",
    ]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    assert page.rindex("lower") < places[-2]


def test_lower_losses_rank_first() -> None:
    runs = [made_run({"loss": [v]}, solver={"name": str(v)}) for v in (2.0, 1.0)]
    groups = [Group(str(v), (run,)) for v, run in zip((2.0, 1.0), runs, strict=True)]
    page = sections.findings(compare(groups))
    assert page.index("<strong>1.0</strong>") < page.index("<strong>2.0</strong>")


def test_participants_are_those_of_the_contributions() -> None:
    cohorts = [{3: 0.5, 1: 0.5}, {0: 1.0}, {2: 0.3, 3: 0.7}]
    read = made_run({"loss": [1.0] * 3}, cohorts=cohorts)
    expected = [[0, 1], [0, 3], [1, 0], [2, 2], [2, 3]]
    assert read.participants.tolist() == expected
    again = made_run({"loss": [1.0] * 3}, cohorts=cohorts)
    assert len(again.contributions) == 5
    assert again.participants.tolist() == expected
    assert made_run({}).participants.shape == (0, 2)


def test_the_title_of_the_y_axis_makes_room_for_long_names() -> None:
    axis = empty_figure("t", "", "round", "client").layout.yaxis
    assert axis.automargin
    assert axis.title.standoff is not None
