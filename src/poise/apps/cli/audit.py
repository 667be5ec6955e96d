"""``poise audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from poise.analysis.reports.audit_page import write_audit
from poise.apps.cli.terminal import console, print_json
from poise.apps.experiments.runner import runs_in
from poise.auditing.audit import Audit, audit
from poise.ledger.run import Run

MOST = 10
"""Clients that the table names where fewer are suspected."""


def show_audit(path: Path, alarm: float, out: Path, json: bool) -> None:
    """Audit a run, or those of all seeds; print who is suspected and why, write the page."""
    runs = runs_in(path)
    found = [(str(run.path), run, audit(run, alarm)) for run in runs]
    page = write_audit(found, out)
    if json:
        print_json(
            {"runs": [as_data(name, run, one) for name, run, one in found], "page": str(page)}
        )
    else:
        for name, run, one in found:
            console.print(name, markup=False, highlight=False, soft_wrap=True)
            console.print(_table(run, one))
        console.print(str(page), markup=False, highlight=False, soft_wrap=True)
    for run in runs:
        run.close()


def as_data(name: str, run: Run, found: Audit) -> dict[str, Any]:
    """What ``--json`` prints of one run."""
    return {
        "run": name,
        "rounds": run.rounds,
        "clients": run.clients,
        "alarm": found.alarm,
        "suspects": found.suspects,
        "scores": found.scores.tolist(),
        "p_values": found.p_values.tolist(),
        "why": {str(i): found.explain(i) for i in found.suspects},
        "events": [e for e in run.events if e.startswith("audit:")],
    }


def _table(run: Run, found: Audit) -> Table:
    """The suspects, and the clients that come next."""
    title = f"{len(found.suspects)} of {run.clients} clients suspected after {run.rounds} rounds"
    table = Table(title=title, title_justify="left")
    for column, justify in (
        ("client", "right"),
        ("score", "right"),
        ("p", "right"),
        ("why", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    order = sorted(range(run.clients), key=lambda i: -found.scores[i])
    for i in order[: max(len(found.suspects), MOST)]:
        why = found.explain(i).partition(": ")[2] or found.explain(i)
        style = "bold" if i in found.suspects else None
        table.add_row(
            str(i), f"{found.scores[i]:.1f}", f"{found.p_values[i]:.2g}", why, style=style
        )
    return table
