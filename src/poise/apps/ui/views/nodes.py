"""The nodes of a deployment on pages: states, certificates, events, the log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from poise.apps.deploy.events import Event, EventLog
from poise.apps.deploy.folder import is_deployment, open_deployment
from poise.apps.deploy.node_reports import log_lines
from poise.apps.deploy.overview import NodeLine, Overview, overview
from poise.apps.ui.library import NoSuchRun
from poise.apps.ui.node_models import (
    DeploymentOf,
    NodeEvent,
    NodeLog,
    NodeOf,
    RefusedReply,
)
from poise.apps.ui.views.listing import duration
from poise.core.errors import LedgerError

MOST_EVENTS = 200
MOST_LOG = 2**16
"""Number of bytes of the log that a page shows, from its end."""


def deployment_at(known: tuple[Path, ...], number: int) -> Path:
    """A deployment of the console, by its number from 0."""
    if not 0 <= number < len(known):
        raise NoSuchRun(
            f"the console has no deployment {number}",
            "start the console with --deployment DIR, once for each deployment",
        )
    return known[number]


def deployment_view(folder: Path, number: int) -> DeploymentOf:
    """Everything that the page of a deployment shows."""
    try:
        seen = overview(folder)
    except OSError as error:
        raise LedgerError(
            f"cannot read {error.filename}: {error.strerror}",
            "run the console as the user who runs the deployment",
        ) from error
    now = time.time()
    return DeploymentOf(
        number=number,
        name=folder.name,
        folder=str(folder),
        status=seen.status,
        warnings=seen.warnings(now),
        watched=_moment(seen.looked or None),
        processes=seen.processes,
        certificate=_moment(seen.certificate),
        authority=_moment(seen.authority),
        nodes=[_node(line, now) for line in seen.nodes],
        events=_events(seen),
    )


def supervisor_log(folder: Path) -> NodeLog:
    """The end of the supervisor's log; it holds no secrets."""
    file = open_deployment(folder).logs / "supervisor.log"
    text = ""
    with suppress(FileNotFoundError), file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - MOST_LOG, 0))
        text = stream.read().decode("utf-8", errors="replace")
        if size > MOST_LOG:
            text = text.partition("\n")[2]
    return NodeLog(file=str(file), text=text)


def run_events(
    run: Path, known: Iterable[Path], since: float, until: float
) -> list[NodeEvent] | None:
    """The events of a run's nodes; None if no deployment of the console made the run.

    Args:
        run: folder of the run.
        known: the deployments of the console.
        since: when the run started, in seconds since 1970.
        until: when its ledger was last written.
    """
    for folder in known:
        if is_deployment(folder) and _made(folder, run.resolve()):
            events = EventLog(open_deployment(folder).server).read(since=since)
            during = [event for event in events if event.at <= until]
            return [_event(event) for event in during[-MOST_EVENTS:]]
    return None


def _made(folder: Path, run: Path) -> bool:
    """Whether a job of a deployment made, resumed or unlearned a run."""
    for job in sorted(open_deployment(folder).jobs.glob("*.json"), reverse=True):
        with suppress(OSError, ValueError):
            order = json.loads(job.read_text(encoding="utf-8"))
            places = [order.get(key) for key in ("out", "resume", "unlearn")]
            if any(place and run.is_relative_to(place) for place in places):
                return True
        with suppress(OSError):
            lines = log_lines(job.with_suffix(".log"))
            if any(line.get("run") == str(run) for line in lines):
                return True
    return False


def _node(line: NodeLine, now: float) -> NodeOf:
    ago = "never"
    if line.last_seen is not None:
        ago = f"{duration(max(now - line.last_seen, 0.0))} ago"
    return NodeOf(
        client=line.client,
        state=line.state,
        last_seen=_moment(line.last_seen),
        ago=ago,
        here=line.starts is not None,
        restarts=line.restarts,
        release=line.release or None,
        certificate=_moment(line.certificate),
        refused=[
            RefusedReply(
                at=_moment(refusal.at or None),
                job=refusal.job,
                aggregation=refusal.aggregation,
                reason=refusal.reason,
            )
            for refusal in line.refused
        ],
    )


def _events(seen: Overview) -> list[NodeEvent]:
    """The latest events, newest first."""
    return [_event(event) for event in seen.events[: -MOST_EVENTS - 1 : -1]]


def _event(event: Event) -> NodeEvent:
    at = datetime.fromtimestamp(event.at, UTC)
    return NodeEvent(at=at, text=event.text, client=event.client, trouble=event.trouble)


def _moment(at: float | None) -> datetime | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC)
