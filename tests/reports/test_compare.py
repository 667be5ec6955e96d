"""What a comparison claims, and how it is printed."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from poise.analysis.reports import (
    Comparison,
    Group,
    compare,
    comparison_as_data,
    score_table,
    terminal_table,
)
from poise.core.errors import InvalidOption
from reports.ledgers import made_run


def group(label: str, finals: list[float], first_seed: int = 0) -> Group:
    runs = (
        made_run({"accuracy": [0.1, v]}, seed=first_seed + k)
        for k, v in enumerate(finals)
    )
    return Group(label, tuple(runs))


def said(comparison: Comparison, score: str = "final accuracy") -> str:
    return next(c.sentence for c in comparison.contrasts if c.score == score)


def test_matching_seeds_are_paired() -> None:
    words = said(compare([group("a", [0.1, 0.5, 0.9]), group("b", [0.2, 0.61, 1.0])]))
    assert words.startswith("b vs a: final accuracy is 0.103 higher (95 % CI ")
    assert words.endswith("paired over 3 seeds).")


def test_pairs_are_matched_by_seed_not_by_position() -> None:
    shuffled = Group("b", tuple(reversed(group("b", [0.2, 0.6, 1.0]).runs)))
    contrast = compare([group("a", [0.1, 0.5, 0.9]), shuffled]).contrasts[0]
    assert contrast.difference is not None
    assert contrast.difference.half_width == pytest.approx(0, abs=1e-12)


def test_no_significant_difference_is_said_so() -> None:
    words = said(compare([group("a", [0.1, 0.5, 0.9]), group("b", [0.3, 0.4, 0.95])]))
    assert "no significant difference in final accuracy" in words


def test_other_seeds_fall_back_to_welch() -> None:
    words = said(
        compare(
            [group("a", [0.1, 0.11, 0.12]), group("b", [0.9, 0.91, 0.92], first_seed=7)]
        )
    )
    assert "higher" in words
    assert "Welch" in words


@pytest.mark.parametrize(
    ("values", "words"),
    [([0.4], "this proves nothing"), ([0.4, math.nan], "not finite")],
)
def test_what_cannot_be_claimed(values: list[float], words: str) -> None:
    assert words in said(compare([group("a", [0.1] * len(values)), group("b", values)]))


def test_unreached_targets_are_not_compared() -> None:
    comparison = compare(
        [group("a", [0.7, 0.7]), group("b", [0.7, 0.2])], targets=[0.6]
    )
    assert "cannot be compared" in said(comparison, "rounds to accuracy 0.6")
    assert comparison.sentences[-1].startswith("Each interval")


def test_one_group_has_nothing_to_be_held_against() -> None:
    assert compare([group("a", [0.1])]).contrasts == ()
    with pytest.raises(InvalidOption):
        compare([])


def test_json_holds_no_nan() -> None:
    data = comparison_as_data(
        compare([group("a", [0.1, math.nan]), group("b", [0.2, 0.3])])
    )
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text)["groups"][0]["scores"]["final accuracy"]["mean"] is None


@pytest.mark.parametrize("count", [2, 6])
def test_terminal_table_shows_labels_as_they_are(count: int) -> None:
    rows = score_table([group(f"attack=[red]{k}", [0.5, 0.6]) for k in range(count)])
    console = Console(file=io.StringIO(), width=300)
    console.print(terminal_table(rows, "a [b] c"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(f"attack=[red]{k}" in text for k in range(count))
    assert "a [b] c" in text
    assert "0.55 ± 0.64" in text
