"""The verb ``poise audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from poise.analysis.reports.audit_page import write_audit
from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.runner import runs_in
from poise.auditing.audit import Audit, audit
from poise.results import Run

MIN_ROWS = 10
"""Clients in the table if fewer are suspected."""

NOTE = (
    "score: −log10 of the p-value; higher is more suspicious. "
    "p-value: how often an honest client looks at least this suspicious."
)


def show_audit(path: Path, alarm: float, out: Path, json: bool) -> None:
    """Audit a run, or the runs of all seeds; print the suspects and write the page."""
    runs = runs_in(path)
    audits = [(str(run.path), run, audit(run, alarm)) for run in runs]
    page = write_audit(audits, out)
    if json:
        documents = [as_data(name, run, result) for name, run, result in audits]
        print_json({"runs": documents, "page": str(page)})
    else:
        for name, run, result in audits:
            console.print(name, markup=False, highlight=False, soft_wrap=True)
            console.print(_table(run, result))
        console.print(NOTE, markup=False, highlight=False, style="dim")
        console.print(str(page), markup=False, highlight=False, soft_wrap=True)
    for run in runs:
        run.close()


def as_data(name: str, run: Run, result: Audit) -> dict[str, Any]:
    """The audit of one run for ``--json``."""
    return {
        "run": name,
        "rounds": run.rounds,
        "clients": run.clients,
        "alarm": result.alarm,
        "suspects": result.suspects,
        "names": list(result.names),
        "scores": result.scores.tolist(),
        "p_values": result.p_values.tolist(),
        "why": {str(i): result.explain(i) for i in result.suspects},
        "events": [event for event in run.events if event.startswith("audit:")],
    }


def _title(run: Run, client: int) -> str:
    """The number of a client, and its name if it has one."""
    names = run.client_names
    if names and names[client]:
        return f"{client} {names[client]}"
    return str(client)


def _table(run: Run, result: Audit) -> Table:
    """The suspects, followed by the next most suspicious clients."""
    title = (
        f"{len(result.suspects)} of {run.clients} clients suspected after "
        f"{run.rounds} rounds"
    )
    table = Table(title=title, title_justify="left")
    for column in ("client", "score", "p-value"):
        table.add_column(column, justify="right")
    table.add_column("evidence")
    order = sorted(range(run.clients), key=lambda i: -result.scores[i])
    for i in order[: max(len(result.suspects), MIN_ROWS)]:
        evidence = result.explain(i).partition(": ")[2] or result.explain(i)
        score = f"{result.scores[i]:.1f}"
        p_value = f"{result.p_values[i]:.2g}"
        style = None
        if i in result.suspects:
            style = "bold"
        table.add_row(_title(run, i), score, p_value, evidence, style=style)
    return table
