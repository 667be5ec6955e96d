"""The verb ``poise inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from poise.analysis.reports.graphs import KeptGraph, keep_graph
from poise.analysis.reports.inspection_page import findings, write_inspection
from poise.apps.cli.terminal import Bar, console, print_json
from poise.apps.experiments.inspection import federation_of, inspect
from poise.core.federations import HasDigest


def show_inspection(
    what: str,
    changes: list[str],
    seed: int,
    labels: bool,
    out: Path,
    json: bool,
    keep: Path | None = None,
) -> None:
    """Inspect a federation, print findings, write the page, and ``keep`` the graph."""
    with Bar(quiet=json) as bar:
        advance = bar.counter(f"inspecting {what}", 2)
        federation = federation_of(what, changes, seed)
        advance()
        inspection = inspect(federation, labels)
        advance()
    data = inspection.as_data()
    if keep is not None:
        digest = ""
        if isinstance(federation, HasDigest):
            digest = federation.digest()
        keep_graph(KeptGraph(inspection.graph, data, digest), keep)
    page = write_inspection(
        inspection.name,
        data,
        graph=inspection.graph,
        label_counts=inspection.label_counts,
        path=out,
    )
    if json:
        print_json({**data, "page": str(page)})
        return
    console.print(_table(data))
    console.print(str(page), markup=False, highlight=False, soft_wrap=True)


def _table(data: dict[str, Any]) -> Table:
    table = Table(title=data["federation"], title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in findings(data):
        table.add_row(name, value)
    return table
