"""``poise report`` and ``poise compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.runner import runs_in
from poise.ledger.run import Run


def summarise(runs: Sequence[Run]) -> None:
    """The table of scores, on the terminal."""
    from poise.analysis.reports import group_runs, score_table, terminal_table

    if runs:
        console.print(terminal_table(score_table(group_runs(runs))))


def write_page_of(runs: Sequence[Run], out: Path, title: str) -> Path:
    """The page of some runs."""
    from poise.analysis.reports import group_runs, write_page

    return write_page(group_runs(runs), out, title)


def write_report(paths: Sequence[Path], out: Path, json: bool) -> None:
    """Write the page and say where."""
    runs = [run for path in paths for run in runs_in(path)]
    written = write_page_of(runs, out, "poise report")
    if json:
        print_json({"page": str(written), "runs": [str(r.path) for r in runs]})
        return
    console.print(str(written), markup=False, highlight=False, soft_wrap=True)


def show_comparison(paths: Sequence[Path], targets: Sequence[float], json: bool) -> None:
    """Scores side by side, and which differences are significant."""
    from poise.analysis.reports import compare, comparison_as_data, group_runs, terminal_table

    comparison = compare(
        group_runs([run for path in paths for run in runs_in(path)]), targets=tuple(targets) or None
    )
    if json:
        print_json(comparison_as_data(comparison))
        return
    console.print(terminal_table(comparison.rows))
    for sentence in comparison.sentences:
        console.print(sentence, markup=False, highlight=False)
