"""``poise explain``."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from poise.analysis.explain import Explanation
from poise.analysis.explain.bounds_vs_run import Promises
from poise.analysis.explain.wording import HOLDS, Rows, bounds_in_words, constants_in_words, facts
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
    """Explain an experiment and print what was found: figures, conditions, constants, bounds,
    warnings, advice.
    """
    require(
        Path(what).is_dir() or not keep,
        f"{what} is no run folder to keep an explanation in",
        "leave out --keep",
    )
    found = explain_named(
        what, changes, seed=seed, cell=preset.cell, arm=preset.arm, scale=preset.scale
    )
    promises = bounds_of(what, found, changes, seed) if out is not None or keep else None
    page = None if out is None else _page(found, promises, out)
    if keep:
        keep_explanation(folders_in(what)[0], _rows(found), found.warnings, found.advice, promises)
    if json:
        print_json({**found.as_data(), "page": None if page is None else str(page)})
        return
    console.print(_table(found.name, facts(found)))
    if found.conditions:
        console.print(
            _table("conditions of the papers", [(HOLDS[a.holds], a.text) for a in found.conditions])
        )
    if found.constants is not None:
        console.print(_table("constants of the problem", constants_in_words(found)))
    if found.terms:
        console.print(_table("bounds at the end of training", bounds_in_words(found)))
    for kind, texts in (
        ("warning", found.warnings),
        ("advice", found.advice),
        ("note", found.notes),
    ):
        for text in texts:
            console.print(f"{kind}: {text}", markup=False, highlight=False, soft_wrap=True)
    if not found.warnings:
        console.print("no warnings", markup=False, highlight=False)
    if page is not None:
        console.print(str(page), markup=False, highlight=False, soft_wrap=True)


def _page(found: Explanation, promises: Promises | None, out: Path) -> Path:
    """The page of an explanation, with the picture of bound, bias and run where there is one."""
    texts = [*(f"warning: {w}" for w in found.warnings), *(f"advice: {a}" for a in found.advice)]
    return write_explanation(found.name, _rows(found), texts, promises, out)


def _rows(found: Explanation) -> Rows:
    return [*facts(found), *constants_in_words(found), *bounds_in_words(found)]


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold", max_width=36)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table
