"""``poise reproduce``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from poise.cli.terminal import Bar, console, notes, print_json, stoppable
from poise.experiments.claims import Verdict, judge, likeness, paired, score
from poise.experiments.reproduction import Reproduction, load_reproduction, presets
from poise.ledger.run import Run

if TYPE_CHECKING:
    from poise.reports.plots import Plot

Runs = Mapping[tuple[str, str], Sequence[Run]]


def show_presets(json: bool) -> None:
    """What can be reproduced."""
    rows = [{"name": n, "title": load_reproduction(n).preset["title"], "source": load_reproduction(n).preset["source"],
             "small takes": load_reproduction(n).minutes} for n in presets()]  # fmt: skip
    if json:
        print_json(rows)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "title", "source", "small takes"):
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def reproduce(name: str, scale: str, out: Path | None, json: bool) -> None:
    """Run a preset, put the paper's figures beside ours, and say which claims hold."""
    preset = load_reproduction(name, scale)
    folder = out or Path("runs") / "reproduce" / f"{preset.name}-{scale}"
    runs: dict[tuple[str, str], list[Run]] = {}
    total = sum(len(preset.arms_of(cell)) for cell in preset.cells) * len(preset.seeds)
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        advance = bar.counter(f"{name} ({scale})", total)
        for cell, arm, _, run in preset.runs(folder, lambda label, composition: [], stop):
            runs.setdefault((cell, arm), []).append(run)
            advance()
    if stop.raised:
        notes.print(f"stopped; the runs so far are in {folder}, the same command goes on with them")
        return
    figures, verdicts = _figures(preset, runs), [judge(c, runs) for c in preset.preset.get("claims", ())]
    page = _write_page(preset, runs, folder / f"{name}.html")
    if json:
        print_json({"name": name, "scale": scale, "folder": str(folder), "page": str(page), "figures": figures,
                    "claims": [vars(v) for v in verdicts]})  # fmt: skip
        return
    _print(preset, figures, verdicts, folder)
    console.print(f"the page: {page.resolve()}", markup=False, highlight=False, soft_wrap=True)


def _write_page(preset: Reproduction, runs: Runs, path: Path) -> Path:
    """The report of all runs, one group for each arm in each cell, with the targets that the preset speaks of."""
    from poise.reports import Group, write_page

    groups = [Group(" · ".join(filter(None, key)), tuple(found)) for key, found in runs.items()]
    scores = [item["score"] for item in (*preset.preset.get("expected", ()), *preset.preset.get("claims", ()))]
    targets = sorted({float(s.partition(":")[2]) for s in scores if s.startswith("rounds_to:")})
    first = list(_likenesses(runs)) if "homogeneity" in scores else []
    return write_page(groups, path, str(preset.preset["title"]), targets or None, first)


def _likenesses(runs: Runs) -> Iterator[Plot]:
    """Misalignments and spectra of every cell, the arms beside each other, all seeds together."""
    from poise.reports.heterogeneity import misalignment_plot, spectra_figure
    from poise.reports.plots import plot_of

    for cell in dict.fromkeys(cell for cell, _ in runs):
        found = {arm: [likeness(run) for run in those] for (at, arm), those in runs.items() if at == cell}
        edges = {arm: np.concatenate([one.edges for one in those]) for arm, those in found.items()}
        spectra = {arm: np.concatenate([one.spectrum for one in those]) for arm, those in found.items()}
        where = f": {cell}" if cell else ""
        yield misalignment_plot(edges, f"Distribution of the misalignment{where}")
        yield plot_of([spectra_figure(spectra, f"Spectra of the similarity graphs{where}")], [""])


def _figures(preset: Reproduction, runs: Runs) -> list[dict[str, Any]]:
    """Every score of every cell and arm, with the published figure where there is one."""
    published = {(e.get("cell", ""), e["arm"], e["score"]): e["paper"] for e in preset.preset.get("expected", ())}
    names = list(dict.fromkeys(
        [e["score"] for e in preset.preset.get("expected", ())] + [c["score"] for c in preset.preset.get("claims", ())]
    ))  # fmt: skip
    rows = []
    for cell in preset.cells:
        for name in names:
            for arm in preset.arms_of(cell):
                values = np.array([score(r, name) for r in runs[cell, arm]])
                if np.isnan(values).all():  # a score of a trait that the clients of this cell do not have
                    continue
                mean, half = paired(values)
                paper = published.get((cell, arm, name))
                rows.append({"cell": cell, "score": name, "arm": arm, "paper": paper, "ours": mean, "half": half,
                             "seeds": len(values)})  # fmt: skip
    return rows


def _print(preset: Reproduction, figures: list[dict[str, Any]], verdicts: list[Verdict], folder: Path) -> None:
    table = Table(
        title=f"{preset.preset['title']} ({preset.preset['source']}; scale {preset.scale})", title_justify="left"
    )
    for column in ("cell", "score", "method", "paper", "ours ± 95 % CI"):
        table.add_column(column)
    for row in figures:
        paper = "" if row["paper"] is None else " – ".join(map(str, np.atleast_1d(row["paper"]).tolist()))
        table.add_row(row["cell"], row["score"], row["arm"], paper, f"{row['ours']:.4g} ± {row['half']:.2g}")
    console.print(table)
    for verdict in verdicts:
        console.print(
            f"[{'green' if verdict.holds else 'red'}]{'holds' if verdict.holds else 'does not hold'}[/]: ", end=""
        )
        console.print(f"{verdict.text} ({verdict.measured})", markup=False, highlight=False)
    notes.print(f"runs: {folder}", markup=False)
