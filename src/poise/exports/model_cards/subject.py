"""`Subject`: the model that a card is about, and the runs that it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poise.analysis.reports.groups import Group, group_runs
from poise.core.client_names import client_title
from poise.core.errors import InvalidOption, require
from poise.core.types import Floats
from poise.results import Run
from poise.unlearning.histories import owners_of


@dataclass(frozen=True)
class CardOptions:
    """Options of a model card.

    Args:
        license: the licence of the weights, as model hubs name it, e.g. ``mit``.
        title: the headline; by default, model and data.
        list_clients: whether the card has a table with a row for each client.
        chosen: how the run was chosen among others (`Chosen.rule`); empty if it was not.
    """

    license: str = "unknown"
    title: str = ""
    list_clients: bool = True
    chosen: str = ""

    def __post_init__(self) -> None:
        require(
            bool(self.license.strip()) and len(self.license.split()) == 1,
            f"license = {self.license!r} is not one word",
            "for example license = 'apache-2.0'",
            where="license",
        )


@dataclass(frozen=True)
class Subject:
    """A model of a run, and the runs of the same experiment with other seeds.

    Args:
        run: the run of the model.
        group: the run, and those with other seeds.
        n: the model is that after n aggregations.
        client: the model is that of this client, with its personal layers.
        options: options of the card.
    """

    run: Run
    group: Group
    n: int
    client: int | None
    options: CardOptions

    @staticmethod
    def of(
        run: Run,
        siblings: Sequence[Run] = (),
        *,
        n: int | None = None,
        client: int | str | None = None,
        options: CardOptions | None = None,
    ) -> Subject:
        """Return the subject; ``siblings`` are runs of other seeds."""
        groups = group_runs([run, *siblings])
        if len(groups) > 1:
            raise InvalidOption(
                "these runs are of several experiments: "
                + "; ".join(group.label for group in groups),
                "give runs that differ in their seed only",
            )
        last = run.rounds if n is None else n
        require(
            0 <= last <= run.rounds,
            f"the run has no model after {last} aggregations",
            f"it has {run.rounds} aggregations",
            where="n",
        )
        number = None if client is None else run.client_number(client)
        return Subject(run, groups[0], last, number, options or CardOptions())

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """The tables of the experiment, without seeds and folders."""
        return dict(without_folders(self.group.experiment))

    @property
    def seed(self) -> str:
        """The seed of the run."""
        return self.run.meta.get("seed", "?")

    @property
    def model(self) -> str:
        """The name of the architecture, or of the user's function."""
        task = self.experiment.get("task", {})
        return str(task.get("model") or task.get("module") or "a PyTorch module")

    @property
    def source(self) -> str:
        """The name of the data."""
        return str(self.experiment.get("data", {}).get("source", "own data"))

    @property
    def title(self) -> str:
        """The headline."""
        return self.options.title or f"{self.model} on {self.source}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; empty if they have none."""
        return self.run.meta.class_names

    @property
    def scalar_metrics(self) -> list[str]:
        """The metrics of the model with one value per aggregation."""
        return [m for m in self.group.metrics if self._dimensions(m) == 1]

    @property
    def client_metrics(self) -> list[str]:
        """The metrics with one value per client."""
        return [m for m in self.group.metrics if self._dimensions(m) == 2]

    def _dimensions(self, metric: str) -> int:
        if metric not in self.run.metrics:
            return 0
        return self.run.metric(metric).ndim

    def score(self, metric: str) -> float:
        """Return the last value of a scalar metric up to the model; nan if there is none."""
        values = self.run.metric(metric)[: self.n]
        measured = values[~np.isnan(values)]
        if len(measured):
            return float(measured[-1])
        return math.nan

    def client_scores(self, metric: str) -> Floats:
        """Return the last values of a metric per client up to the model, (N,)."""
        values = self.run.metric(metric)[: self.n]
        measured = np.flatnonzero(~np.isnan(values).all(axis=1))
        if len(measured):
            return np.asarray(values[measured[-1]])
        return np.full(self.run.clients, np.nan)

    def client_name(self, client: int) -> str:
        """Return the name of a client of the run, or its number in the training."""
        names = self.run.client_names
        if client < len(names) and names[client]:
            return names[client]
        return client_title(int(owners_of(self.run)[client]))


def without_folders(value: Any) -> Any:
    """Return tables in which absolute paths are the names of their files.

    >>> without_folders({"data": {"source": "/home/me/x.csv", "label": "y"}})
    {'data': {'source': 'x.csv', 'label': 'y'}}
    """
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value
