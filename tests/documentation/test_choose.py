"""The page to choose a method names parts that exist, and evidence for and against."""

from __future__ import annotations

import re

import pytest

from documentation.blocks import ROOT
from poise.apps.cli.catalogue import PARTS
from poise.core.parts import parts_of

TEXT = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| situation")
]
CLASSES = {cls.__name__ for slot in PARTS.values() for cls in parts_of(slot).values()}


def test_the_situations_of_the_table() -> None:
    assert len(ROWS) >= 10
    assert all(len(row) == 4 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_choice_links_to_its_evidence(row: list[str]) -> None:
    assert "](" in row[2]
    assert row[3], "nothing speaks against it?"


def test_parts_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([A-Z]\w+)[(`]", TEXT))
    assert {"Exp", "SoftMax", "FixedWindow", "Median"} <= named
    assert named <= CLASSES
