"""The folder of a sweep: ``sweep.json``, a lock, and a run folder per run.

``sweep.json`` holds the plan and the decisions at rungs. Every version of it is written
whole. Everything else is read from the ledgers of the runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from poise.apps.experiments.halving import RungDecision
from poise.apps.experiments.sweep_plan import SweepPlan
from poise.config.experiment import Experiment
from poise.config.sweep_axes import Configuration
from poise.config.sweep_options import SweepOptions
from poise.core.disk import make_folder
from poise.core.errors import InvalidOption, LedgerError
from poise.ledger.files import drop_drafts, write_whole
from poise.ledger.foreign import read_json, read_text
from poise.ledger.lock import Lock
from poise.ledger.store import LOCK, begun, has_ledger
from poise.results import open_run

FILE = "sweep.json"
FORMAT = 1

RunState: TypeAlias = Literal["new", "begun", "done", "diverged", "failed"]
ENDED = ("done", "diverged")


@dataclass(frozen=True)
class RunProgress:
    """How far one run of a sweep is: its state and its recorded rounds."""

    state: RunState
    rounds: int = 0

    @property
    def ended(self) -> bool:
        """Whether the run has come to its end."""
        return self.state in ENDED

    def reached(self, rung: int | None) -> bool:
        """Whether the run has all rounds up to a rung; None is its end."""
        return self.ended or (rung is not None and self.rounds >= rung)


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether a sweep began here."""
        return (self.path / FILE).exists()

    def run_folder(self, name: str, seed: int) -> Path:
        """Return the run folder of a configuration and a seed."""
        return self.path / name / f"seed-{seed}"

    def progress_of(self, name: str, seed: int) -> RunProgress:
        """Return how far a run is, from its ledger."""
        folder = self.run_folder(name, seed)
        if not has_ledger(folder):
            return RunProgress("begun" if begun(folder) else "new")
        with closing(open_run(folder)) as run:
            status = run.meta.get("status", "")
            known: dict[str, RunState] = {s: s for s in (*ENDED, "failed")}  # type: ignore[misc]
            return RunProgress(known.get(status, "begun"), run.rounds)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running this sweep inside the block."""
        try:
            make_folder(self.path)
        except OSError as error:
            message = f"cannot make {self.path}: {error.strerror}"
            raise LedgerError(message) from error
        lock = Lock(self.path / LOCK)
        lock.acquire()
        try:
            drop_drafts(self.path)
            yield
        finally:
            lock.release()

    def begin(self, plan: SweepPlan) -> list[RungDecision]:
        """Record the plan, or raise if the folder has another; return earlier decisions."""
        if begun(self.path):
            raise LedgerError(
                f"{self.path} holds a run already", "choose another folder with --out"
            )
        decisions: list[RungDecision] = []
        if self.exists:
            recorded = self.read()
            _refuse_other_plan(self.path, recorded["plan"], plan.document())
            decisions = self.decisions()
        self.save(plan, decisions)
        return decisions

    def save(self, plan: SweepPlan, decisions: Sequence[RungDecision]) -> None:
        """Write the plan and the decisions so far."""
        file = (
            None
            if plan.experiment.path is None
            else str(plan.experiment.path.absolute())
        )
        document = {
            "format": FORMAT,
            "file": file,
            "plan": plan.document(),
            "decisions": [decision.document() for decision in decisions],
        }
        text = json.dumps(document, indent=1, default=str) + "\n"
        if not self.exists or read_text(self.path / FILE) != text:
            write_whole(self.path / FILE, text.encode())

    def read(self) -> dict[str, Any]:
        """Return the content of ``sweep.json``."""
        file = self.path / FILE
        if not file.exists():
            raise LedgerError(
                f"{self.path} is not the folder of a sweep: it has no {FILE}",
                "name the folder that `poise sweep` made",
            )
        with _readable(file):
            document: dict[str, Any] = dict(read_json(file))
        if document.get("format") != FORMAT:
            raise LedgerError(
                f"{file} has format {document.get('format')!r}, this version reads {FORMAT}",
                "use the version of poise that made the sweep",
            )
        return document

    def plan(self) -> SweepPlan:
        """Return the recorded plan."""
        document = self.read()
        with _readable(self.path / FILE):
            recorded = document["plan"]
            path = None if document["file"] is None else Path(document["file"])
            return SweepPlan(
                Experiment(recorded["experiment"], path=path),
                SweepOptions.from_document(recorded["options"]),
                tuple(Configuration(**entry) for entry in recorded["configurations"]),
                lower_is_better=recorded["lower is better"],
                rounds=recorded["rounds"],
            )

    def decisions(self) -> list[RungDecision]:
        """Return the recorded decisions."""
        document = self.read()
        with _readable(self.path / FILE):
            return [RungDecision.from_document(d) for d in document["decisions"]]


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn errors inside the block, from unexpected content of a file, into `LedgerError`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{file} cannot be read: {type(error).__name__}: {error}",
            "restore it from a backup, or delete it and repeat the sweep: runs are kept",
        ) from error


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return SweepFolder(path).exists


def sweep_runs(path: Path) -> list[Path]:
    """Return the run folders of a sweep that have begun, in the order of its plan."""
    folder = SweepFolder(path)
    plan = folder.plan()
    folders = [
        folder.run_folder(configuration.name, seed)
        for configuration in plan.configurations
        for seed in plan.options.seeds
    ]
    return [run for run in folders if begun(run)]


def _refuse_other_plan(
    path: Path, recorded: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise if a plan neither equals nor extends the recorded one.

    Without rungs, later calls may add values and seeds. With rungs they may not:
    recorded decisions compared the configurations of their time.
    """
    before = json.loads(json.dumps(recorded, default=str))
    after = json.loads(json.dumps(now, default=str))
    if before == after:
        return
    hint = "choose another --out, or repeat the sweep as it began"
    for name in sorted(before["experiment"].keys() | after["experiment"].keys()):
        if before["experiment"].get(name) != after["experiment"].get(name):
            raise InvalidOption(f"{path} began with another [{name}]", hint)
    old, new = before["options"], after["options"]
    for name in ("metric", "rungs", "eta"):
        if old[name] != new[name]:
            raise InvalidOption(f"{path} began with {name} = {old[name]}", hint)
    lost = [
        c["name"] for c in before["configurations"] if c not in after["configurations"]
    ]
    lost += [f"seed {seed}" for seed in old["seeds"] if seed not in new["seeds"]]
    if lost:
        raise InvalidOption(f"{path} began with more: {', '.join(lost)}", hint)
    if old["rungs"]:
        raise InvalidOption(
            f"{path} has rungs: its decisions compared the values and seeds it began with",
            hint,
        )


__all__ = [
    "FILE",
    "RunProgress",
    "RunState",
    "SweepFolder",
    "is_sweep",
    "sweep_runs",
]
