"""From choices to a run that can begin: fill every slot, check every value, prepare the engine's plan.

`composed` starts from Python objects, `compose` from an experiment file; both give a `Composition`, and `prepare` turns
it into what `poise.training` begins or takes up.
"""

from poise.composition.composition import OF_CLIENTS, BackendPart, Composition, Prepared, fit, prepare, seeded
from poise.composition.files import NODES, compose, experiment_of, federation_in, parts_in, recorded
from poise.composition.slots import composed, slot

__all__ = [
    "NODES",
    "OF_CLIENTS",
    "BackendPart",
    "Composition",
    "Prepared",
    "compose",
    "composed",
    "experiment_of",
    "federation_in",
    "fit",
    "parts_in",
    "prepare",
    "recorded",
    "seeded",
    "slot",
]
