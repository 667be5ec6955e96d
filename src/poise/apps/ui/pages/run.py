"""The page of one run, with live updates."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.analysis.reports import score_table, sections
from poise.analysis.reports.bounds_vs_run import kept_explanation
from poise.analysis.reports.groups import group_runs
from poise.apps.ui.library import Library
from poise.apps.ui.node_models import NodeEvent
from poise.apps.ui.shared import Deployments, RunLibrary, RunName, RunTags, page
from poise.apps.ui.views.listing import RunLine, line_of
from poise.apps.ui.views.nodes import run_events
from poise.results import Run

router = APIRouter()

SECTIONS = (
    ("curves", "Learning"),
    ("losses", "Loss over the clients"),
    ("weights", "Weights"),
    ("cohorts", "Cohorts"),
    ("times", "Time and staleness"),
    ("clients", "Clients"),
)
"""The kinds of figures on the page, and their headings."""

MOST_EVENTS = 200


@router.get("/run/{name:path}")
def run(
    request: Request,
    name: RunName,
    library: RunLibrary,
    tags: RunTags,
    known: Deployments,
) -> Response:
    """The page of a run; a script loads the figures."""
    line = line_of(name, library.read_summary(name), tags.all().get(name, ()))
    if line.state == "damaged" or line.clients is None:
        return _unreadable(request, library, name, line)
    folder = library.folder(name)
    kept = library.cached(name, "page", lambda: _read(library, name))
    return page(
        request,
        "run.html",
        line=line,
        name=name,
        here="/run",
        sections=SECTIONS,
        explained=kept_explanation(folder),
        folder=folder,
        nodes=_node_events(folder, known, line),
        **kept,
    )


def _node_events(
    folder: Path, known: tuple[Path, ...], line: RunLine
) -> list[NodeEvent] | None:
    """The events of its nodes during a run; None if no known deployment made it."""
    since = 0.0
    if line.began is not None:
        since = line.began.timestamp()
    until = line.changed.timestamp()
    if line.state == "running":
        until = time.time()
    return run_events(folder, known, since=since, until=until)


def _read(library: Library, name: str) -> dict[str, Any]:
    """The texts and tables of the page."""
    # imports PyTorch, which takes seconds
    from poise.apps.ui.views.federation import on_nodes

    with library.open(name) as run:
        groups = group_runs([run])
        return {
            "parts": sections.what_was_run(groups),
            "scores": sections.scores(score_table(groups)),
            "experiment": run.experiment.strip(),
            "events": run.events[-MOST_EVENTS:],
            "on_nodes": on_nodes(run.experiment),
            "refusals": run.refusals[-MOST_EVENTS:],
            "facts": _facts(run),
            "missing": _missing(library, name, run),
        }


def _facts(run: Run) -> dict[str, object]:
    return {
        "poise": run.meta.get("poise", "unknown"),
        "models kept": len(run.kept),
        "digest": run.digest,
    }


def _missing(library: Library, name: str, run: Run) -> str:
    """The damage, if fewer rounds are readable than were recorded; otherwise empty."""
    if run.rounds < library.read_summary(name).rounds:
        return run.damage
    return ""


def _unreadable(
    request: Request, library: Library, name: str, line: RunLine
) -> Response:
    """The page of a run whose ledger is damaged or does not exist yet."""
    begun = line.state != "damaged"
    status = 200
    if not begun:
        status = 409
    return page(
        request,
        "unreadable.html",
        status,
        line=line,
        name=name,
        here="/run",
        begun=begun,
        folder=library.folder(name),
        experiment=library.read_summary(name).experiment.strip(),
    )
