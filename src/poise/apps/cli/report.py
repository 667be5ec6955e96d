"""The verbs ``poise report`` and ``poise compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.runner import runs_in
from poise.ledger.run import Run

if TYPE_CHECKING:
    from poise.analysis.reports.rows import ScoreRow


def summarise(runs: Sequence[Run]) -> None:
    """Print the table of scores, and what the scores mean."""
    from poise.analysis.reports import group_runs, score_table

    if runs:
        _print_scores(score_table(group_runs(runs)))


def _print_scores(rows: Sequence[ScoreRow]) -> None:
    from poise.analysis.reports import terminal_notes, terminal_table

    console.print(terminal_table(rows))
    for note in terminal_notes(rows):
        console.print(note, markup=False, highlight=False, style="dim")


def write_page_of(runs: Sequence[Run], out: Path, title: str) -> Path:
    """Write the report page of these runs."""
    from poise.analysis.reports import group_runs, write_page

    return write_page(group_runs(runs), out, title)


def write_report(paths: Sequence[Path], out: Path, json: bool) -> None:
    """Write the report page and print its path."""
    runs = [run for path in paths for run in runs_in(path)]
    written = write_page_of(runs, out, "poise report")
    if json:
        print_json({"page": str(written), "runs": [str(r.path) for r in runs]})
        return
    console.print(str(written), markup=False, highlight=False, soft_wrap=True)


def show_comparison(
    paths: Sequence[Path], targets: Sequence[float], json: bool
) -> None:
    """Print scores side by side, and which differences are significant."""
    from poise.analysis.reports import compare, comparison_as_data, group_runs

    runs = [run for path in paths for run in runs_in(path)]
    comparison = compare(group_runs(runs), targets=tuple(targets) or None)
    if json:
        print_json(comparison_as_data(comparison))
        return
    _print_scores(comparison.rows)
    for sentence in comparison.sentences:
        console.print(sentence, markup=False, highlight=False)
