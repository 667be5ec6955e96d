"""Scalars of a run: values per round from the ledger, and sinks for them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from poise.core.types import Floats
from poise.results import Run


@dataclass(frozen=True)
class Scalar:
    """A value after ``step`` aggregations."""

    name: str
    step: int
    value: float


class Sink(Protocol):
    """A target of exports."""

    def begin(self, run: Run) -> None:
        """Prepare for a run; its options are known, but it may have no rounds yet."""

    def write(self, numbers: Iterable[Scalar]) -> None:
        """Write these values."""

    def end(self, run: Run) -> None:
        """Close the sink; the run has no more values for now."""


def export(run: Run, sink: Sink) -> None:
    """Write all values of a run to a sink."""
    sink.begin(run)
    sink.write(scalars(run))
    sink.end(run)


def scalars(run: Run, since: int = 0) -> Iterator[Scalar]:
    """The values of a run from the ledger, round by round, starting at round ``since``.

    Metrics keep their names; metrics per client become ``/least``, ``/median`` and
    ``/largest``. Further values are ``time``, ``bytes_up``, ``bytes_down``, ``clients``
    (contributions), ``refused``, ``weights/sum``, ``weights/largest`` and
    ``norms/median``. Values that are missing or not finite are skipped.

    >>> import poise
    >>> fed = poise.quadratics([[2.0], [6.0]])
    >>> run = poise.train(fed, fed.task, poise.solvers.SGD(lr=0.5, steps=1), rounds=2)
    >>> [s for s in scalars(run) if s.name == "norms/median"]
    [Scalar(name='norms/median', step=1, value=2.0), Scalar(name='norms/median', step=2, value=1.0)]
    """
    columns = {**_metrics(run), **_rounds(run)}
    for n in range(since, run.rounds):
        for name, values in columns.items():
            if np.isfinite(values[n]):
                yield Scalar(name, n + 1, float(values[n]))


def facts(run: Run) -> dict[str, str]:
    """The options of a run by name, for example ``solver.lr``: ``0.1``, and the seed.

    They come from the ledger: the file in the run folder may have been edited since.
    """
    return {**flat(tomllib.loads(run.meta["experiment"])), "seed": run.meta["seed"]}


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested tables as one table, whose keys are joined by dots.

    >>> flat({"solver": {"name": "sgd", "lr": 0.1}, "attacks": [{"name": "mimic"}]})
    {'solver.name': 'sgd', 'solver.lr': '0.1', 'attacks.0.name': 'mimic'}
    """
    options: dict[str, str] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            options |= flat(value, f"{name}.")
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(v, Mapping) for v in value)
        ):
            options |= flat({str(k): v for k, v in enumerate(value)}, f"{name}.")
        else:
            options[name] = str(value)
    return options


QUANTILES = {"least": 0.0, "median": 0.5, "largest": 1.0}


def _metrics(run: Run) -> dict[str, Floats]:
    """Every metric after each round; of metrics per client, quantiles."""
    columns: dict[str, Floats] = {}
    for name in run.metrics:
        values = run.metric(name)
        if values.ndim == 1:
            columns[name] = values
            continue
        for word, quantile in QUANTILES.items():
            columns[f"{name}/{word}"] = _row_quantiles(values, quantile)
    return columns


def _row_quantiles(values: Floats, quantile: float) -> Floats:
    """A quantile of each row without its nan values; nan if no value is left."""
    quantiles = np.full(len(values), np.nan)
    for k, row in enumerate(values):
        measured = row[~np.isnan(row)]
        if len(measured):
            quantiles[k] = np.quantile(measured, quantile)
    return quantiles


def _rounds(run: Run) -> dict[str, Floats]:
    """Values of each round beside the metrics."""
    rounds = run.rounds
    contributions = run.contributions
    refused_rounds = np.array([n for n, _, _ in run.refusals], dtype=np.int64)
    norms = np.full(rounds, np.nan)
    for n in range(rounds):
        norms_of_round = contributions["norm"][contributions["round"] == n]
        if len(norms_of_round):
            norms[n] = np.median(norms_of_round)
    return {
        "time": run.times,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "clients": np.bincount(contributions["round"], minlength=rounds).astype(
            np.float64
        ),
        "refused": np.bincount(refused_rounds, minlength=rounds).astype(np.float64),
        "weights/sum": run.weights.sum(axis=1),
        "weights/largest": run.weights.max(axis=1) if rounds else np.zeros(0),
        "norms/median": norms,
    }
