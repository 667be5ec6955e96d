"""The ranking of many experiments: its order, its intervals, and tables that can be read."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from scipy import stats

from poise.analysis.reports import Group, compare, score_table, sections
from poise.analysis.reports.compare import pairwise
from poise.analysis.reports.fitted_table import fitted_table
from poise.analysis.reports.numbers import score_text
from poise.analysis.reports.ranking import (
    main_score,
    ranked,
    ranking_heading,
    ranking_lines,
)
from poise.apps.cli import report
from reports.ledgers import made_run

SEEDS = 3


def group(name: str, finals: list[float], metric: str = "accuracy") -> Group:
    """A group of runs with these final values."""
    runs = [made_run({metric: [0.0, v]}, seed=k) for k, v in enumerate(finals)]
    return Group(name, tuple(runs))


def test_the_best_mean_comes_first_and_the_gap_is_paired() -> None:
    groups = [
        group("low", [0.1, 0.2, 0.3]),
        group("high", [0.7, 0.8, 0.9]),
        group("middle", [0.4, 0.5, 0.9]),
    ]
    ranks = ranked(score_table(groups), "final accuracy")
    assert [rank.row.label for rank in ranks] == ["high", "middle", "low"]
    assert [rank.place for rank in ranks] == [1, 2, 3]
    assert ranks[0].behind_text == "best"
    behind = ranks[1].behind
    assert behind is not None
    # the differences of the pairs are -0.3, -0.3 and 0
    assert behind.mean == pytest.approx(-0.2)
    low, high = stats.t.interval(0.95, df=2, loc=-0.2, scale=0.3 / 3)
    assert (behind.low, behind.high) == pytest.approx((low, high))
    assert ranks[2].behind_text.startswith("-0.6")


def test_small_losses_come_first() -> None:
    groups = [group("a", [2.0], "loss"), group("b", [1.0], "loss")]
    rows = score_table(groups)
    assert main_score(rows) == "final loss"
    ranks = ranked(rows, "final loss")
    assert [rank.row.label for rank in ranks] == ["b", "a"]
    assert ranks[1].behind_text == "+1"


def test_values_that_are_no_numbers_come_last_without_a_place() -> None:
    groups = [group("nan", [float("nan"), 0.9]), group("b", [0.1, 0.1])]
    ranks = ranked(score_table(groups), "final accuracy")
    assert [(rank.row.label, rank.place) for rank in ranks] == [("b", 1), ("nan", None)]


def test_wide_intervals_do_not_hide_the_order() -> None:
    """Means of 0.297, 0.278, 0.276 and 0.275 were shown as 0.3, 0.28, 0.28, 0.3."""
    finals = {"a": 0.297, "b": 0.278, "c": 0.276, "d": 0.275}
    spreads = {"a": 0.09, "b": 0.01, "c": 0.01, "d": 0.085}
    groups = [
        group(name, [mean - spreads[name], mean + spreads[name]])
        for name, mean in finals.items()
    ]
    rows = score_table(groups)
    texts = [rank.score_text for rank in ranked(rows, "final accuracy")]
    assert texts == ["0.297 ± 1.1", "0.278 ± 0.13", "0.276 ± 0.13", "0.275 ± 1.1"]
    shown = sections.findings(compare(groups))
    assert "0.275 ± 1.1" in shown


def test_equal_seeds_have_an_interval_of_zero() -> None:
    (row,) = score_table([group("a", [0.5, 0.5])])
    assert score_text(row.scores["final accuracy"]) == "0.5 ± 0"
    (alone,) = score_table([group("a", [0.5])])
    assert score_text(alone.scores["final accuracy"]) == "0.5"


def test_pairs_are_every_two_once() -> None:
    rows = score_table([group(name, [k / 9, k / 8]) for k, name in enumerate("abcd")])
    contrasts = pairwise(rows, "final accuracy").contrasts
    assert [(c.label, c.baseline) for c in contrasts] == [
        ("b", "a"),
        ("c", "a"),
        ("d", "a"),
        ("c", "b"),
        ("d", "b"),
        ("d", "c"),
    ]


def twelve() -> list[Group]:
    """Twelve experiments with long labels."""
    return [
        group(
            f"sampler=clustered-by-similarity(m={k}, measure=arccos), weighting=exp(alpha=0.{k})",
            [0.5 + k / 100, 0.52 + k / 90, 0.49 + k / 80],
        )
        for k in range(12)
    ]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_twelve_experiments_fit_without_narrow_columns(width: int) -> None:
    rows = score_table(twelve())
    heading = ranking_heading(rows, "final accuracy")
    lines = ranking_lines(rows, "final accuracy")
    made = fitted_table(heading, lines, label=1, width=width)
    console = Console(width=width, file=io.StringIO())
    console.print(made.table)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in printed)
    body = [line for line in printed if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in body]
    shown = len(cells[0])
    assert shown + len(made.left_out) == len(heading)
    assert shown >= 4
    firsts = [row for row in cells if row[0]]
    assert len(firsts) == 12
    for row, line in zip(firsts, lines, strict=True):
        assert row[2:] == list(line[2:shown])  # no cell is cut or wrapped
    widths = [len(part) - 2 for part in re.split("[┳┓]", printed[0][1:])]
    assert widths[1] >= 28
    labels = " ".join(row[1] for row in cells)
    words = {word for line in lines for word in line[1].split()}
    assert any(len(word) <= widths[1] for word in words)
    for word in words:  # words that fit stay whole
        assert word in labels or len(word) > widths[1]


def test_the_command_ranks_more_than_two_and_compares_pairs_where_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = twelve()
    monkeypatch.setattr("poise.analysis.reports.group_runs", lambda runs: groups)
    monkeypatch.setattr(report, "runs_in", lambda path: [])
    said = {}
    for pairs in (False, True):
        console = Console(width=100, file=io.StringIO())
        monkeypatch.setattr(report, "console", console)
        report.show_comparison([], [], pairs, False)
        assert isinstance(console.file, io.StringIO)
        said[pairs] = console.file.getvalue()
    assert " vs " not in said[False]
    assert "--pairwise compares every two" in said[False]
    assert said[True].count(" vs ") == 12 * 11 / 2
