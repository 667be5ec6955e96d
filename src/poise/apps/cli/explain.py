"""The verb ``poise explain``."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from poise.analysis.explain import Explanation
from poise.analysis.explain.bounds_vs_run import BoundsVsRun
from poise.analysis.explain.wording import HOLDS, Rows, bound_rows, constant_rows, facts
from poise.analysis.reports.bounds_vs_run import keep_explanation, write_explanation
from poise.apps.cli.options import PresetArm
from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.explanation import bounds_of, explain_named
from poise.apps.experiments.runner import folders_in
from poise.core.errors import require


def show_explanation(
    what: str,
    changes: list[str],
    seed: int | None,
    preset: PresetArm,
    out: Path | None,
    keep: bool,
    json: bool,
) -> None:
    """Explain an experiment: facts, conditions, constants, bounds and warnings."""
    require(
        Path(what).is_dir() or not keep,
        f"--keep needs a run folder, and {what} is not one",
        "leave out --keep",
    )
    explanation = explain_named(
        what, changes, seed=seed, cell=preset.cell, arm=preset.arm, scale=preset.scale
    )
    bounds = None
    if out is not None or keep:
        bounds = bounds_of(what, explanation, changes=changes, seed=seed)
    page = None
    if out is not None:
        page = str(_write_page(explanation, bounds, out))
    if keep:
        keep_explanation(
            folders_in(what)[0],
            _rows(explanation),
            warnings=explanation.warnings,
            advice=explanation.advice,
            curves=bounds,
        )
    if json:
        print_json({**explanation.as_data(), "page": page})
        return
    _print_tables(explanation)
    if page is not None:
        console.print(page, markup=False, highlight=False, soft_wrap=True)


def _print_tables(explanation: Explanation) -> None:
    console.print(_table(explanation.name, facts(explanation)))
    if explanation.conditions:
        rows = [
            (HOLDS[condition.holds], condition.text)
            for condition in explanation.conditions
        ]
        console.print(_table("Conditions of the papers", rows))
    if explanation.constants is not None:
        console.print(_table("Constants of the problem", constant_rows(explanation)))
    if explanation.terms:
        console.print(_table("Bounds at the end of training", bound_rows(explanation)))
    texts_by_kind = {
        "warning": explanation.warnings,
        "advice": explanation.advice,
        "note": explanation.notes,
    }
    for kind, texts in texts_by_kind.items():
        for text in texts:
            console.print(
                f"{kind}: {text}", markup=False, highlight=False, soft_wrap=True
            )
    if not explanation.warnings:
        console.print("no warnings", markup=False, highlight=False)


def _write_page(
    explanation: Explanation, bounds: BoundsVsRun | None, out: Path
) -> Path:
    """Write the page of an explanation, with the figure of bounds and run if any."""
    texts = [f"warning: {text}" for text in explanation.warnings]
    texts += [f"advice: {text}" for text in explanation.advice]
    return write_explanation(
        explanation.name, _rows(explanation), texts=texts, curves=bounds, path=out
    )


def _rows(explanation: Explanation) -> Rows:
    return [*facts(explanation), *constant_rows(explanation), *bound_rows(explanation)]


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold", max_width=36)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table
