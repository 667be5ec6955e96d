"""What a run says at a read_summary: a few rows of its ledger, however long it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from poise.core.errors import LedgerError
from poise.ledger.lock import held
from poise.ledger.store import DATABASE, EXPERIMENT, LOCK, Ledger

State: TypeAlias = Literal["running", "done", "stopped", "failed", "damaged"]
Stamp: TypeAlias = tuple[tuple[int, int], ...]

CERTIFICATE = "certificate.json"
"""Lies in a run that honoured a request to forget: it stopped because it had reached what was
asked."""

REQUEST = "request.json"
"""Lies in a run that was made by a request to forget: what was asked, and what was decided about
it."""

LATEST = 20
"""Aggregations whose pace is taken for that of the next ones."""


@dataclass(frozen=True)
class RunSummary:
    """A run, without reading it.

    Args:
        state: a run whose process died is stopped, whatever it last said of itself.
        trouble: why it cannot be read, or how it failed; else empty.
        experiment: the experiment file.
        meta: facts about the run.
        rounds: aggregations recorded.
        time: simulated time of the newest one; 0 before the first.
        scores: scalar metrics at their last measurement; not a number where the run diverged.
        pace: seconds per aggregation, mean over the latest; 0 where none is known.
        speed: simulated time per aggregation, likewise.
        changed: when the ledger was last written, in seconds since 1970.
    """

    state: State
    trouble: str
    experiment: str
    meta: dict[str, str]
    rounds: int = 0
    time: float = 0.0
    scores: dict[str, float] | None = None
    pace: float = 0.0
    speed: float = 0.0
    changed: float = 0.0


def stamp(folder: Path) -> Stamp:
    """What changes whenever the ledger, the experiment or a certificate does: times and sizes of
    files; cheap.
    """
    found = []
    for name in (DATABASE, f"{DATABASE}-wal", EXPERIMENT, CERTIFICATE):
        try:
            facts = (folder / name).stat()
            found.append(
                (facts.st_mtime_ns, facts.st_size) if facts.st_size else (0, 0)
            )  # readers leave an empty log
        except OSError:
            found.append((0, 0))
    return tuple(found)


def read_summary(folder: Path) -> RunSummary:
    """Look at a run folder; what is wrong with a ledger is told, not raised."""
    try:
        experiment = (folder / EXPERIMENT).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        experiment = ""
    writing = held(folder / LOCK)
    if not (folder / DATABASE).exists():  # killed, or looked at, in its first moments
        return RunSummary("running" if writing else "stopped", "", experiment, {})
    changed = max(time for time, _ in stamp(folder)) / 1e9
    try:
        ledger = Ledger.open(folder)
    except LedgerError as error:
        return RunSummary("damaged", str(error), experiment, {}, changed=changed)
    try:
        with ledger.guard():
            found = _look(ledger, experiment, writing, changed)
            honoured = found.state == "stopped" and (folder / CERTIFICATE).exists()
            return replace(found, state="done") if honoured else found
    except LedgerError as error:
        return RunSummary("damaged", str(error), experiment, {}, changed=changed)
    finally:
        ledger.close()


def _look(ledger: Ledger, experiment: str, writing: bool, changed: float) -> RunSummary:
    database, meta, rounds = ledger.database, ledger.meta(), ledger.rounds()
    status = meta.get("status", "")
    state: State = "running" if writing and status == "running" else "stopped"
    if status in ("done", "failed"):
        state = status  # type: ignore[assignment]
    failures = [e for e in ledger.events() if e.startswith("failed: ")] if state == "failed" else []
    (last,) = database.execute("SELECT max(n) FROM metrics").fetchone()
    found = database.execute(
        "SELECT name, value FROM metrics WHERE n = ? AND per_client IS NULL", (last,)
    ).fetchall()
    scores = {name: math.nan if value is None else float(value) for name, value in found}
    times = database.execute(
        "SELECT time FROM rounds WHERE n >= ? ORDER BY n", (rounds - 1 - LATEST,)
    ).fetchall()
    passed = [float(t) for (t,) in times]
    query = "SELECT avg(seconds) FROM timings WHERE n >= ?"
    (pace,) = database.execute(query, (rounds - LATEST,)).fetchone()
    speed = (passed[-1] - passed[0]) / (len(passed) - 1) if len(passed) > 1 else sum(passed)
    return RunSummary(
        state=state,
        trouble=failures[-1].removeprefix("failed: ") if failures else "",
        experiment=experiment or meta.get("experiment", ""),
        meta=meta,
        rounds=rounds,
        time=passed[-1] if passed else 0.0,
        scores=scores,
        pace=float(pace or 0.0),
        speed=speed,
        changed=changed,
    )
