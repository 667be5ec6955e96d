"""`TrainedModel`: the model of a run that an export writes, with facts about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from torch import nn

from poise.analysis.reports.groups import tables
from poise.core.federations import TaskLike
from poise.core.samples import Samples
from poise.results import Run
from poise.results.modules import sample_form
from poise.tasks.named import task_modules


@dataclass(frozen=True)
class TrainedModel:
    """A model of a run.

    Args:
        run: the run.
        n: the model after n aggregations; the newest by default.
        client: the model that this client uses, with its personal layers.
        task: the task of the run; required if the ledger has no name of its model.
    """

    run: Run
    n: int | None = None
    client: int | str | None = None
    task: TaskLike | None = None

    @property
    def round(self) -> int:
        """The number of aggregations of the model."""
        return self.run.rounds if self.n is None else self.n

    @cached_property
    def module(self) -> nn.Module:
        """The module in evaluation mode; imports the user's code that the run names."""
        return self.run.module(self.n, client=self.client, task=self.task)

    @cached_property
    def weights(self) -> dict[str, NDArray[Any]]:
        """The tensors of the module by name.

        A run whose model is code of the user's own gives them without an import, unless
        frozen parameters belong to them.
        """
        if self._imports_code and "frozen" not in self.run.meta:
            return self.run.state_dict(self.n, client=self.client)
        state = self.module.state_dict()
        return {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}

    @property
    def _imports_code(self) -> bool:
        """Whether `module` needs an object or an import that only the user can give."""
        if self.task is not None or self.run.task is not None:
            return False
        return not self.task_table or bool(task_modules(self.task_table))

    @property
    def task_table(self) -> dict[str, Any]:
        """The table [task] of the experiment; empty if the task was a Python object."""
        return dict(tables(self.run).get("task", {}))

    @cached_property
    def form(self) -> Samples:
        """Two samples of zeros in the form of the data."""
        return sample_form(self.run).samples

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the model, for the metadata of a file."""
        run = self.run
        known = {
            "poise": run.meta.get("poise"),
            "digest": run.digest_after(self.round),
            "model": run.model_hash(self.round),
            "round": str(self.round),
            "seed": run.meta.get("seed"),
            "clients": str(run.clients),
            "sample form": run.meta.get("sample form"),
        }
        if self.client is not None:
            known["client"] = str(run.client_number(self.client))
        if run.meta.class_names:
            known["class names"] = json.dumps(run.meta.class_names)
        return {f"poise.{key}": value for key, value in known.items() if value}
