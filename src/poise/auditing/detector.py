"""What a detector is: it adds up evidence about every client, and says how likely a client that
works looks so.

The null hypothesis of each is *a client that works*, drawn as weakly as it can be: its updates keep
at least a little direction from round to round, have at least a few large entries, … The p-value is
the probability that such a client looks as much like noise, or as empty, as this one does; it is 1
as long as there is nothing to go by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from poise.core.types import Floats, Ints

ALIKE = 1e-3
"""What is left of a copy, as a share of its length, at most."""

SMALLEST = 32
"""Parameters below which updates are too short to tell noise from work."""


@dataclass(frozen=True)
class Sight:
    """What the server saw of m contributions in one round; one row each."""

    versions: Ints  # (m,)
    norms: Floats  # (m,)
    sketch: Floats  # (m, k)
    entries: int  # the first so many columns of the sketch are coordinates
    spread: Floats  # (m,) Geary's ratio
    looked_at: int  # of so many entries
    cohort: Floats  # (m,) cosine to what the others sent
    dimension: int  # entries of an update
    left: Floats  # (m, k) of the sketch, when all that the client can have copied is taken away
    copied: Ints  # (m,) in how many directions something could be taken away
    loss_before: Floats  # (m,) nan where none was reported
    loss_after: Floats
    layers: Floats  # (m, L) root mean square of the entries of each layer

    @property
    def rests(self) -> NDArray[np.bool_]:
        """(m,) where something is left that is more than rounding."""
        left, length = (np.linalg.norm(v, axis=1) for v in (self.left, self.sketch))
        return np.asarray(
            (self.copied > 0) & (left > ALIKE * length) & (self.dimension >= SMALLEST)
        )


class Detector(Protocol):
    """Adds up one kind of evidence; clients are numbered by when they were first seen."""

    def grow(self, count: int) -> None:
        """Make room for so many clients."""

    def add(self, who: Ints, sight: Sight) -> None:
        """Take in one round; ``who`` may name a client twice."""

    def p_values(self) -> Floats:
        """How likely a working client looks so, (clients,)."""

    def words(self, who: int) -> str:
        """What was seen of one client, in words; empty where nothing was."""


class Columns:
    """Sums that are kept for every client."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.values: dict[str, Floats] = {
            name: np.zeros((0, *shape)) for name, shape in shapes.items()
        }

    def grow(self, count: int) -> None:
        """Make room for so many clients; new ones begin at 0."""
        for name, old in self.values.items():
            if len(old) < count:
                self.values[name] = np.concatenate(
                    [old, np.zeros((count - len(old), *old.shape[1:]))]
                )

    def add(self, name: str, who: Ints, what: Floats) -> None:
        """Add to some clients' sums."""
        np.add.at(self.values[name], who, what)

    def __getitem__(self, name: str) -> Floats:
        return self.values[name]
