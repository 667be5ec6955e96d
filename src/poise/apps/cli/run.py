"""The verbs ``poise run`` and ``poise resume``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.cli.backend_options import BackendOptions
from poise.apps.cli.report import summarise
from poise.apps.cli.terminal import Bar, print_json, remark, stoppable
from poise.apps.experiments.runner import folders_in, run_experiment
from poise.config.experiment import load
from poise.core.errors import InvalidOption, LedgerError
from poise.ledger.run import Run
from poise.ledger.store import DATABASE
from poise.training import Composition, recorded, resume


def run_file(
    file: Path,
    overrides: list[str],
    seeds: str,
    out: Path | None,
    backend_options: BackendOptions,
    json: bool,
) -> None:
    """Run an experiment file, once per seed, and print the scores."""
    experiment = load(file, overrides)
    backend = backend_options.backend_for(experiment)
    chosen = experiment.seeds
    if seeds:
        chosen = parse_seeds(seeds)
    folder = out or unused_folder(Path("runs") / experiment.name)
    refuse_existing_runs(folder, chosen)
    with stoppable(json) as stop, Bar(quiet=json) as bar:

        def observe(seed: int, composition: Composition) -> list[Any]:
            return [bar.observer(f"{experiment.name}, seed {seed}", composition.rounds)]

        runs = run_experiment(
            experiment,
            folder,
            seeds=chosen,
            observe=observe,
            stop=stop,
            backend=backend,
        )
    if stop.raised:
        remark(
            f"stopped after round {runs[-1].rounds}; continue with: poise resume {runs[-1].path}"
        )
        started = {int(run.meta["seed"]) for run in runs}
        missing = [seed for seed in chosen if seed not in started]
        if missing:
            rest = ",".join(map(str, missing))
            remark(
                f"seeds not started: {rest}; start them with: poise run {file} --seeds {rest} "
                f"--out {folder}"
            )
    show_runs(runs, json)


def changes_of(options: Mapping[str, Any]) -> list[str]:
    """Command-line options as overrides of the [run] table.

    >>> changes_of({"rounds": 3, "time": None, "keep": "all"})
    ['run.rounds=3', 'run.keep="all"']
    """
    given = {key: value for key, value in options.items() if value is not None}
    return [f"run.{key}={json.dumps(value)}" for key, value in given.items()]


def resume_runs(
    path: Path, rounds: int | None, backend_options: BackendOptions, json: bool
) -> None:
    """Resume one run, or every unfinished run of a folder."""
    runs = []
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        for folder in folders_in(path):
            backend = backend_options.backend_for(recorded(folder))
            callbacks = [_progress_callback(bar, folder, rounds)]
            runs.append(
                resume(
                    folder,
                    callbacks=callbacks,
                    stop=stop,
                    rounds=rounds,
                    backend=backend,
                )
            )
            if stop():
                remark(
                    f"stopped after round {runs[-1].rounds}; continue with: poise resume {folder}"
                )
                break
    show_runs(runs, json)


MOST_SEEDS = 10_000
"""The longest range of seeds of one command."""


def parse_seeds(text: str) -> list[int]:
    """Parse a list or a range of seeds.

    >>> parse_seeds("0..2"), parse_seeds("1,5")
    ([0, 1, 2], [1, 5])
    """
    if match := re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", text):
        first, last = map(int, match.groups())
        if last - first >= MOST_SEEDS:
            raise InvalidOption(
                f"--seeds {text} is {last - first + 1} runs",
                f"name at most {MOST_SEEDS} seeds",
            )
        if first <= last:
            return list(range(first, last + 1))
    elif re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        seeds = [int(s) for s in text.split(",")]
        if len(set(seeds)) == len(seeds):
            return seeds
    raise InvalidOption(
        f"--seeds {text!r} is not a list of seeds", "write 0..4 or 0,2,5"
    )


def _progress_callback(bar: Bar, folder: Path, rounds: int | None) -> Any:
    """Callback for a resumed run; the recorded experiment says how many rounds."""
    planned = rounds or recorded(folder).tables["run"].get("rounds")
    return bar.observer(str(folder), planned)


def unused_folder(folder: Path) -> Path:
    """The folder, or the first of ``<folder>-2``, ``<folder>-3``, … that is free."""
    number = 1
    candidate = folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def refuse_existing_runs(folder: Path, seeds: list[int]) -> None:
    """Raise an error if the folder already has a run of one of these seeds."""
    for seed in seeds:
        run_folder = folder / f"seed-{seed}"
        if (run_folder / DATABASE).exists():
            raise LedgerError(
                f"{run_folder} already contains a run",
                f"choose another --out, or continue it with: poise resume {run_folder}",
            )


def show_runs(runs: list[Run], json: bool) -> None:
    """Print the scores and the run folders, or one JSON document."""
    if json:
        print_json({"runs": [run_as_data(run) for run in runs]})
        return
    summarise(runs)
    for run in runs:
        remark(str(run.path))
        if run.meta["status"] == "diverged":
            remark(f"  {_divergence(run)}")
        if run.meta.get("keep") == "unlearnable":
            remark(_kept_models(run))


def _divergence(run: Run) -> str:
    """The event that says how the run diverged."""
    return [event for event in run.events if event.startswith("diverged: ")][-1]


def _kept_models(run: Run) -> str:
    """How many models the run keeps for unlearning requests, and their size on disk."""
    files = [run.model_file(n) for n in run.kept]
    size = sum(file.stat().st_size for file in files if file is not None)
    return f"  {len(files)} models kept for unlearning requests, {size / 2**20:.1f} MiB"


def run_as_data(run: Run) -> dict[str, Any]:
    """Summary of a run for ``--json``."""
    final = {
        name: run.metric(name)[-1] for name in run.metrics if run.metric(name).ndim == 1
    }
    return {
        "path": str(run.path),
        "seed": int(run.meta["seed"]),
        "status": run.meta["status"],
        "rounds": run.rounds,
        "final": final,
        "digest": run.digest,
    }
