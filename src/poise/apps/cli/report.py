"""The verbs ``poise report`` and ``poise compare``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.runner import folders_in, runs_in
from poise.apps.experiments.sweep_folder import is_sweep
from poise.results import Run

if TYPE_CHECKING:
    from poise.analysis.reports.compare import Comparison
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
    from poise.analysis.reports.folder_names import named_by_folder

    return write_page(named_by_folder(group_runs(runs)), out, title)


def write_report(paths: Sequence[Path], out: Path, json: bool) -> None:
    """Write the report page of runs, or of one sweep, and print its path."""
    if len(paths) == 1 and is_sweep(paths[0]):
        _report_sweep(paths[0], out, json)
        return
    runs = [run for path in paths for run in runs_in(path)]
    written = write_page_of(runs, out, "poise report")
    if json:
        print_json({"page": str(written), "runs": [str(r.path) for r in runs]})
        return
    console.print(str(written), markup=False, highlight=False, soft_wrap=True)


def _report_sweep(path: Path, out: Path, json: bool) -> None:
    """Write the page of a sweep and print its path."""
    from poise.apps.experiments.sweep_pages import write_page_of_sweep
    from poise.apps.experiments.sweep_results import open_sweep

    written = write_page_of_sweep(open_sweep(path), out)
    if json:
        print_json({"page": str(written), "runs": [str(r) for r in folders_in(path)]})
        return
    console.print(str(written), markup=False, highlight=False, soft_wrap=True)


def show_comparison(
    paths: Sequence[Path], targets: Sequence[float], pairwise: bool, json: bool
) -> None:
    """Print two groups side by side, or a ranking of more, and what is significant."""
    from poise.analysis.reports import compare, comparison_as_data, group_runs
    from poise.analysis.reports.folder_names import named_by_folder
    from poise.analysis.reports.ranking import main_score, ranking_as_data
    from poise.analysis.reports.rows import rows_by_data
    from poise.analysis.reports.tables import ACROSS

    groups = group_runs(run for path in paths for run in runs_in(path))
    if not json:
        groups = named_by_folder(groups, always=len(groups) <= ACROSS)
    comparison = compare(groups, targets=tuple(targets) or None)
    rows = comparison.rows
    if json:
        score = main_score(rows)
        print_json({**comparison_as_data(comparison), **ranking_as_data(rows, score)})
        return
    if len(rows) <= 2 or main_score(rows) is None:
        _print_scores(rows)
        _print_descriptions(rows)
        _print_lines(comparison.sentences)
        return
    _print_rankings(comparison)
    _print_descriptions(rows)
    if pairwise:
        _print_lines(
            line for same in rows_by_data(rows).values() for line in _pairs(same)
        )
    else:
        _print_lines(["--pairwise compares every two; so does naming two experiments."])


def _print_rankings(comparison: Comparison) -> None:
    """Print a ranking for each data, after a line that says that the data differ."""
    from poise.analysis.reports.ranking import main_score
    from poise.analysis.reports.rows import rows_by_data

    if comparison.other_data:
        _print_lines([comparison.other_data])
    for data, rows in rows_by_data(comparison.rows).items():
        if comparison.other_data:
            _print_lines(["", f"on {data or 'other data'}:"])
        score = main_score(rows)
        if score is not None:
            _print_ranking(rows, score)


def _print_descriptions(rows: Sequence[ScoreRow]) -> None:
    """Print once how experiments with the names of folders differ."""
    width = max(len(row.label) for row in rows)
    _print_lines(
        f"{row.label:{width}}  {row.description}" for row in rows if row.description
    )


def _print_ranking(rows: Sequence[ScoreRow], score: str) -> None:
    """Print the best experiments first, with the scores that fit into the terminal."""
    from poise.analysis.reports.fitted_table import fitted_table
    from poise.analysis.reports.ranking import ranking_heading, ranking_lines

    caption = ""
    if any(len(row.seeds) > 1 for row in rows):
        caption = "mean ± half the width of the 95 % confidence interval over seeds"
    fitted = fitted_table(
        ranking_heading(rows, score),
        ranking_lines(rows, score),
        label=1,
        width=console.width,
        caption=caption,
    )
    console.print(fitted.table)
    if fitted.left_out:
        names = ", ".join(fitted.left_out)
        console.print(
            f"not shown at this width: {names} (--json has all)",
            markup=False,
            highlight=False,
            style="dim",
        )


def _pairs(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for every two experiments, the better one as baseline."""
    from poise.analysis.reports.compare import pairwise
    from poise.analysis.reports.ranking import main_score, ranked

    score = main_score(rows)
    if score is None:
        return []
    return pairwise([rank.row for rank in ranked(rows, score)], score).sentences


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False)
