"""`Stage`: the folder, the seeds and the runs of a demo."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from poise.apps.experiments.runner import run_experiment, runs_in
from poise.config.experiment import Experiment, load
from poise.config.presets import DEMO
from poise.core.errors import LedgerError
from poise.core.types import Record
from poise.ledger.files import write_whole
from poise.ledger.foreign import read_text
from poise.ledger.store import begun
from poise.results import Run

Advance = Callable[[], None]
"""Advance a progress bar by one step."""

Counter = Callable[[str, int], Advance]
"""Open a progress bar with a label and a number of steps."""

EXPERIMENTS = tuple(sorted(file.stem for file in DEMO.glob("*.toml")))
"""The experiments of the demo, by the names of their files."""


class DemoStopped(Exception):
    """The user asked to stop; finished runs stay on disk."""


@dataclass(frozen=True)
class Stage:
    """Where the acts find their experiments, and where their runs go.

    Args:
        out: the folder of experiment files and runs.
        seeds: the seeds of every experiment.
        count: opens a progress bar.
        stop: whether the user asked to stop.
    """

    out: Path
    seeds: tuple[int, ...]
    count: Counter = lambda label, total: lambda: None
    stop: Callable[[], bool] = lambda: False

    @property
    def first(self) -> int:
        """The seed whose federation and run the acts show."""
        return self.seeds[0]

    def file(self, name: str) -> Path:
        """The experiment file of an experiment."""
        return self.out / f"{name}.toml"

    def experiment(self, name: str) -> Experiment:
        """An experiment, from its file."""
        return load(self.file(name))

    def folder(self, name: str) -> Path:
        """The run of an experiment with the first seed."""
        return self.out / name / f"seed-{self.first}"

    def quoted(self, *parts: object) -> str:
        """A path below the folder, as a word of a shell command."""
        return shlex.quote(str(self.out.joinpath(*map(str, parts))))

    def runs(self, label: str, names: Sequence[str]) -> dict[str, list[Run]]:
        """Train experiments with every seed; returns the runs by experiment."""
        experiments = {name: self.experiment(name) for name in names}
        total = sum(map(_rounds, experiments.values())) * len(self.seeds)
        advance = self.count(label, total)
        return {
            name: self._train(experiment, name, advance)
            for name, experiment in experiments.items()
        }

    def recorded(self, name: str) -> list[Run]:
        """The runs of an experiment that an earlier act trained, in order of the seeds."""
        return runs_in(self.out / name)

    def require_going_on(self) -> None:
        """Raise `DemoStopped` if the user asked to stop."""
        if self.stop():
            raise DemoStopped

    def _train(self, experiment: Experiment, name: str, advance: Advance) -> list[Run]:
        def observe(record: Record) -> None:
            advance()

        runs = run_experiment(
            experiment,
            self.out / name,
            seeds=self.seeds,
            observe=lambda seed, composition: [observe],
            stop=self.stop,
        )
        self.require_going_on()
        return runs


def _rounds(experiment: Experiment) -> int:
    """The number of aggregations of a run; FedFix makes one per unit of time."""
    table = experiment.table("run")
    if "rounds" in table:
        return int(table["rounds"])
    durations = experiment.table("clock")["durations"]
    window = experiment.table("clock").get("dt", max(durations))
    return int(table["time"] / window)


def prepare(out: Path) -> None:
    """Write the experiment files, and delete the runs of an earlier demo.

    Refuses a folder with files that a demo did not write, or that changed since.
    """
    texts = {
        out / f"{name}.toml": (DEMO / f"{name}.toml").read_text(encoding="utf-8")
        for name in EXPERIMENTS
    }
    for file, text in texts.items():
        if os.path.lexists(file) and not _holds(file, text):
            raise LedgerError(
                f"{file} is not the file that the demo writes",
                "choose another --out, or move the file away",
            )
    for folder in [folder for name in EXPERIMENTS for folder in (out / name).glob("*")]:
        if not begun(folder):
            raise LedgerError(
                f"{folder} is not a run of an earlier demo", "choose another --out"
            )
    for name in EXPERIMENTS:
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_whole(file, text.encode())


def _holds(file: Path, text: str) -> bool:
    """Whether this is a regular file with this text."""
    try:
        return read_text(file) == text
    except (OSError, ValueError):
        return False
