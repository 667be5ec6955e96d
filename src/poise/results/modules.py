"""Make the module of a run's model, from the task that the run used or recorded."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.core.layout_text import layout_of, layout_text
from poise.core.objects import is_name, use_folders
from poise.core.own_code import changes_between, code_of, recorded_code
from poise.core.types import Floats
from poise.core.vectors import Layout
from poise.ledger.foreign import readable
from poise.ledger.store import TENSORS
from poise.tasks import task_of
from poise.tasks.forms import SampleForm, form_of
from poise.tasks.named import task_modules
from poise.tasks.trained import MakesModule, TrainedModule

if TYPE_CHECKING:
    from poise.core.federations import TaskLike
    from poise.results.models import ModelReader

SAMPLE_FORM = "sample form"
"""The entry of the ledger with the form of a sample."""


def trained_module(
    run: ModelReader, theta: Floats, task: TaskLike | None
) -> TrainedModule:
    """Return the module with the weights ``theta`` of a run.

    The task is ``task``, or that of a run made by this process, or the recorded one. To
    read the recorded one imports the modules of users that it names: call it only if
    the user asks for the module.
    """
    chosen = task or run.task or recorded_task(run)
    if not isinstance(chosen, MakesModule):
        raise IncompatibleParts(
            f"{type(chosen).__name__} does not make a module of a model",
            "read the vector run.model, or give the task a method trained(samples, theta)",
            where=("task",),
        )
    samples = sample_form(run).samples
    trained = chosen.trained(samples, torch.from_numpy(theta.copy()))
    _refuse_other_model(run, trained)
    return trained


def layout_in(run: ModelReader) -> Layout:
    """Return the layout of the models of a run.

    Runs of poise 0.1 did not record it: their model is made for it, unless that would
    import code of users.
    """
    text = run.meta.get(TENSORS)
    if text is not None:
        with readable(run.path or "the ledger in memory"):
            layout = layout_of(text, run.trainable)
            if layout.size != len(run.model):
                raise ValueError(f"its tensors have {layout.size} entries in all")
            return layout
    if run.task is None and task_modules(run.experiment.tables.get("task", {})):
        raise LedgerError(
            "poise 0.1 made this run and did not record the names of its tensors",
            "run.module().state_dict() imports the code of its model",
        )
    return trained_module(run, run.model, None).layout


def recorded_task(run: ModelReader) -> TaskLike:
    """Return the task of a run's experiment; imports the modules that it names."""
    table = run.experiment.tables.get("task")
    if not table:
        raise InvalidOption(
            "the ledger has no name of this run's model, because it was a Python object",
            "give the task again: run.module(task=…), or move the function that makes "
            "the module into a module and name it: Task(module='package.module:function')",
            where=("task",),
        )
    modules = task_modules(table)
    if modules:
        use_folders([Path.cwd()])
    task = task_of(table)
    before = {
        package: code
        for package, code in recorded_code(run.meta).items()
        if package in {module.partition(".")[0] for module in modules}
    }
    for change in changes_between(before, code_of(modules)):
        warnings.warn(f"{change}: the module may compute something else", stacklevel=4)
    return task


def sample_form(run: ModelReader) -> SampleForm:
    """Return the recorded form of a sample; older runs open their data for it."""
    text = run.meta.get(SAMPLE_FORM)
    if text is not None:
        with readable(run.path or "the ledger in memory"):
            return form_of(text)
    table = run.experiment.tables.get("data", {})
    source = table.get("source")
    if source is None or source == "nodes" or is_name(source):
        raise InvalidOption(
            "poise 0.1 made this run and did not record the form of its samples",
            "`poise resume RUN --rounds N` records it",
        )
    from poise.data import federation

    samples = federation(**{"seed": run.meta.seed, **table}).shards([0]).samples
    return SampleForm(samples, all(pool.plain for pool in samples.pools))


def _refuse_other_model(run: ModelReader, trained: TrainedModule) -> None:
    """Raise if the task makes another model than the one that the run trained."""
    recorded = run.meta.get(TENSORS)
    if recorded is not None and recorded != layout_text(trained.layout):
        raise IncompatibleParts(
            "the task makes a module with other names or shapes of tensors than those of "
            "the run",
            "give the task that the run began with, or restore its code",
            where=("task",),
        )
    if run.meta.get("frozen", "") != trained.frozen:
        raise IncompatibleParts(
            "the frozen parameters of the task differ from those of the run",
            "give the task that the run began with",
            where=("task",),
        )
