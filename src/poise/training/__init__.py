"""Compose, begin and resume runs.

`composed` composes a run from Python objects, `compose` from an experiment file. Both
return a `Composition`, which `prepare` checks and turns into the engine's plan. `train`
begins a run, `resume` continues it.
"""

from poise.engine.local_work import BackendPart
from poise.training.before_training import check_batches, unmeasured
from poise.training.composition import (
    ALTERED,
    OF_CLIENTS,
    Composition,
    Prepared,
    check,
    fit,
    prepare,
    seeded,
)
from poise.training.experiment_files import (
    NODES,
    compose,
    experiment_of,
    federation_in,
    on_nodes,
    options_in,
    parts_in,
    reads_files,
    recorded,
    task_in,
)
from poise.training.operation import (
    begin,
    never,
    refuse_branch,
    refuse_other_experiment,
    resume,
    resume_run,
    train,
)
from poise.training.own_code import declaring_modules, modules_in, use_code
from poise.training.slots import composed, slot

__all__ = [
    "ALTERED",
    "NODES",
    "OF_CLIENTS",
    "BackendPart",
    "Composition",
    "Prepared",
    "begin",
    "check",
    "check_batches",
    "compose",
    "composed",
    "declaring_modules",
    "experiment_of",
    "federation_in",
    "fit",
    "modules_in",
    "never",
    "on_nodes",
    "options_in",
    "parts_in",
    "prepare",
    "reads_files",
    "recorded",
    "refuse_branch",
    "refuse_other_experiment",
    "resume",
    "resume_run",
    "seeded",
    "slot",
    "task_in",
    "train",
    "unmeasured",
    "use_code",
]
