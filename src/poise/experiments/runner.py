"""From an experiment to runs: compose the parts, run every seed, take a run up again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from poise import engine
from poise.composition import Composition
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.core.parts import build
from poise.core.types import Record
from poise.data import federation as make_federation
from poise.experiments.spec import SLOTS, Experiment, load, parse
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE, EXPERIMENT, begun
from poise.tasks import task as make_task
from poise.training import begin, prepare, take_up
from poise.unlearning.budget import Budget
from poise.unlearning.request import FILE as REQUEST

Observer = Callable[[Record], None]

NODES = "nodes"  # the source of an experiment whose data only the nodes of a deployment know


def compose(experiment: Experiment, seed: int, federation: Any = None, task: Any = None) -> Composition:
    """The composition of one seed; objects given here stand for tables that the file does not have."""
    if federation is None:
        federation = federation_in(experiment, seed)
    with _located(experiment, "task"):
        if task is None:
            task = _task(experiment)
    parts = parts_in(experiment)
    with _located(experiment, "unlearning"):
        promised = experiment.tables.get("unlearning")
        budget = None if promised is None else Budget.of(promised)
    run = {k: v for k, v in experiment.table("run").items() if k != "seeds"}
    with _located(experiment, "run"):
        backend = run.pop("backend", "local")
        run["backend"] = build("backend", {"name": backend} if isinstance(backend, str) else backend, "[run.backend]")
        run["metrics"] = tuple(run.get("metrics", ()))
        return Composition(federation, task, parts, seed=seed, unlearning=budget, **run)


def parts_in(experiment: Experiment) -> engine.Parts:
    """The choice for each slot."""
    made = {}
    for slot in SLOTS:
        with _located(experiment, slot):
            made[slot] = build(slot, experiment.table(slot))
    with _located(experiment, "attacks"):
        attacks = tuple(build("attack", a, "[[attacks]]") for a in experiment.tables.get("attacks", ()))
    return engine.Parts(**made, attacks=attacks)


def run_experiment(
    experiment: Experiment, out: Path | None, seeds: Iterable[int] | None = None,
    observe: Callable[[int, Composition], Iterable[Observer]] = lambda seed, composition: (),
    stop: Callable[[], bool] = lambda: False, backend: Any = None,
) -> list[Run]:  # fmt: skip
    """Run every seed into ``out/seed-<k>``; ``observe(seed, composition)`` gives the callbacks of each.

    ``backend`` is one to use instead of the experiment's; the result does not depend on it.
    """
    runs = []
    chosen = list(experiment.seeds if seeds is None else seeds)
    compositions = [compose(experiment, chosen[0])] if chosen else []
    for seed in chosen:
        composition = compositions.pop() if compositions else compose(experiment, seed)
        if backend is not None:
            composition = replace(composition, backend=backend)
        folder = out / f"seed-{seed}" if out is not None else None
        with _fitting(experiment, composition):
            prepared = prepare(composition)
        runs.append(begin(composition, folder, observe(seed, composition), stop, prepared))
        if stop():
            break
    return runs


def resume(
    path: str | Path, federation: Any = None, task: Any = None, callbacks: Iterable[Observer] = (),
    stop: Callable[[], bool] = lambda: False, rounds: int | None = None, backend: Any = None,
) -> Run:  # fmt: skip
    """Take a run up at its last good round and bring it to its end.

    Args:
        path: the run folder.
        federation: needed where the run was made with data given as Python objects.
        task: likewise for its task.
        callbacks: called with the record of each aggregation.
        stop: asked before each round; true ends the run cleanly.
        rounds: a new number of rounds, to go on after the planned end.
        backend: another backend to go on with; the result does not depend on it.
    """
    folder = Path(path)
    refuse_branch(folder)
    experiment = recorded(folder)
    composition = compose(experiment, experiment.seeds[0], federation, task)
    if rounds is not None:
        composition = replace(composition, rounds=rounds)
    if backend is not None:
        composition = replace(
            composition, backend=build("backend", {"name": backend}) if isinstance(backend, str) else backend
        )
    return take_up(composition, folder, callbacks, stop)


def refuse_branch(folder: Path, verb: str = "poise unlearn") -> None:
    """A branch goes on through its request: what it promises depends on how it ends."""
    if (folder / REQUEST).exists():
        raise IncompatibleParts(
            f"{folder} was made by a request to forget, and ends where that request says",
            f"`{verb}` with the same clients and options finishes it",
        )


def runs_in(path: str | Path) -> list[Run]:
    """The run in a folder, or the runs of all seeds in it."""
    return [open_run(folder) for folder in folders_in(path)]


def folders_in(path: str | Path) -> list[Path]:
    """A run folder, or the run folders of all seeds in a folder, whatever state they are in."""
    folder = Path(path)
    if begun(folder):
        return [folder]
    seeds = [p for p in folder.glob("seed-*") if begun(p)] if folder.is_dir() else []
    if not seeds:
        raise LedgerError(f"{folder} holds no run", "give a run folder, or a folder with seed-0, seed-1, …")
    return sorted(seeds, key=lambda p: (len(p.name), p.name))


def recorded(folder: Path) -> Experiment:
    """What a run is: its experiment file, or the copy of it in the ledger."""
    if not begun(folder):
        raise LedgerError(f"{folder} is not a run folder: it has no {DATABASE}")
    file = folder / EXPERIMENT
    return load(file) if file.exists() else parse(open_run(folder).meta["experiment"], file)


def federation_in(experiment: Experiment, seed: int) -> Any:
    """The federation that an experiment's [data] describes."""
    options = experiment.table("data")
    with _located(experiment, "data"):
        if not options:
            raise InvalidOption(
                "the data of this run were Python objects", "give them again: resume(path, federation=…)"
            )
        if "source" not in options:
            raise InvalidOption("[data] has no source", 'for example source = "digits"')
        if options["source"] == NODES:
            raise InvalidOption(
                "the data of this experiment are on its nodes", "poise deploy run|resume|unlearn … --to DIR"
            )
        return make_federation(**{"seed": seed, **options})


def _task(experiment: Experiment) -> Any:
    options = experiment.table("task")
    if not options:
        raise InvalidOption("the experiment has no [task]", "name a model, or give the object: resume(path, task=…)")
    if "model" not in options:
        raise InvalidOption("[task] has no model", 'for example model = "mlp"')
    return make_task(options.pop("model"), **options)


@contextmanager
def _located(experiment: Experiment, table: str) -> Iterator[None]:
    """Errors get the file and the line of what they speak of."""
    try:
        yield
    except (InvalidOption, IncompatibleParts) as error:
        raise experiment.locate(error, table) from error
    except (TypeError, ValueError, OverflowError) as error:  # a value that nobody expected where it stands
        raise experiment.locate(InvalidOption(f"[{table}] {error}"), table) from error


@contextmanager
def _fitting(experiment: Experiment, composition: Composition) -> Iterator[None]:
    """Parts that do not fit get the file and the line of the slot whose part the error names."""
    try:
        yield
    except (InvalidOption, IncompatibleParts) as error:
        named = error.message.partition(":")[0]
        slots = {type(getattr(composition.parts, slot)).__name__: slot for slot in SLOTS}
        tables = {**slots, "Task": "task", str(getattr(composition.task, "model", "")): "task"}
        raise experiment.locate(error, tables.get(named, "run")) from error
    except (TypeError, ValueError, OverflowError) as error:  # the model is made here, of values nobody expected
        raise experiment.locate(InvalidOption(f"[task] {error}"), "task") from error


__all__ = ["compose", "folders_in", "recorded", "resume", "run_experiment", "runs_in"]
