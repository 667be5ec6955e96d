"""Compose, begin and resume runs.

`composed` composes a run from Python objects, `compose` from an experiment file. Both
return a `Composition`, which `prepare` checks and turns into the engine's plan. `train`
begins a run, `resume` continues it.
"""

from poise.engine.local_work import BackendPart
from poise.training.composition import (
    ALTERED,
    OF_CLIENTS,
    Composition,
    Prepared,
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
    parts_in,
    recorded,
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
from poise.training.slots import composed, slot

__all__ = [
    "ALTERED",
    "NODES",
    "OF_CLIENTS",
    "BackendPart",
    "Composition",
    "Prepared",
    "begin",
    "compose",
    "composed",
    "experiment_of",
    "federation_in",
    "fit",
    "never",
    "on_nodes",
    "parts_in",
    "prepare",
    "recorded",
    "refuse_branch",
    "refuse_other_experiment",
    "resume",
    "resume_run",
    "seeded",
    "slot",
    "train",
]
