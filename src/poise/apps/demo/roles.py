"""Who does what in the demo's federation: wrong labels, no work, slow work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poise.apps.demo.stage import Stage
from poise.core.types import Floats, Ints
from poise.data import Federation
from poise.training import federation_in

SLOWNESS = "durations"


@dataclass(frozen=True)
class Roles:
    """The clients that the experiment files single out.

    Args:
        wrong: clients with wrong labels.
        free_riders: clients that only pretend to work.
        slow: clients that need longer than the others.
        slowness: how many times longer.
    """

    wrong: Ints
    free_riders: Ints
    slow: Ints
    slowness: float

    def of(self, client: int) -> str:
        """The role of a client in words."""
        if client in self.free_riders:
            return "pretends to work"
        if client in self.wrong:
            return "wrong labels"
        return "honest"


def roles_of(stage: Stage) -> Roles:
    """Read the roles from the experiment files and the federation of the first seed."""
    experiment = stage.experiment("choice")
    attacks = experiment.tables["attacks"]
    riders = np.array(sorted(i for attack in attacks for i in attack["clients"]))
    wrong = np.flatnonzero(federation_of(stage).traits()["flip ratio"] > 0)
    durations = durations_of(stage)
    usual = durations.min()
    return Roles(
        wrong=wrong[~np.isin(wrong, riders)],
        free_riders=riders,
        slow=np.flatnonzero(durations > usual),
        slowness=float(durations.max() / usual),
    )


def federation_of(stage: Stage) -> Federation:
    """The federation of the first seed, with all clients."""
    return federation_in(stage.experiment("choice"), stage.first)


def durations_of(stage: Stage) -> Floats:
    """The simulated time that each client needs for its work."""
    return np.array(stage.experiment("fedfix").table("clock")["durations"])
