"""`flip-labels`: wrong labels for some of the clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from poise.core.errors import require
from poise.core.rng import keys, permutations, words
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data.corruptions.corruption import Span


@dataclass(frozen=True)
class FlipLabels:
    """Corrupt clients with probability ``rate``: ``ratio`` of classes get wrong labels.

    k = round(ratio · C) random classes (at least one) are renamed in a cycle, c_1 → c_2
    → … → c_k → c_1: a derangement, so no sample of a chosen class keeps its label;
    ratio 1 makes every label wrong. A single chosen class has no derangement: it takes
    the label of another, random class. The classes are drawn from all C, also those of
    which the client has no samples. The clients' own test samples and the federation's
    keep their labels.

    Args:
        rate: probability that a client is corrupted.
        ratio: share of the classes that a corrupted client mislabels.
        seed: the seed of the random streams; the draws of a client depend on (seed,
            client) only.

    >>> FlipLabels(rate=1.0, ratio=1.0).tables(np.arange(1), 3)
    array([[1, 2, 0]])

    Source: [Exp-α 2023, §4.2] (rate 1/3, ratio 1).
    """

    rate: float
    ratio: float = 1.0
    seed: int = 0
    name: ClassVar[str] = "flip-labels"
    features: ClassVar[bool] = False
    own_tests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(
            0 <= self.rate <= 1,
            f"flip-labels: rate = {self.rate!r} must lie in [0, 1]",
            where="rate",
        )
        require(
            0 <= self.ratio <= 1,
            f"flip-labels: ratio = {self.ratio!r} must lie in [0, 1]",
            where="ratio",
        )

    def fit(self, pool: Samples, clients: int) -> None:
        """Refuse regressions, and data with fewer than two classes."""
        require(
            pool.classes >= 2,
            "flip-labels needs one class per sample, and at least two classes",
        )

    def corrupted(self, clients: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which of these clients are corrupted, (m,)."""
        word = words(keys(self.seed, "flip-labels/who", clients), 1)[:, 0]
        uniform = (word >> np.uint64(11)) * 2.0**-53
        hit: np.ndarray[tuple[int], np.dtype[np.bool_]] = uniform < self.rate
        return hit

    def tables(self, clients: Ints, classes: int) -> Ints:
        """Return each class's new label, (m, classes); honest clients keep theirs."""
        table = np.tile(np.arange(classes), (len(clients), 1))
        hit = np.flatnonzero(self.corrupted(clients))
        if self.ratio == 0 or not len(hit):
            return table
        chosen = max(1, int(np.floor(self.ratio * classes + 0.5)))
        cycle = permutations(keys(self.seed, "flip-labels/how", clients[hit]), classes)
        sources = cycle[:, :chosen]
        targets = np.roll(sources, -1, axis=1) if chosen > 1 else cycle[:, 1:2]
        table[hit[:, None], sources] = targets
        return table

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return the share of the classes that each client mislabels."""
        return {"flip ratio": np.where(self.corrupted(clients), self.ratio, 0.0)}

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """Replace every label by its entry in the client's table."""
        table = self.tables(clients, shards.samples.classes)
        owner = np.repeat(np.arange(len(clients)), shards.sizes)
        return replace(
            shards, labels=torch.from_numpy(table[owner, shards.labels.numpy()])
        )
