"""The summary of a run: its state and newest values, from a few rows of its ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from poise.core.errors import LedgerError
from poise.ledger.foreign import (
    MOST_ROUNDS,
    check_folder,
    check_meta,
    read_text,
    readable,
)
from poise.ledger.lock import held
from poise.ledger.store import DATABASE, EXPERIMENT, LOCK, Ledger

State: TypeAlias = Literal["running", "done", "stopped", "failed", "damaged"]
Stamp: TypeAlias = tuple[tuple[int, int], ...]

CERTIFICATE = "certificate.json"
"""The file in a branch whose unlearning request is fulfilled."""

LATEST = 20
"""Number of newest aggregations that pace and speed are averaged over."""


@dataclass(frozen=True)
class RunSummary:
    """The state and the newest values of a run.

    Args:
        state: ``stopped`` if the run's process died, even if the ledger says
            ``running``.
        trouble: why the run cannot be read, or how it failed; else empty.
        experiment: the text of the experiment file.
        meta: metadata of the run.
        rounds: number of recorded aggregations.
        time: simulated time of the newest aggregation; 0 before the first.
        scores: scalar metrics at their last measurement; nan where the run diverged.
        pace: seconds per aggregation, mean over the newest; 0 where unknown.
        speed: simulated time per aggregation, mean over the newest; 0 where unknown.
        changed: when the ledger was last written, in seconds since 1970.
        seconds: real time spent on all aggregations, in seconds.
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
    seconds: float = 0.0


def stamp(folder: Path) -> Stamp:
    """Return times and sizes of the files of a run, to detect changes."""
    stamps = []
    for name in (DATABASE, f"{DATABASE}-wal", EXPERIMENT, CERTIFICATE):
        file_stamp = (0, 0)
        try:
            status = (folder / name).lstat()
            if status.st_size:  # readers leave an empty log, which is no change
                file_stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            pass
        stamps.append(file_stamp)
    return tuple(stamps)


def read_summary(folder: Path) -> RunSummary:
    """Summarise a run folder; problems of its ledger go into the summary."""
    changed = max(time for time, _ in stamp(folder)) / 1e9
    try:
        check_folder(folder)
        experiment = read_text(folder / EXPERIMENT)
    except LedgerError as error:
        return _damaged(error, "", changed)
    except (OSError, UnicodeDecodeError):
        experiment = ""
    writing = held(folder / LOCK)
    if not (
        folder / DATABASE
    ).exists():  # the run has just begun, or was killed at once
        state: State = "stopped"
        if writing:
            state = "running"
        return RunSummary(state, trouble="", experiment=experiment, meta={})
    try:
        ledger = Ledger.open(folder)
    except LedgerError as error:
        return _damaged(error, experiment, changed)
    try:
        with readable(folder / DATABASE), ledger.guard():
            summary = _summarise(ledger, experiment, writing=writing, changed=changed)
    except LedgerError as error:
        return _damaged(error, experiment, changed)
    finally:
        ledger.close()
    if summary.state == "stopped" and (folder / CERTIFICATE).exists():
        return replace(summary, state="done")  # the request is fulfilled
    return summary


def _damaged(error: LedgerError, experiment: str, changed: float) -> RunSummary:
    return RunSummary(
        "damaged", str(error), experiment=experiment, meta={}, changed=changed
    )


def _summarise(
    ledger: Ledger, experiment: str, *, writing: bool, changed: float
) -> RunSummary:
    """Summarise an open ledger."""
    database = ledger.database
    meta = ledger.meta()
    check_meta(meta)
    rounds = ledger.rounds()
    if not 0 <= rounds <= MOST_ROUNDS:
        raise ValueError(f"{rounds} is no number of rounds")
    state = _state(meta.get("status", ""), writing)
    first = rounds - 1 - LATEST
    rows = database.execute(
        "SELECT time FROM rounds WHERE n >= ? ORDER BY n", (first,)
    ).fetchall()
    times = [float(time) for (time,) in rows]
    speed = sum(times)
    if len(times) > 1:
        speed = (times[-1] - times[0]) / (len(times) - 1)
    query = "SELECT avg(seconds) FROM timings WHERE n >= ?"
    (pace,) = database.execute(query, (rounds - LATEST,)).fetchone()
    (seconds,) = database.execute("SELECT sum(seconds) FROM timings").fetchone()
    return RunSummary(
        state=state,
        trouble=_last_failure(ledger) if state == "failed" else "",
        experiment=experiment or meta.get("experiment", ""),
        meta=meta,
        rounds=rounds,
        time=times[-1] if times else 0.0,
        scores=_last_scores(ledger),
        pace=float(pace or 0.0),
        speed=speed,
        changed=changed,
        seconds=float(seconds or 0.0),
    )


def _state(status: str, writing: bool) -> State:
    """Return the state, from the recorded status and the lock of the run."""
    if status == "done":
        return "done"
    if status in ("failed", "diverged"):
        return "failed"
    if writing and status == "running":
        return "running"
    return "stopped"


def _last_failure(ledger: Ledger) -> str:
    """Return the newest failure that the ledger records; empty if there is none."""
    failures = [
        event
        for event in ledger.events()
        if event.startswith(("failed: ", "diverged: "))
    ]
    if failures:
        return failures[-1].removeprefix("failed: ")
    return ""


def _last_scores(ledger: Ledger) -> dict[str, float]:
    """Return the scalar metrics of the newest measured round; NULL is nan."""
    (last,) = ledger.database.execute("SELECT max(n) FROM metrics").fetchone()
    query = "SELECT name, value FROM metrics WHERE n = ? AND per_client IS NULL"
    scores = {}
    for name, value in ledger.database.execute(query, (last,)):
        scores[name] = math.nan if value is None else float(value)
    return scores
