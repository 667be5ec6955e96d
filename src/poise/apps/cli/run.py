"""``poise run`` and ``poise resume``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.cli.backend_options import Place
from poise.apps.cli.report import summarise
from poise.apps.cli.terminal import Bar, print_json, remark, stoppable
from poise.apps.experiments.runner import folders_in, run_experiment
from poise.config.experiment import load
from poise.core.errors import InvalidOption, LedgerError
from poise.ledger.run import Run
from poise.ledger.store import DATABASE
from poise.training import Composition, recorded, resume


def run_file(
    file: Path, overrides: list[str], seeds: str, out: Path | None, place: Place, json: bool
) -> None:
    """Run an experiment file over its seeds and show the result."""
    experiment = load(file, overrides)
    backend = place.backend_for(experiment)
    chosen = parse_seeds(seeds) if seeds else experiment.seeds
    folder = out or fresh(Path("runs") / experiment.name)
    refuse_taken(folder, chosen)
    with stoppable(json) as stop, Bar(quiet=json) as bar:

        def observe(seed: int, composition: Composition) -> list[Any]:
            return [bar.observer(f"{experiment.name}, seed {seed}", composition.rounds)]

        runs = run_experiment(
            experiment, folder, seeds=chosen, observe=observe, stop=stop, backend=backend
        )
    if stop.raised:
        remark(f"stopped after round {runs[-1].rounds}; go on with: poise resume {runs[-1].path}")
        missing = [s for s in chosen if s not in {int(r.meta["seed"]) for r in runs}]
        if missing:
            rest = ",".join(map(str, missing))
            remark(

                    f"seeds not begun: {rest}; begin them with: poise run {file} --seeds {rest} --out "
                    f"{folder}"

            )
    show_runs(runs, json)


def changes_of(options: Mapping[str, Any]) -> list[str]:
    """Options of the command line as changes of the file's table [run].

    >>> changes_of({"rounds": 3, "time": None, "keep": "all"})
    ['run.rounds=3', 'run.keep="all"']
    """
    given = {key: value for key, value in options.items() if value is not None}
    return [f"run.{key}={json.dumps(value)}" for key, value in given.items()]


def resume_runs(path: Path, rounds: int | None, place: Place, json: bool) -> None:
    """Take up one run, or every unfinished run of a folder."""
    runs = []
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        for folder in folders_in(path):
            backend, callbacks = place.backend_for(recorded(folder)), [_moving(bar, folder, rounds)]
            runs.append(
                resume(folder, callbacks=callbacks, stop=stop, rounds=rounds, backend=backend)
            )
            if stop():
                remark(f"stopped after round {runs[-1].rounds}; go on with: poise resume {folder}")
                break
    show_runs(runs, json)


def parse_seeds(text: str) -> list[int]:
    """Seeds as the user writes them.

    >>> parse_seeds("0..2"), parse_seeds("1,5")
    ([0, 1, 2], [1, 5])
    """
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = map(int, match.groups())
        if first <= last:
            return list(range(first, last + 1))
    elif re.fullmatch(r"\d+(,\d+)*", text):
        seeds = [int(s) for s in text.split(",")]
        if len(set(seeds)) == len(seeds):
            return seeds
    raise InvalidOption(f"--seeds {text!r} is not a list of seeds", "write 0..4 or 0,2,5")


def _moving(bar: Bar, folder: Path, rounds: int | None) -> Any:
    """A bar for a resumed run; its length is read from the run's own experiment file."""
    planned = rounds or recorded(folder).tables["run"].get("rounds")
    return bar.observer(str(folder), planned)


def fresh(folder: Path) -> Path:
    """The folder, or the first numbered one beside it that is free."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def refuse_taken(folder: Path, seeds: list[int]) -> None:
    """Refuse a folder that holds a run of one of these seeds."""
    for seed in seeds:
        if (folder / f"seed-{seed}" / DATABASE).exists():
            raise LedgerError(
                f"{folder / f'seed-{seed}'} holds a run already",
                f"choose another --out, or go on with: poise resume {folder / f'seed-{seed}'}",
            )


def show_runs(runs: list[Run], json: bool) -> None:
    """A summary and the folders, or one JSON document."""
    if json:
        print_json({"runs": [run_facts(r) for r in runs]})
        return
    summarise(runs)
    for run in runs:
        remark(str(run.path))
        if run.meta.get("keep") == "unlearnable":
            remark(_kept(run))


def _kept(run: Run) -> str:
    """How many models wait for requests to forget, and what they weigh."""
    files = [run.model_file(n) for n in run.kept]
    weight = sum(f.stat().st_size for f in files if f is not None)
    return f"  {len(files)} models kept for requests to forget, {weight / 2**20:.1f} MiB"


def run_facts(run: Run) -> dict[str, Any]:
    """A run in a few numbers."""
    final = {name: run.metric(name)[-1] for name in run.metrics if run.metric(name).ndim == 1}
    return {
        "path": str(run.path),
        "seed": int(run.meta["seed"]),
        "status": run.meta["status"],
        "rounds": run.rounds,
        "final": final,
        "digest": run.digest,
    }
