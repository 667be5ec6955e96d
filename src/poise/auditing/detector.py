"""The protocol of detectors: they collect evidence on clients and return p-values.

The null hypothesis of each detector is *a working client*, in its weakest form: its
updates keep at least a little direction from round to round, have at least a few large
entries, … The p-value is the probability that a working client looks as much like
noise, or as empty, as this one does; it is 1 as long as there is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats, Ints

ALIKE = 1e-3
"""A copy leaves at most this share of its length as residual."""

SMALLEST = 32
"""Updates with fewer parameters are too short to tell noise from work."""


@dataclass(frozen=True)
class AuditedRound:
    """The m contributions of one round as the detectors see them; one row each.

    Args:
        versions: (m,) the model versions that the clients received.
        norms: (m,) the norms of the updates.
        sketch: (m, k) the sketches of the updates.
        entries: the first this many columns of the sketch are coordinates.
        geary: (m,) Geary's ratio of the inspected entries.
        inspected: number of inspected entries.
        cohort: (m,) cosine to the sum of the others' updates.
        dimension: number of entries of an update.
        residual: (m, k) the sketch without the directions that the client can have
            copied.
        copied: (m,) number of directions that were removed.
        loss_before: (m,) nan where the client reported none.
        loss_after: (m,) nan where the client reported none.
        layers: (m, L) root mean square of the entries of each layer.
    """

    versions: Ints
    norms: Floats
    sketch: Floats
    entries: int
    geary: Floats
    inspected: int
    cohort: Floats
    dimension: int
    residual: Floats
    copied: Ints
    loss_before: Floats
    loss_after: Floats
    layers: Floats

    @property
    def has_residual(self) -> NDArray[np.bool_]:
        """(m,) whether the residual is more than rounding."""
        residual = np.linalg.norm(self.residual, axis=1)
        length = np.linalg.norm(self.sketch, axis=1)
        more = (self.copied > 0) & (residual > ALIKE * length)
        return np.asarray(more & (self.dimension >= SMALLEST))


class Detector(Protocol):
    """Collects one kind of evidence; clients are numbered by their first round."""

    def grow(self, count: int) -> None:
        """Make room for this many clients."""

    def add(self, clients: Ints, audited: AuditedRound) -> None:
        """Take in one round; ``clients`` may name a client twice."""

    def p_values(self) -> Floats:
        """How likely a working client looks like this, (clients,)."""

    def describe(self, client: int) -> str:
        """Describe the evidence about one client; empty where there is none."""


class ClientSums:
    """Named sums, one row per client."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.values: dict[str, Floats] = {
            name: np.zeros((0, *shape)) for name, shape in shapes.items()
        }

    def grow(self, count: int) -> None:
        """Make room for this many clients; the sums of new ones start at 0."""
        for name, old in self.values.items():
            if len(old) < count:
                new = np.zeros((count - len(old), *old.shape[1:]))
                self.values[name] = np.concatenate([old, new])

    def add(self, name: str, clients: Ints, values: Floats) -> None:
        """Add values to the sums of these clients."""
        np.add.at(self.values[name], clients, values)

    def count(self, name: str, clients: Ints) -> None:
        """Add 1 to the sums of these clients."""
        self.add(name, clients, np.ones(len(clients)))

    def __getitem__(self, name: str) -> Floats:
        return self.values[name]
