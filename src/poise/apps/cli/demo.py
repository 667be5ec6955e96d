"""The verb ``poise demo``: a first comparison on data that needs no download."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from poise.apps.cli.report import summarise, write_page_of
from poise.apps.cli.terminal import Bar, StopFlag, console, notes, print_json, stoppable
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import Experiment, load
from poise.config.presets import DEMO
from poise.core.errors import LedgerError
from poise.ledger.run import Run
from poise.ledger.store import DATABASE
from poise.training import Composition

FILES = DEMO


def run_demo(out: Path, page: Path, json: bool) -> None:
    """Run the demo experiments over three seeds each and write the report page."""
    _remove_earlier_runs(out)
    runs: list[Run] = []
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        for file in sorted(FILES.glob("*.toml")):
            runs += _run(load(file), out, bar, stop)
            if stop():
                break
    written = write_page_of(runs, page, "Two ways to train on 50 unequal clients")
    if json:
        print_json({"page": str(written), "runs": [str(r.path) for r in runs]})
        return
    summarise(runs)
    console.print(f"\nreport: {written.resolve()}")
    notes.print(
        "experiment files: " + ", ".join(str(f) for f in sorted(FILES.glob("*.toml")))
    )


def _run(experiment: Experiment, out: Path, bar: Bar, stop: StopFlag) -> list[Run]:
    def observe(seed: int, composition: Composition) -> list[Any]:
        return [bar.observer(f"{experiment.name}, seed {seed}", composition.rounds)]

    return run_experiment(experiment, out / experiment.name, observe=observe, stop=stop)


def _remove_earlier_runs(out: Path) -> None:
    """Delete the runs of an earlier demo; refuse a folder that holds anything else."""
    if not out.is_dir():
        return
    for folder in sorted(out.glob("*/seed-*")):
        if (folder / DATABASE).exists():
            shutil.rmtree(folder)
    others = [path for path in out.glob("*/*") if path.exists()]
    if others:
        raise LedgerError(
            f"{others[0]} is not a run of an earlier demo", "choose another --out"
        )
