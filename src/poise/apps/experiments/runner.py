"""Run an experiment over its seeds, and find the runs in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from poise.apps.experiments.sweep_folder import is_sweep, sweep_runs
from poise.config.experiment import Experiment
from poise.core.errors import LedgerError
from poise.core.types import Record
from poise.ledger.store import begun
from poise.results import Run, open_run
from poise.training import BackendPart, Composition, begin, compose

RoundObserver = Callable[[Record], None]


def run_experiment(
    experiment: Experiment,
    out: Path | None,
    seeds: Iterable[int] | None = None,
    observe: Callable[
        [int, Composition], Iterable[RoundObserver]
    ] = lambda seed, composition: (),
    stop: Callable[[], bool] = lambda: False,
    backend: BackendPart | None = None,
) -> list[Run]:
    """Run every seed into ``out/seed-<k>``.

    Args:
        experiment: the experiment.
        out: the folder of the runs; None keeps them in memory.
        seeds: the seeds; by default, those of the experiment.
        observe: returns the callbacks of a seed and its composition.
        stop: whether to stop after the current round.
        backend: replaces the experiment's backend; the result does not depend on it.
    """
    runs = []
    for seed in list(experiment.seeds if seeds is None else seeds):
        composition = compose(experiment, seed)
        if backend is not None:
            composition = composition.with_options(backend=backend)
        folder = out / f"seed-{seed}" if out is not None else None
        with experiment.located():
            callbacks = observe(seed, composition)
            runs.append(begin(composition, folder, callbacks, stop))
        if stop():
            break
    return runs


def runs_in(path: str | Path) -> list[Run]:
    """The run in a folder, or the runs of all seeds in it."""
    return [open_run(folder) for folder in folders_in(path)]


def folders_in(path: str | Path) -> list[Path]:
    """A run folder, or the run folders of all seeds in a folder, finished or not."""
    folder = Path(path)
    if begun(folder):
        return [folder]
    if is_sweep(folder):
        return _runs_of_sweep(folder)
    seeds = [p for p in folder.glob("seed-*") if begun(p)] if folder.is_dir() else []
    if not seeds:
        raise LedgerError(
            f"{folder} contains no run",
            "give a run folder, or a folder with seed-0, seed-1, …",
        )
    return sorted(seeds, key=lambda p: (len(p.name), p.name))


def _runs_of_sweep(folder: Path) -> list[Path]:
    """The run folders of a sweep."""
    runs = sweep_runs(folder)
    if not runs:
        raise LedgerError(
            f"the sweep {folder} has no runs yet", f"run it: poise resume {folder}"
        )
    return runs


__all__ = ["folders_in", "run_experiment", "runs_in"]
