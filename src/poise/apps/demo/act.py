"""`Act`: one part of the demo's story, with its results and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poise.analysis.reports.plots import Plot
from poise.analysis.reports.tables import Grid


@dataclass(frozen=True)
class Act:
    """One part of the story.

    Args:
        title: headline.
        question: the question that the act answers, in one sentence.
        findings: the answer in sentences, from the numbers of the runs.
        table: the numbers.
        note: how to read the table.
        figures: figures of the page.
        python: lines that repeat the act in Python; they build on those of act 1.
        commands: commands that repeat the act, or look at its runs.
        numbers: the results as plain values, for ``--json``.
    """

    title: str
    question: str
    findings: tuple[str, ...]
    table: Grid
    note: str
    figures: tuple[Plot, ...]
    python: str
    commands: tuple[str, ...]
    numbers: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        """The act as plain values for ``--json``, without its figures."""
        return {
            "title": self.title,
            "findings": list(self.findings),
            "table": [list(self.table.heading), *map(list, self.table.body)],
            "python": self.python,
            "commands": list(self.commands),
            **self.numbers,
        }
