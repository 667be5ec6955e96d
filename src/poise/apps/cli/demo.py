"""``poise demo``: a first comparison on data that needs no download."""

from __future__ import annotations

import shutil
from pathlib import Path

from poise.apps.cli.report import summarise, write_page_of
from poise.apps.cli.terminal import Bar, console, notes, print_json, stoppable
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import Experiment, load
from poise.config.presets import DEMO
from poise.core.errors import LedgerError
from poise.ledger.run import Run
from poise.ledger.store import DATABASE

FILES = DEMO


def run_demo(out: Path, page: Path, json: bool) -> None:
    """Run the demo's experiments over three seeds each and write the page."""
    _clear(out)
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
    console.print(f"\nthe page: {written.resolve()}")
    notes.print("the experiments: " + ", ".join(str(f) for f in sorted(FILES.glob("*.toml"))))


def _run(experiment: Experiment, out: Path, bar: Bar, stop: object) -> list[Run]:
    return run_experiment(
        experiment,
        out / experiment.name,
        None,
        lambda seed, composition: [
            bar.observer(f"{experiment.name}, seed {seed}", composition.rounds)
        ],
        stop,  # type: ignore[arg-type]
    )


def _clear(out: Path) -> None:
    """Remove the runs of an earlier demo, and nothing that is not one."""
    for folder in sorted(out.glob("*/seed-*")) if out.is_dir() else []:
        if (folder / DATABASE).exists():
            shutil.rmtree(folder)
    left = [p for p in out.glob("*/*") if p.exists()] if out.is_dir() else []
    if left:
        raise LedgerError(f"{left[0]} is not a run of an earlier demo", "choose another --out")
