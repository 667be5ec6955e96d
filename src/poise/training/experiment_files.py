"""Compose runs from experiment files, and from what runs recorded of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from poise import engine
from poise.config.experiment import Experiment, load, parse
from poise.config.run_options import RunOptions
from poise.core.errors import InvalidOption, LedgerError, errors_at
from poise.core.federations import FederationLike, TaskLike
from poise.core.parts import build
from poise.core.slots import RUN_SLOTS
from poise.data import Federation
from poise.data import federation as make_federation
from poise.engine.local_work import BackendPart
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE, EXPERIMENT, begun
from poise.privacy.budget import Budget
from poise.tasks import Task
from poise.tasks import task as make_task
from poise.training.composition import Composition

NODES = "nodes"
"""The source of an experiment whose data only the nodes of a deployment know."""


def compose(
    experiment: Experiment,
    seed: int,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> Composition:
    """The composition of one seed; objects given here stand for tables that the file does not
    have.
    """
    if federation is None:
        federation = federation_in(experiment, seed)
    if task is None:
        task = task_in(experiment)
    parts = parts_in(experiment)
    with experiment.located(), reading("unlearning"):
        declared = experiment.tables.get("unlearning")
        budget = None if declared is None else Budget.of(declared)
    return Composition(federation, task, parts, options_in(experiment, seed), budget)


def options_in(experiment: Experiment, seed: int) -> RunOptions:
    """The options of one seed, with the backend as a part."""
    with experiment.located(), reading("run"):
        options = RunOptions.of(experiment.table("run"), seed)
        with errors_at("backend"):
            return replace(options, backend=backend_in(options.backend))


def backend_in(written: str | Mapping[str, Any]) -> BackendPart:
    """The backend that a file names, by its name or by a table."""
    table = {"name": written} if isinstance(written, str) else written
    if not isinstance(table, Mapping):
        raise InvalidOption(
            f"backend must be a name or a table, not {written!r}", 'for example backend = "local"'
        )
    made: BackendPart = build("backend", table, "[run.backend]")
    return made


def parts_in(experiment: Experiment) -> engine.Parts:
    """The part of each slot."""
    made: dict[str, Any] = {}
    for slot in RUN_SLOTS:
        table = experiment.table(slot)
        if slot == "personal" and not table:
            made[slot] = None
            continue
        with experiment.located(), reading(slot):
            made[slot] = build(slot, table)
    return engine.Parts(**made, attacks=_attacks_in(experiment))


def _attacks_in(experiment: Experiment) -> tuple[Any, ...]:
    made = []
    for index, table in enumerate(experiment.tables.get("attacks", ())):
        with experiment.located(), reading("attacks"), errors_at(str(index)):
            made.append(build("attack", table, "[[attacks]]"))
    return tuple(made)


def experiment_of(run: Run) -> Experiment:
    """The experiment of a run: as its folder has it, or as its ledger has it for a run in
    memory.
    """
    return parse(run.experiment) if run.path is None else recorded(run.path)


def recorded(folder: Path) -> Experiment:
    """The experiment of a run folder: its experiment file, or the copy of it in the ledger."""
    if not begun(folder):
        raise LedgerError(f"{folder} is not a run folder: it has no {DATABASE}")
    file = folder / EXPERIMENT
    return load(file) if file.exists() else parse(open_run(folder).meta["experiment"], file)


def federation_in(experiment: Experiment, seed: int) -> Federation:
    """The federation that an experiment's [data] describes."""
    options = experiment.table("data")
    with experiment.located(), reading("data"):
        if not options:
            raise InvalidOption(
                "the data of this run were Python objects",
                "give them again: resume(path, federation=…)",
            )
        if "source" not in options:
            raise InvalidOption("[data] has no source", 'for example source = "digits"')
        if options["source"] == NODES:
            raise InvalidOption(
                "the data of this experiment are on its nodes",
                "poise deploy run|resume|unlearn … --to DIR",
            )
        return make_federation(**{"seed": seed, **options})


def task_in(experiment: Experiment) -> Task:
    """The task that an experiment's [task] describes."""
    options = experiment.table("task")
    with experiment.located(), reading("task"):
        if not options:
            hint = "name a model, or give the object: resume(path, task=…)"
            raise InvalidOption("the experiment has no [task]", hint)
        if "model" not in options:
            raise InvalidOption("[task] has no model", 'for example model = "mlp"')
        return make_task(options.pop("model"), **options)


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Errors inside the block belong to this table; so do values that nobody expected in it."""
    with errors_at(table):
        try:
            yield
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidOption(f"[{table}] {error}") from error
