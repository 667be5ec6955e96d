"""The threat model: every claim with a number has a test, and the tests exist."""

from __future__ import annotations

import re

from documentation.blocks import ROOT

CLAIMS, _, TABLE = (ROOT / "docs" / "security.md").read_text().partition("## Tests")
ROWS = re.findall(r"^\| (\d+) \| (.+) \|$", TABLE, re.MULTILINE)


def test_every_number_has_a_row_and_every_row_a_claim() -> None:
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", CLAIMS)]
    assert numbers == [int(number) for number, _ in ROWS]


def test_a_named_test_is_in_its_file() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TABLE)
    assert len(named) >= len(ROWS)
    for path, function in named:
        file = ROOT / path
        if file.exists() and function:
            assert f"def {function}(" in file.read_text(), f"{path}: no {function}"
