"""The table of reading habits counts what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import house

SAMPLE = '''"""A module; with a semicolon in its text."""
from typing import Any

def many(a, b, c, d, e, f, g, h: Any, *, i: Any = None): ...

class Twice:
    def seven(self, a, b, c, d, e, f, g: Any | None): ...

class Twice: ...

found, seen = 1, 2
first = 1; second = 2; third = 3  # fmt: skip
many(1, 2, 3, 4, 5, 6)
many(1, 2, 3, 4, 5, f=6)
hasattr(first, "x") and getattr(first, "x")
value = 1 if first else 2 if second else 3
'''


@pytest.fixture
def counts() -> house.Counts:
    counted = house.Counts()
    house.count_text(counted, SAMPLE, "sample.py")
    return counted


def test_every_habit_of_the_sample_is_counted(counts: house.Counts) -> None:
    assert counts.lines == 16
    assert (counts.conditionals, counts.nested_conditionals) == (2, 1)
    assert (counts.packed, counts.semicolons, counts.format_skips) == (1, 2, 1)
    assert (counts.long_calls, counts.attribute_guesses) == (1, 2)
    assert counts.bare_any == 2  # h and i; `Any | None` is not bare
    assert counts.throw_away_names == 2


def test_names_are_listed(counts: house.Counts) -> None:
    assert counts.worst_signatures() == [(9, "sample.py:many")]  # self is no parameter
    assert counts.repeated_classes() == {"Twice": ["sample.py", "sample.py"]}


@pytest.mark.parametrize(
    ("columns", "over_88", "over_100"),
    [(88, 0, 0), (89, 1, 0), (100, 1, 0), (101, 1, 1)],
)
def test_columns_count_from_the_first_beyond(
    columns: int, over_88: int, over_100: int
) -> None:
    counted = house.Counts()
    house.count_text(counted, "#" * columns, "sample.py")
    assert (counted.over_88, counted.over_100) == (over_88, over_100)


def test_a_file_of_350_lines_is_not_long() -> None:
    counted = house.Counts()
    house.count_text(counted, "\n" * 350, "short.py")
    house.count_text(counted, "\n" * 351, "long.py")
    assert counted.long_files == ["long.py (351)"]


def test_rates_are_per_thousand_lines() -> None:
    rows = house.rows(house.Counts(lines=2000, over_88=3, conditionals=50, packed=1))
    assert rows["lines over 88 columns, per 1,000"] == 1.5
    assert rows["conditional expressions, per 1,000"] == 25
    assert rows["packed a, b = x, y, per 1,000"] == 0.5


def test_rows_of_peers_are_rows_of_the_table() -> None:
    names = house.rows(house.Counts())
    assert all(set(peer) <= set(names) for peer in house.PEERS.values())


def test_the_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sample.py").write_text(SAMPLE, encoding="utf-8")
    house.main(["--json", "--root", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    assert document["rows"]["class names defined more than once"] == 1
    assert document["counts"]["long_signatures"] == [[9, "src/sample.py:many"]]
