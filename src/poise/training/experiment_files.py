"""Compose runs from experiment files, and from those that runs recorded."""

from __future__ import annotations

import re
import sys
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
from poise.core.objects import is_name
from poise.core.own_code import IMPORT
from poise.core.parts import build, part_named
from poise.core.slots import RUN_SLOTS
from poise.data import Federation
from poise.data import federation as make_federation
from poise.data.own import names_files, with_folder
from poise.engine.local_work import BackendPart
from poise.ledger.foreign import check_folder
from poise.ledger.store import DATABASE, EXPERIMENT, begun, has_experiment
from poise.privacy.budget import UnlearningPlan
from poise.results import Run, open_run
from poise.tasks import Ridge, Task, task_of
from poise.training.composition import NO_TASK, Composition
from poise.training.own_code import use_code

NODES = "nodes"
"""The source of an experiment whose data are on the nodes of a deployment."""


AGAIN = "resume(path"
"""The call that takes objects which an experiment cannot name, up to its options."""


def on_nodes(experiment: Experiment) -> bool:
    """Return whether the clients of an experiment are nodes: it names the backend ``flower``."""
    backend = experiment.table("run").get("backend")
    name = backend.get("name") if isinstance(backend, Mapping) else backend
    return bool(name == "flower")


def compose(
    experiment: Experiment,
    seed: int,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    again: str = AGAIN,
) -> Composition:
    """Compose the run of one seed; ``federation`` and ``task`` replace tables.

    ``again`` is the call that takes them, for messages about absent tables.

    It imports the modules that the experiment names: call it for a run folder only if
    the user wants to continue the run.
    """
    use_code(experiment)
    if federation is None:
        federation = federation_in(experiment, seed, again)
    if task is None:
        task = task_in(experiment, again)
    parts = parts_in(experiment)
    budget = None
    with experiment.located(), errors_in_table("unlearning"):
        if "unlearning" in experiment.tables:
            budget = UnlearningPlan.of(experiment.tables["unlearning"])
    options = options_in(experiment, seed)
    return Composition(federation, task, parts, options=options, unlearning=budget)


def options_in(experiment: Experiment, seed: int) -> RunOptions:
    """Return the options of one seed, with the backend as a part."""
    with experiment.located(), errors_in_table("run"):
        options = RunOptions.of(experiment.table("run"), seed)
        with errors_at("backend"):
            return replace(options, backend=backend_in(options.backend))


def backend_in(written: str | Mapping[str, Any]) -> BackendPart:
    """Return the backend of a file, from its name or its table."""
    table = written
    if isinstance(written, str):
        table = {"name": written}
    if not isinstance(table, Mapping):
        raise InvalidOption(
            f"backend must be a name or a table, not {written!r}",
            'for example backend = "local"',
        )
    backend: BackendPart = build("backend", table, title="[run.backend]")
    return backend


def parts_in(experiment: Experiment) -> engine.Parts:
    """Return the parts of an experiment."""
    parts: dict[str, Any] = {}
    for slot in RUN_SLOTS:
        table = experiment.table(slot)
        if slot == "personal" and not table:
            parts[slot] = None
            continue
        with experiment.located(), errors_in_table(slot):
            _refuse_unimported(experiment, slot, table.get("name"))
            parts[slot] = build(slot, table)
    return engine.Parts(**parts, attacks=_attacks_in(experiment))


def _refuse_unimported(experiment: Experiment, slot: str, name: object) -> None:
    """Raise if a part is probably declared by a module that nobody imported."""
    modules = experiment.tables.get(IMPORT, ())
    if all(module in sys.modules for module in modules):
        return
    if part_named(slot, name) is not None:
        return
    raise InvalidOption(
        f"[{slot}] {name!r} is a part of {', '.join(modules)}, which this command does "
        "not import",
        "if you trust the code: poise verify … --import MODULE, or import it in Python",
        where=("name",),
    )


def _attacks_in(experiment: Experiment) -> tuple[Any, ...]:
    """Return the attacks of an experiment."""
    attacks = []
    for index, table in enumerate(experiment.tables.get("attacks", ())):
        with experiment.located(), errors_in_table("attacks"), errors_at(str(index)):
            attacks.append(build("attack", table, title="[[attacks]]"))
    return tuple(attacks)


def experiment_of(run: Run) -> Experiment:
    """Return the experiment of a run, from its folder or, in memory, its ledger."""
    if run.path is None:
        return parse(run.experiment)
    return recorded(run.path)


def recorded(folder: Path) -> Experiment:
    """Return the experiment of a run folder, from its file or the ledger's copy."""
    if not begun(folder):
        raise LedgerError(f"{folder} is not a run folder: it has no {DATABASE}")
    check_folder(folder)
    file = folder / EXPERIMENT
    if has_experiment(folder):
        return load(file)
    return parse(open_run(folder).meta["experiment"], file)


def federation_in(experiment: Experiment, seed: int, again: str = AGAIN) -> Federation:
    """Return the federation of an experiment's table [data]."""
    options = experiment.table("data")
    with experiment.located(), errors_in_table("data"):
        if not options:
            raise InvalidOption(
                "the data of this run were Python objects without a name",
                f"give them again: {again}, federation=…); for the command line, load "
                "them in a function of a module: federation('package.module:function')",
            )
        if "source" not in options:
            raise InvalidOption("[data] has no source", 'for example source = "digits"')
        if options["source"] == NODES:
            raise InvalidOption(
                "the data of this experiment are on its nodes",
                "poise deploy run|resume|unlearn … --to DIR",
            )
        if is_name(options["source"]):
            use_code(experiment)
        return make_federation(**{"seed": seed, **_with_paths(experiment, options)})


def _with_paths(experiment: Experiment, options: dict[str, Any]) -> dict[str, Any]:
    """Return [data] with absolute paths; relative ones start at the file's folder."""
    folder = Path.cwd()
    if experiment.path is not None:
        folder = experiment.path.absolute().parent
    files = {name: options[name] for name in ("source", "test") if name in options}
    return {**options, **{k: with_folder(v, folder) for k, v in files.items()}}


def reads_files(experiment: Experiment) -> bool:
    """Return whether [data] names files of the user."""
    return names_files(experiment.table("data").get("source"))


def task_in(experiment: Experiment, again: str = AGAIN) -> Task | Ridge:
    """Return the task of an experiment's table [task]."""
    options = experiment.table("task")
    with experiment.located(), errors_in_table("task"):
        if not options:
            raise _no_task(experiment.text, again)
        return task_of(options)


def _no_task(text: str, again: str) -> InvalidOption:
    """Return the error of a file without [task], with the reason that the run wrote."""
    reasons = [line for line in text.splitlines() if line.startswith(NO_TASK)][:1]
    reason = "".join(reasons).removeprefix(NO_TASK)
    quoted = re.fullmatch(r"metric (.+) has no name", reason)
    if quoted is None:
        hint = (
            f"name a model, or give the task: {again}, task=…); for the command "
            "line, move the function that makes the module out of __main__ into a "
            "module: Task(module='package.module:function')"
        )
    else:
        hint = (
            f"give the task: {again}, task=…); for the command line, put the metric "
            "at the top level of a module and write "
            f"metrics = {{{quoted[1]} = 'my_package.metrics:NAME'}}"
        )
    message = "the experiment has no [task]"
    if reason:
        message = f"{message}: {reason}"
    return InvalidOption(message, hint)


@contextmanager
def errors_in_table(table: str) -> Iterator[None]:
    """Attribute errors inside the block to a table, as errors of poise."""
    with errors_at(table):
        try:
            yield
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidOption(f"[{table}] {error}") from error
