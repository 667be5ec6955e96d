"""The verb ``poise reproduce``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from poise.apps.cli.terminal import Bar, console, notes, print_json, stoppable
from poise.apps.experiments.claims import ClaimVerdict, judge, paired
from poise.apps.experiments.reproduction import (
    Reproduction,
    Selection,
    load_reproduction,
    presets,
)
from poise.apps.experiments.run_scores import (
    client_similarity,
    rounds_to_targets,
    score,
)
from poise.apps.experiments.unlearning_arms import certificates
from poise.config.run_options import parse_seeds
from poise.results import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from poise.analysis.reports.plots import Plot

Runs = Mapping[tuple[str, str], Sequence[Run]]
Figures = list[dict[str, Any]]
COLUMNS = ("cell", "score", "method", "paper", "ours ± 95 % CI")


def show_presets(json: bool) -> None:
    """List all reproductions."""
    rows = []
    for name in presets():
        reproduction = load_reproduction(name)
        rows.append(
            {
                "name": name,
                "title": reproduction.preset["title"],
                "source": reproduction.preset["source"],
                "small takes": reproduction.minutes,
            }
        )
    if json:
        print_json(rows)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "title", "source", "small takes"):
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def selected(seeds: str, cells: str, arms: str) -> Selection:
    """Return the selection of ``--seeds``, ``--cells`` and ``--arms``.

    >>> selected("100..102", "iid, non-iid", "")
    Selection(seeds=(100, 101, 102), cells=('iid', 'non-iid'), arms=())
    """
    chosen = tuple(parse_seeds(seeds)) if seeds else ()
    return Selection(chosen, cells=_names(cells), arms=_names(arms))


def _names(text: str) -> tuple[str, ...]:
    """Return the names in a list that commas separate."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def reproduce(
    name: str, scale: str, selection: Selection, out: Path | None, json: bool
) -> None:
    """Run a reproduction, compare with the paper's numbers, and check its claims."""
    preset = load_reproduction(name, scale, selection)
    folder = out or Path("runs") / "reproduce" / f"{preset.name}-{scale}"
    runs: dict[tuple[str, str], list[Run]] = {}
    total = sum(len(preset.arms_of(cell)) for cell in preset.cells) * len(preset.seeds)
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        advance = bar.counter(f"{name} ({scale})", total)
        for cell, arm, _, run in preset.runs(
            folder, lambda label, composition: [], stop
        ):
            runs.setdefault((cell, arm), []).append(run)
            advance()
    if stop.raised:
        notes.print(
            f"stopped; finished runs are in {folder}; repeat the command to continue"
        )
        return
    figures = _figures(preset, runs)
    verdicts = [judge(claim, runs) for claim in preset.claims]
    path = folder / f"{name}.html"
    if preset.forgets:
        page = _write_unlearning_page(
            preset, runs, figures=figures, verdicts=verdicts, path=path
        )
    else:
        page = _write_page(preset, runs, path)
    if json:
        print_json(
            {
                "name": name,
                "scale": scale,
                "folder": str(folder),
                "page": str(page),
                "figures": figures,
                "claims": [vars(v) for v in verdicts],
                "unchecked_claims": preset.unchecked_claims,
            }
        )
        return
    _print(preset, figures, verdicts, folder)
    console.print(
        f"report: {page.resolve()}", markup=False, highlight=False, soft_wrap=True
    )


def _write_page(preset: Reproduction, runs: Runs, path: Path) -> Path:
    """Write the report of all runs: one group per cell and arm, with the targets of the preset."""
    from poise.analysis.reports import Group, write_page

    groups = []
    for cell_and_arm, arm_runs in runs.items():
        groups.append(Group(" · ".join(filter(None, cell_and_arm)), tuple(arm_runs)))
    items = (*preset.preset.get("expected", ()), *preset.preset.get("claims", ()))
    scores = [item["score"] for item in items]
    targets = rounds_to_targets(scores)
    first = list(_similarity_plots(runs)) if "homogeneity" in scores else []
    title = str(preset.preset["title"])
    return write_page(groups, path, title=title, targets=targets or None, first=first)


def _similarity_plots(runs: Runs) -> Iterator[Plot]:
    """Misalignments and spectra of every cell, by arm, over all seeds."""
    from poise.analysis.reports.inspection_page import misalignment_plot, spectra_figure
    from poise.analysis.reports.plots import plot_of

    for cell in dict.fromkeys(cell for cell, _ in runs):
        edges = {}
        spectra = {}
        for (run_cell, arm), arm_runs in runs.items():
            if run_cell == cell:
                graphs = [client_similarity(run) for run in arm_runs]
                edges[arm] = np.concatenate([graph.edges for graph in graphs])
                spectra[arm] = np.concatenate([graph.spectrum for graph in graphs])
        suffix = f": {cell}" if cell else ""
        yield misalignment_plot(edges, f"Distribution of the misalignment{suffix}")
        yield plot_of(
            [spectra_figure(spectra, f"Spectra of the similarity graphs{suffix}")], [""]
        )


def _write_unlearning_page(
    preset: Reproduction,
    runs: Runs,
    figures: Figures,
    verdicts: list[ClaimVerdict],
    path: Path,
) -> Path:
    """Write the page of an unlearning comparison: claims, bar charts and all scores."""
    from poise.analysis.reports.comparison_page import bar_plots, comparison_body
    from poise.analysis.reports.page import document, write_whole_page

    charts = []
    for cell in preset.cells:
        charts += _unlearning_charts(preset, runs, cell)
    drawn = bar_plots(charts)
    rows = [
        [
            r["cell"] or "all",
            r["score"],
            r["arm"],
            _paper(r),
            f"{r['ours']:.4g} ± {r['half']:.2g}",
        ]
        for r in figures
    ]
    lead = (
        f"{preset.preset['source']}; scale {preset.scale}; {len(preset.seeds)} seeds."
    )
    claims = [(verdict.text, verdict.holds, verdict.measured) for verdict in verdicts]
    title = str(preset.preset["title"])
    body = comparison_body(
        title, lead, claims=claims, head=COLUMNS, rows=rows, drawn=drawn
    )
    return write_whole_page(path, document(title, body, drawn=True))


def _unlearning_charts(preset: Reproduction, runs: Runs, cell: str) -> list[Figure]:
    """Bar charts of one cell: aggregations and accuracy on F_r, by request and method."""
    from poise.analysis.reports.comparison_page import bars

    arms = preset.arms_of(cell)
    most = max(len(certificates(runs[cell, arm][0])) for arm in arms)
    requests = [str(number) for number in range(1, most + 1)]
    titles = {
        "retraining": "Aggregations spent",
        "forgotten": "Accuracy on the unlearned clients F_r",
    }
    charts = []
    for kind, title in titles.items():
        values = {}
        for arm in arms:
            values[arm] = [
                paired(np.array([score(run, f"{kind}:{r}") for run in runs[cell, arm]]))
                for r in requests
            ]
        heading = ": ".join(filter(None, (title, cell)))
        charts.append(
            bars(heading, "request", y=title, categories=requests, methods=values)
        )
    return charts


def _paper(row: Mapping[str, Any]) -> str:
    """The published figure as text."""
    if row["paper"] is None:
        return ""
    return " – ".join(map(str, np.atleast_1d(row["paper"]).tolist()))


def _figures(preset: Reproduction, runs: Runs) -> Figures:
    """Every score of every cell and arm, with the published figure if there is one."""
    expected = preset.preset.get("expected", ())
    published = {
        (e.get("cell", ""), e["arm"], e["score"]): e["paper"] for e in expected
    }
    claimed = [item["score"] for item in (*expected, *preset.claims)]
    names = list(dict.fromkeys([*claimed, *preset.preset.get("also", ())]))
    rows = []
    for cell in preset.cells:
        for name in names:
            for arm in preset.arms_of(cell):
                values = np.array([score(r, name) for r in runs[cell, arm]])
                if np.isnan(
                    values
                ).all():  # the clients of this cell lack the trait of the score
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
        title=f"{preset.preset['title']} ({preset.preset['source']}; scale "
        f"{preset.scale})",
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
        outcome = "[green]holds[/]" if verdict.holds else "[red]does not hold[/]"
        console.print(f"{outcome}: ", end="")
        console.print(
            f"{verdict.text} ({verdict.measured})", markup=False, highlight=False
        )
    if preset.unchecked_claims:
        notes.print(
            f"{preset.unchecked_claims} claims need cells or arms that were not run"
        )
    notes.print(f"runs: {folder}", markup=False)
