"""``poise reproduce``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from poise.apps.cli.terminal import Bar, console, notes, print_json, stoppable
from poise.apps.experiments.claims import ClaimVerdict, client_similarity, judge, paired, score
from poise.apps.experiments.reproduction import Reproduction, load_reproduction, presets
from poise.apps.experiments.unlearning_arms import certificates
from poise.ledger.run import Run

if TYPE_CHECKING:
    from poise.analysis.reports.plots import Plot

Runs = Mapping[tuple[str, str], Sequence[Run]]
Figures = list[dict[str, Any]]
COLUMNS = ("cell", "score", "method", "paper", "ours ± 95 % CI")


def show_presets(json: bool) -> None:
    """What can be reproduced."""
    rows = [
        {
            "name": n,
            "title": load_reproduction(n).preset["title"],
            "source": load_reproduction(n).preset["source"],
            "small takes": load_reproduction(n).minutes,
        }
        for n in presets()
    ]
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
    figures, verdicts = _figures(preset, runs), [judge(c, runs) for c in preset.claims]
    draw = _write_forgetting if preset.forgets else _write_page
    page = draw(preset, runs, figures, verdicts, folder / f"{name}.html")
    if json:
        print_json(
            {
                "name": name,
                "scale": scale,
                "folder": str(folder),
                "page": str(page),
                "figures": figures,
                "claims": [vars(v) for v in verdicts],
            }
        )
        return
    _print(preset, figures, verdicts, folder)
    console.print(f"the page: {page.resolve()}", markup=False, highlight=False, soft_wrap=True)


def _write_page(
    preset: Reproduction, runs: Runs, figures: Figures, verdicts: list[ClaimVerdict], path: Path
) -> Path:
    """The report of all runs, one group for each arm in each cell, with the targets that the preset
    speaks of.
    """
    from poise.analysis.reports import Group, write_page

    groups = [Group(" · ".join(filter(None, key)), tuple(found)) for key, found in runs.items()]
    scores = [
        item["score"]
        for item in (*preset.preset.get("expected", ()), *preset.preset.get("claims", ()))
    ]
    targets = sorted({float(s.partition(":")[2]) for s in scores if s.startswith("rounds_to:")})
    first = list(_likenesses(runs)) if "homogeneity" in scores else []
    return write_page(groups, path, str(preset.preset["title"]), targets or None, first)


def _likenesses(runs: Runs) -> Iterator[Plot]:
    """Misalignments and spectra of every cell, the arms beside each other, all seeds together."""
    from poise.analysis.reports.inspection_page import misalignment_plot, spectra_figure
    from poise.analysis.reports.plots import plot_of

    for cell in dict.fromkeys(cell for cell, _ in runs):
        found = {
            arm: [client_similarity(run) for run in those]
            for (at, arm), those in runs.items()
            if at == cell
        }
        edges = {arm: np.concatenate([one.edges for one in those]) for arm, those in found.items()}
        spectra = {
            arm: np.concatenate([one.spectrum for one in those]) for arm, those in found.items()
        }
        where = f": {cell}" if cell else ""
        yield misalignment_plot(edges, f"Distribution of the misalignment{where}")
        yield plot_of([spectra_figure(spectra, f"Spectra of the similarity graphs{where}")], [""])


def _write_forgetting(
    preset: Reproduction, runs: Runs, figures: Figures, verdicts: list[ClaimVerdict], path: Path
) -> Path:
    """The page of requests to forget: the claims, rounds and accuracy on F_r of every method, and
    all scores.
    """
    from poise.analysis.reports.comparison_page import bar_plots, bars, comparison_body
    from poise.analysis.reports.page import document, write_whole_page

    made = []
    for cell in preset.cells:
        arms = preset.arms_of(cell)
        indices = [
            str(r + 1) for r in range(max(len(certificates(runs[cell, arm][0])) for arm in arms))
        ]
        for kind, words in (
            ("retraining", "Aggregations spent"),
            ("forgotten", "Accuracy on the forgotten clients F_r"),
        ):
            values = {
                arm: [
                    paired(np.array([score(run, f"{kind}:{r}") for run in runs[cell, arm]]))
                    for r in indices
                ]
                for arm in arms
            }
            made.append(
                bars(": ".join(filter(None, (words, cell))), "request", words, indices, values)
            )
    drawn = bar_plots(made)
    rows = [
        [r["cell"] or "all", r["score"], r["arm"], _paper(r), f"{r['ours']:.4g} ± {r['half']:.2g}"]
        for r in figures
    ]
    lead = f"{preset.preset['source']}; scale {preset.scale}; {len(preset.seeds)} seeds."
    judged = [(v.text, v.holds, v.measured) for v in verdicts]
    title = str(preset.preset["title"])
    body = comparison_body(title, lead, claims=judged, head=COLUMNS, rows=rows, drawn=drawn)
    return write_whole_page(path, document(title, body, drawn=True))


def _paper(row: Mapping[str, Any]) -> str:
    """The published figure, as text."""
    return (
        "" if row["paper"] is None else " – ".join(map(str, np.atleast_1d(row["paper"]).tolist()))
    )


def _figures(preset: Reproduction, runs: Runs) -> Figures:
    """Every score of every cell and arm, with the published figure where there is one."""
    published = {
        (e.get("cell", ""), e["arm"], e["score"]): e["paper"]
        for e in preset.preset.get("expected", ())
    }
    spoken_of = [item["score"] for item in (*preset.preset.get("expected", ()), *preset.claims)]
    names = list(dict.fromkeys([*spoken_of, *preset.preset.get("also", ())]))
    rows = []
    for cell in preset.cells:
        for name in names:
            for arm in preset.arms_of(cell):
                values = np.array([score(r, name) for r in runs[cell, arm]])
                if np.isnan(
                    values
                ).all():  # a score of a trait that the clients of this cell do not have
                    continue
                mean, half = paired(values)
                paper = published.get((cell, arm, name))
                rows.append(
                    {
                        "cell": cell,
                        "score": name,
                        "arm": arm,
                        "paper": paper,
                        "ours": mean,
                        "half": half,
                        "seeds": len(values),
                    }
                )
    return rows


def _print(
    preset: Reproduction, figures: Figures, verdicts: list[ClaimVerdict], folder: Path
) -> None:
    table = Table(
        title=f"{preset.preset['title']} ({preset.preset['source']}; scale {preset.scale})",
        title_justify="left",
    )
    for column in COLUMNS:
        table.add_column(column)
    for row in figures:
        table.add_row(
            row["cell"],
            row["score"],
            row["arm"],
            _paper(row),
            f"{row['ours']:.4g} ± {row['half']:.2g}",
        )
    console.print(table)
    for verdict in verdicts:
        console.print(
            f"[{'green' if verdict.holds else 'red'}]{'holds' if verdict.holds else 'does not hold'}[/]: ",
            end="",
        )
        console.print(f"{verdict.text} ({verdict.measured})", markup=False, highlight=False)
    notes.print(f"runs: {folder}", markup=False)
