"""Export of runs to MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

from poise.core.errors import InvalidOption
from poise.exports.scalars import Scalar, export, facts
from poise.results import Run

BATCH = 500
"""Metrics in one request; MLflow allows 1,000, including parameters and tags."""
PARAMETERS = 100
"""Parameters in one request, MLflow's limit."""
LONGEST = 6000
"""Characters of a parameter's value, MLflow's limit; longer values are truncated."""


def mlflow(
    run: Run, uri: str, experiment: str = "poise", name: str | None = None
) -> str:
    """Write a run into an MLflow store; returns the id of MLflow's run.

    Args:
        run: the run.
        uri: the store, e.g. ``sqlite:///mlflow.db`` or ``http://host:5000``.
        experiment: the name of MLflow's experiment, which is created if missing.
        name: the name of MLflow's run; by default, that of the run folder.
    """
    sink = MLflow(uri, experiment, name)
    export(run, sink)
    return sink.run_id


class MLflow:
    """A sink that creates a run in an MLflow store.

    Options become parameters, values per round become metrics, digest and status become
    tags.

    Args:
        uri: the store.
        experiment: the name of MLflow's experiment.
        name: the name of MLflow's run.
    """

    def __init__(
        self, uri: str, experiment: str = "poise", name: str | None = None
    ) -> None:
        self.uri = uri
        self.experiment = experiment
        self.name = name
        self.run_id = ""
        self._client: Any = None

    def begin(self, run: Run) -> None:
        """Create the run, with its parameters."""
        self._client = _client(self.uri)
        experiment = self._client.get_experiment_by_name(self.experiment)
        if experiment is None:
            experiment_id = self._client.create_experiment(self.experiment)
        else:
            experiment_id = experiment.experiment_id
        name = self.name
        if not name and run.path is not None:
            name = "-".join(run.path.parts[-2:])
        self.run_id = self._client.create_run(
            experiment_id, run_name=name or None
        ).info.run_id
        pairs = iter(facts(run).items())
        while batch := [
            _parameter(key, value) for key, value in islice(pairs, PARAMETERS)
        ]:
            self._client.log_batch(self.run_id, params=batch)

    def write(self, numbers: Iterable[Scalar]) -> None:
        """Log the values as metrics, in batches."""
        from mlflow.entities import Metric

        now = time.time_ns() // 10**6
        remaining = iter(numbers)
        while batch := list(islice(remaining, BATCH)):
            metrics = [Metric(_allowed(s.name), s.value, now, s.step) for s in batch]
            self._client.log_batch(self.run_id, metrics=metrics)

    def end(self, run: Run) -> None:
        """Set the tags and the final status of the run."""
        status = run.meta["status"]
        self._client.set_tag(self.run_id, "poise.digest", run.digest)
        self._client.set_tag(self.run_id, "poise.status", status)
        final = "KILLED"
        if status == "done":
            final = "FINISHED"
        elif status == "diverged":
            final = "FAILED"
        self._client.set_terminated(self.run_id, final)


def _client(uri: str) -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no usage statistics
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise InvalidOption(
            "MLflow is not installed", "pip install 'poise[mlflow]'"
        ) from error
    from mlflow.exceptions import MlflowException

    try:
        return MlflowClient(tracking_uri=uri)
    except MlflowException as error:
        raise InvalidOption(
            f"MLflow refuses the store {uri}: {error.message}",
            "e.g. sqlite:///mlflow.db",
        ) from error


def _allowed(name: str) -> str:
    """A name in which characters that MLflow forbids are replaced.

    >>> _allowed("top-2 @ test/mean")
    'top-2 _ test/mean'
    """
    return re.sub(r"[^\w\-. /:]", "_", name)


def _parameter(key: str, value: str) -> Any:
    from mlflow.entities import Param

    return Param(key, value[:LONGEST])
