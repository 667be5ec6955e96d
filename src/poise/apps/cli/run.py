"""The verbs ``poise run`` and ``poise resume``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from poise.analysis.reports.numbers import number
from poise.apps.cli.backend_options import BackendOptions
from poise.apps.cli.report import summarise
from poise.apps.cli.run_plan import plan_lines, plan_of
from poise.apps.cli.terminal import Bar, print_json, remark, stoppable
from poise.apps.experiments.runner import folders_in, run_experiment
from poise.apps.experiments.sweep_folder import is_sweep
from poise.config.experiment import load
from poise.config.run_options import parse_seeds
from poise.core.client_names import client_title
from poise.core.errors import InvalidOption, LedgerError, RoundsLost
from poise.ledger.store import has_ledger
from poise.results import Run, open_run
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
    usual = Path("runs") / experiment.name
    folder = out or unused_folder(usual)
    refuse_existing_runs(folder, chosen)
    if folder.exists() and not folder.is_dir():
        raise InvalidOption(f"--out {folder} is a file", "name a folder for the runs")
    taken = None
    if out is None and folder != usual:
        taken = usual
    with stoppable(json) as stop, Bar(quiet=json) as bar:

        def observe(seed: int, composition: Composition) -> list[Any]:
            if seed == chosen[0] and not json:
                for line in plan_lines(plan_of(composition, chosen, folder, taken)):
                    remark(line)
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
    path: Path,
    rounds: int | None,
    *,
    go_back: bool,
    backend_options: BackendOptions,
    json: bool,
) -> None:
    """Resume one run, every unfinished run of a folder, or a sweep."""
    if is_sweep(path):
        _refuse_rounds(path, rounds)
        from poise.apps.cli.sweep import resume_sweep

        resume_sweep(path, json)
        return
    runs = []
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        for folder in folders_in(path):
            backend = backend_options.backend_for(recorded(folder))
            before = _rounds_before(folder)
            continued = partial(
                resume,
                folder,
                callbacks=[_progress_callback(bar, folder, rounds)],
                stop=stop,
                rounds=rounds,
                backend=backend,
                progress=False,  # the callback moves the bar of the command
            )
            try:
                run = continued(go_back=go_back)
            except RoundsLost as error:
                if json or not _agrees(error, bar):
                    raise
                run = continued(go_back=True)
            runs.append(run)
            if run.rounds == before and not stop():
                state = f"{folder} had all its {before} rounds"
                if run.ending:
                    state = f"{folder} ended early, after {before} rounds"
                remark(
                    f"{state}; add more with: poise resume {folder} --rounds {2 * before}"
                )
            if stop():
                remark(
                    f"stopped after round {runs[-1].rounds}; continue with: poise resume {folder}"
                )
                break
    show_runs(runs, json)


def _rounds_before(folder: Path) -> int | None:
    """Return the rounds of a run; None for a ledger that the resume has to repair."""
    try:
        run = open_run(folder)
    except LedgerError:
        return None
    rounds = run.rounds
    run.close()
    return rounds


def refuse_jobs(jobs: int | None) -> None:
    """Raise for a number of jobs, which only ``poise sweep`` has."""
    if jobs is not None:
        raise InvalidOption(
            "poise resume has no option --jobs",
            "to continue a sweep with several jobs, repeat the `poise sweep` command",
        )


def _refuse_rounds(path: Path, rounds: int | None) -> None:
    """Raise for a number of rounds: a sweep has that of its plan."""
    if rounds is not None:
        raise InvalidOption(
            f"{path} is a sweep: it ends after the rounds of its plan",
            "resume single runs with --rounds, or begin a sweep with more rounds",
        )


def _agrees(error: RoundsLost, bar: Bar) -> bool:
    """Ask whether to compute recorded rounds again; no without a terminal."""
    if not sys.stdin.isatty():
        return False
    lost = error.recorded - error.kept
    with bar.paused():
        return typer.confirm(f"{error.message}\nCompute {lost} rounds again?", err=True)


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
        if has_ledger(run_folder):
            raise LedgerError(
                f"{run_folder} already contains a run",
                f"choose another --out, or continue it with: poise resume {run_folder}",
            )


def show_runs(runs: list[Run], json: bool) -> None:
    """Print the scores and the run folders, or one JSON document."""
    if json:
        print_json({"runs": [run_as_data(run) for run in runs]})
        return
    measured = [run for run in runs if run.rounds]
    if measured:
        summarise(measured)
    for run in runs:
        remark(str(run.path))
        for line in _client_metrics(run):
            remark(f"  {line}")
        if run.ending:
            remark(f"  ended early after round {run.rounds}: {run.ending}")
        if run.meta["status"] == "diverged":
            remark(f"  {_divergence(run)}")
        if run.rounds and run.meta.get("keep") == "unlearnable":
            remark(_kept_models(run))


def _client_metrics(run: Run) -> list[str]:
    """The range over the clients of each metric that was measured per client."""
    from poise.analysis.reports.scores import measured

    lines = []
    for name in run.metrics:
        if not run.is_per_client(name) or not run.rounds:
            continue
        _, values = measured(run, name)
        if not len(values) or np.isnan(values[-1]).all():
            continue
        ends = []
        for client in (np.nanargmin(values[-1]), np.nanargmax(values[-1])):
            title = client_title(int(client), run.client_names)
            ends.append(f"{values[-1, client]:.4g} ({title})")
        lines.append(f"{name}: {ends[0]} to {ends[1]}")
    return lines


def _divergence(run: Run) -> str:
    """The event that says how the run diverged."""
    return [event for event in run.events if event.startswith("diverged: ")][-1]


def _kept_models(run: Run) -> str:
    """How many models the run keeps for unlearning requests, and their size on disk."""
    files = [run.model_file(n) for n in run.kept]
    size = sum(file.stat().st_size for file in files if file is not None)
    return (
        f"  {len(files)} models kept for unlearning requests, {number(size, 'bytes')}"
    )


def run_as_data(run: Run) -> dict[str, Any]:
    """Summary of a run for ``--json``."""
    final = {
        name: run.metric(name)[-1] for name in run.metrics if run.metric(name).ndim == 1
    }
    return {
        "path": str(run.path),
        "seed": int(run.meta["seed"]),
        "status": run.meta["status"],
        "ending": run.ending,
        "rounds": run.rounds,
        "final": final,
        "digest": run.digest,
    }
