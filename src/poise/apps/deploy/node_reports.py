"""What the nodes of a deployment reported: read from the logs of the latest jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poise.apps.deploy.folder import Deployment

MOST_JOBS = 20
"""How many jobs are read, the latest ones."""

MOST_BYTES = 2**22
"""Size up to which the log of a job is read, from its end."""


@dataclass(frozen=True)
class Refusal:
    """A reply that the server refused.

    Args:
        at: seconds since 1970.
        job: name of the job.
        aggregation: number of the aggregation, from 1.
        reason: why, in words.
    """

    at: float
    job: str
    aggregation: int
    reason: str


@dataclass
class NodeReport:
    """What a node reported in the latest jobs.

    Args:
        release: its version of poise at its last registration; empty if unknown.
        boots: the names of the processes that answered, in order.
        refused: its refused replies, oldest first.
    """

    release: str = ""
    boots: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def restarts(self) -> int:
        """How often another process than before answered."""
        return max(len(self.boots) - 1, 0)


def read_reports(deployment: Deployment) -> dict[int, NodeReport]:
    """The reports of all nodes, by client of the deployment."""
    reports: dict[int, NodeReport] = {}
    logs = sorted(deployment.jobs.glob("*.log"))[-MOST_JOBS:]
    for log in logs:
        for line in log_lines(log):
            _take(line, log.stem, reports)
    return reports


def log_lines(log: Path) -> Iterator[dict[str, Any]]:
    """The lines of a job's log; skips a line that is cut or half written."""
    with log.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(size - MOST_BYTES, 0))
        text = stream.read().decode("utf-8", errors="replace")
    for line in text.splitlines():
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def _take(line: dict[str, Any], job: str, reports: dict[int, NodeReport]) -> None:
    """Enter what a line says of the nodes."""
    for client, release in line.get("releases", {}).items():
        reports.setdefault(int(client), NodeReport()).release = str(release)
    for client, boot in line.get("boots", {}).items():
        boots = reports.setdefault(int(client), NodeReport()).boots
        if not boots or boots[-1] != boot:
            boots.append(str(boot))
    for client, reason in line.get("refused_nodes", ()):
        refusal = Refusal(
            float(line.get("at", 0.0)), job, int(line["round"]) + 1, str(reason)
        )
        reports.setdefault(int(client), NodeReport()).refused.append(refusal)
