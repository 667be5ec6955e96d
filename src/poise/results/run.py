"""`Run`: the results of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from poise.core.errors import LedgerError, require, suggest
from poise.ledger.store import DATABASE, Ledger
from poise.results.clients import RunClient
from poise.results.frames import pandas_frame, polars_frame
from poise.results.models import ModelReader
from poise.results.tables import TableName
from poise.results.tables import table as columns_of

if TYPE_CHECKING:
    import pandas
    import polars
    from plotly.graph_objects import Figure
    from torch import nn

    from poise.core.federations import TaskLike
    from poise.results.drawing import Axis
    from poise.results.prediction import Given


class Run(ModelReader):
    """A finished, stopped or still running run; arrays have one row per aggregation."""

    def client(self, client: int | str) -> RunClient:
        """Everything that the run recorded of one client, by its number or its name."""
        number = self.client_number(client)
        names = self.client_names
        return RunClient(self, number, names[number] if names else "")

    def module(
        self,
        n: int | None = None,
        *,
        client: int | str | None = None,
        task: TaskLike | None = None,
    ) -> nn.Module:
        """The model as an ``nn.Module`` in evaluation mode, with its weights.

        Batch-norm statistics and frozen parameters are included. A run folder needs no
        data for it. The module is new at each call: change it as you like.

        Args:
            n: the model after n aggregations; the newest by default.
            client: the model that this client uses, with its personal layers.
            task: the task of the run; required if this process did not make the run,
                and its model has no name. If the experiment names code of your own,
                this method imports it, as `poise.resume` does.

        >>> import poise
        >>> fed = poise.federation("digits", clients=5)
        >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
        >>> run = poise.train(fed, poise.task("mlp", hidden=16), solver, rounds=2)
        >>> module = run.module()
        >>> sum(p.numel() for p in module.parameters()) == len(run.model)
        True
        """
        from poise.results.modules import trained_module

        return trained_module(self, self.vector(n, client=client), task).module

    def predict(
        self,
        x: Given,
        n: int | None = None,
        *,
        client: int | str | None = None,
        task: TaskLike | None = None,
        labels: bool = False,
    ) -> Any:
        """The outputs of the model for samples, as NumPy arrays.

        Outputs are those of the module: scores of the classes before the softmax, or
        numbers. Several outputs are a tuple or a dictionary of arrays.

        Args:
            x: samples as ``federation.client(i)`` and ``federation.test`` return them:
                already normalised, (n, …); a tuple or dictionary of arrays for a model
                with several inputs.
            n: the model after n aggregations; the newest by default.
            client: the model that this client uses, with its personal layers.
            task: as for `module`.
            labels: return the class with the largest score instead: its name if the
                labels of the data were texts, else its number.

        >>> import numpy as np, poise
        >>> fed = poise.federation("digits", clients=5)
        >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
        >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=5)
        >>> x, y = fed.test
        >>> run.predict(x).shape
        (359, 10)
        >>> right = run.predict(x, labels=True) == y
        >>> bool(np.isclose(right.mean(), run.metric("accuracy")[-1]))
        True
        """
        from poise.results.prediction import labelled, predict

        outputs = predict(self, self.module(n, client=client, task=task), x)
        if labels:
            return labelled(outputs, self.meta.class_names)
        return outputs

    def to_pandas(self, table: TableName = "rounds") -> pandas.DataFrame:
        """A table of the run as a data frame of pandas (extra ``pandas``).

        In every table ``round`` counts from 1, as ``run.models(round)`` does.

        Args:
            table: ``"rounds"``: time, seconds, bytes and metrics of every aggregation.
                ``"contributions"``: the part of each client in each aggregation, with
                its weight, its staleness and its losses. ``"clients"``: size,
                importance, parts taken, designed traits, and its own metrics when last
                measured.
        """
        return pandas_frame(columns_of(self, table))

    def to_polars(self, table: TableName = "rounds") -> polars.DataFrame:
        """The same table as `to_pandas` as a data frame of polars (extra ``polars``)."""
        return polars_frame(columns_of(self, table))

    def plot(self, *metrics: str, against: Axis = "rounds") -> Figure:
        """The curves of metrics as a figure of Plotly.

        A metric with one value per client has a line for each of a few clients, else
        the lowest, the median and the highest.

        Args:
            metrics: names of metrics; the first of accuracy, loss and the others by
                default.
            against: the x-axis: ``"rounds"``, ``"time"``, ``"seconds"`` or ``"bytes"``.

        >>> import poise
        >>> fed = poise.federation("digits", clients=5)
        >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
        >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=3)
        >>> [line.name for line in run.plot("accuracy", "loss").data]
        ['accuracy', 'loss']
        """
        from poise.results.drawing import AXES, curve_figure, with_legend_aside

        known = set(self.metrics)
        chosen = list(metrics)
        if not chosen:
            usual = sorted(known, key=lambda m: (m != "accuracy", m != "loss", m))
            chosen = usual[:1]
        for name in chosen:
            require(
                name in known,
                f"the run has no metric {name!r}",
                suggest(name, known),
                where="metrics",
            )
        require(len(chosen) > 0, "the run has measured nothing yet")
        require(
            against in AXES,
            f"plot: against = {against!r} is no axis",
            suggest(against, AXES),
            where="against",
        )
        return with_legend_aside(curve_figure(self, chosen, against))

    def _repr_html_(self) -> str:
        """The run in a notebook: state, curves and parts, without any script."""
        from html import escape

        from poise.results.html import page

        try:
            return page(self)
        except LedgerError as error:
            return f"<pre>{escape(f'{self!r}: {error}')}</pre>"

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path is not None else ""
        return f"<Run of {self.rounds} rounds, {self.clients} clients{where}>"


def open_run(path: str | Path) -> Run:
    """Open the run in a folder, to read it; the run may still be going on.

    A folder with one run per seed (``DIR/seed-0``, …) is not a run: open one of its
    folders.
    """
    folder = Path(path)
    several = [*folder.glob("seed-*"), *folder.glob("shard-*")]
    seeds = sorted(p.name for p in several) if folder.is_dir() else []
    if seeds and not (folder / DATABASE).exists():
        if len(seeds) == 1:
            raise LedgerError(
                f"{folder} is not a run folder, but holds one",
                f"name the run: {folder / seeds[0]}",
            )
        raise LedgerError(
            f"{folder} holds several runs", f"open one of {', '.join(seeds)}"
        )
    return Run(Ledger.open(folder))
