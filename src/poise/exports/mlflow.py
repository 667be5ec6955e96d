"""Runs as runs of MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

from poise.core.errors import InvalidOption
from poise.exports.scalars import Scalar, export, facts
from poise.ledger.run import Run

BATCH = 500
"""Numbers in one request; MLflow takes 1,000, parameters and tags included."""
PARAMETERS = 100
"""Parameters in one request, as many as MLflow takes."""
LONGEST = 6000
"""Characters of a parameter's value, as many as MLflow takes; longer ones are cut."""


def mlflow(run: Run, uri: str, experiment: str = "poise", name: str | None = None) -> str:
    """Write a run into an MLflow store and return the id it has there.

    Args:
        run: the run.
        uri: the store, e.g. ``sqlite:///mlflow.db`` or ``http://host:5000``.
        experiment: MLflow's experiment, made where there is none of this name.
        name: of MLflow's run; that of the run folder by default.
    """
    sink = MLflow(uri, experiment, name)
    export(run, sink)
    return sink.run_id


class MLflow:
    """A sink that makes a run in an MLflow store: options as parameters, numbers as metrics, digest
    and state as tags.

    Args:
        uri: the store.
        experiment: MLflow's experiment.
        name: of MLflow's run.
    """

    def __init__(self, uri: str, experiment: str = "poise", name: str | None = None) -> None:
        self.uri, self.experiment, self.name = uri, experiment, name
        self.run_id = ""
        self._client: Any = None

    def begin(self, run: Run) -> None:
        """Make the run, with its parameters."""
        self._client = _client(self.uri)
        found = self._client.get_experiment_by_name(self.experiment)
        place = (
            found.experiment_id
            if found is not None
            else self._client.create_experiment(self.experiment)
        )
        name = self.name or ("-".join(run.path.parts[-2:]) if run.path is not None else None)
        self.run_id = self._client.create_run(place, run_name=name).info.run_id
        pairs = iter(facts(run).items())
        while some := [_parameter(key, value) for key, value in islice(pairs, PARAMETERS)]:
            self._client.log_batch(self.run_id, params=some)

    def write(self, numbers: Iterable[Scalar]) -> None:
        """The numbers as metrics, in as few requests as MLflow allows."""
        from mlflow.entities import Metric

        left, now = iter(numbers), time.time_ns() // 10**6
        while some := [Metric(_allowed(s.name), s.value, now, s.step) for s in islice(left, BATCH)]:
            self._client.log_batch(self.run_id, metrics=some)

    def end(self, run: Run) -> None:
        """Say how the run stands."""
        for key in ("digest", "status"):
            value = run.digest if key == "digest" else run.meta["status"]
            self._client.set_tag(self.run_id, f"poise.{key}", value)
        self._client.set_terminated(
            self.run_id, "FINISHED" if run.meta["status"] == "done" else "KILLED"
        )


def _client(uri: str) -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # exporting a run tells nobody
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise InvalidOption("MLflow is not installed", "pip install 'poise[mlflow]'") from error
    from mlflow.exceptions import MlflowException

    try:
        return MlflowClient(tracking_uri=uri)
    except MlflowException as error:
        raise InvalidOption(
            f"MLflow refuses the store {uri}: {error.message}", "e.g. sqlite:///mlflow.db"
        ) from error


def _allowed(name: str) -> str:
    """A name with the characters that MLflow allows.

    >>> _allowed("top-2 @ test/mean")
    'top-2 _ test/mean'
    """
    return re.sub(r"[^\w\-. /:]", "_", name)


def _parameter(key: str, value: str) -> Any:
    from mlflow.entities import Param

    return Param(key, value[:LONGEST])
