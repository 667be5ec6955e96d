"""`RunClient`: everything that a run recorded of one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poise.core.types import Floats, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poise.results.models import ModelReader


@dataclass(frozen=True, eq=False, repr=False)
class RunClient:
    """One client of a run; arrays have one row per aggregation, or per part it took.

    Args:
        run: the run.
        index: the client's number.
        name: its name; empty if clients have no names.

    >>> import poise
    >>> fed = poise.federation("digits", clients=4)
    >>> solver = poise.solvers.SGD(lr=0.1, steps=2, batch_size=8)
    >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=3)
    >>> client = run.client(2)
    >>> client.index, client.size, client.weights.shape
    (2, 359, (3,))
    """

    run: ModelReader
    index: int
    name: str = ""

    @property
    def size(self) -> int | None:
        """Number of training samples; None where the ledger has no sizes."""
        sizes = self.run.array("sizes")
        return None if sizes is None else int(sizes[self.index])

    @property
    def importance(self) -> float | None:
        """p_i; None where the ledger has no importance."""
        importance = self.run.array("importance")
        return None if importance is None else float(importance[self.index])

    @property
    def traits(self) -> dict[str, float]:
        """Designed differences, such as its imbalance or its ratio of flipped labels."""
        return {
            name: float(values[self.index]) for name, values in self.run.traits.items()
        }

    @property
    def metrics(self) -> list[str]:
        """The names that `metric` knows: metrics with one value per client."""
        return [name for name in self.run.metrics if self.run.is_per_client(name)]

    def metric(self, name: str) -> Floats:
        """A metric of this client after each aggregation, (R,); nan if not measured."""
        values = self.run.metric(name)
        return values if values.ndim == 1 else values[:, self.index]

    @property
    def contributions(self) -> NDArray[np.void]:
        """Its rows of `Run.contributions`."""
        table = self.run.contributions
        rows: NDArray[np.void] = table[table["client"] == self.index]
        return rows

    @property
    def weights(self) -> Floats:
        """Its coefficient in each aggregation, (R,); 0 where it took no part."""
        weights = np.zeros(self.run.rounds)
        mine = self.contributions
        np.add.at(weights, mine["round"], mine["coefficient"])
        return weights

    @property
    def staleness(self) -> Ints:
        """Aggregations between start and arrival of each part it took."""
        mine = self.contributions
        return np.asarray(mine["round"] - mine["version"], dtype=np.int64)

    @property
    def refusals(self) -> list[tuple[int, str]]:
        """Round and reason of each of its updates that the server refused."""
        return [
            (n, why) for n, client, why in self.run.refusals if client == self.index
        ]

    @property
    def model(self) -> Floats:
        """The model that it uses, (d,): the newest, with its personal layers."""
        return self.run.client_model(self.index)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        parts = len(self.contributions)
        return (
            f"<Client {self.index}{name}: {self.size} samples, {parts} contributions>"
        )
