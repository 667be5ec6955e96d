"""The tables of a run: its rounds, its contributions, its clients.

In every table, ``round`` counts aggregations from 1: the round after which a value
holds, as in ``run.models(round)``. ``client`` is the number of a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from poise.core.client_names import client_title
from poise.core.errors import InvalidOption, suggest
from poise.core.types import Floats

if TYPE_CHECKING:
    from poise.results.models import ModelReader

TableName: TypeAlias = Literal["rounds", "contributions", "clients"]


def table(run: ModelReader, name: str) -> dict[str, Any]:
    """Return the columns of a table of a run."""
    if name not in TABLES:
        raise InvalidOption(
            f"a run has no table {name!r}", suggest(name, TABLES), where=("table",)
        )
    columns: dict[str, Any] = TABLES[name](run)
    return columns


def rounds(run: ModelReader) -> dict[str, Any]:
    """Return time, seconds, bytes and the metrics of the model, by round."""
    refused = np.array([n for n, _, _ in run.refusals], dtype=np.int64)
    columns: dict[str, Any] = {
        "round": np.arange(1, run.rounds + 1),
        "time": run.times,
        "seconds": run.seconds,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "contributions": _counts(run.contributions["round"], run.rounds),
        "refusals": _counts(refused, run.rounds),
    }
    for metric in run.metrics:
        if not run.is_per_client(metric):
            columns[metric] = run.metric(metric)
    return columns


def contributions(run: ModelReader) -> dict[str, Any]:
    """Return each part that a client took, with its weight and its losses."""
    recorded = run.contributions
    names = _titles(run)
    columns: dict[str, Any] = {
        "round": recorded["round"] + 1,
        "client": recorded["client"].copy(),
        "name": [names[client] for client in recorded["client"]],
        "version": recorded["version"].copy(),
        "staleness": recorded["round"] - recorded["version"],
    }
    renamed = {"base": "base_weight", "coefficient": "weight"}
    for column in recorded.dtype.names or ():
        if column not in columns:
            columns[renamed.get(column, column)] = recorded[column].copy()
    return columns


def clients(run: ModelReader) -> dict[str, Any]:
    """Return the facts about each client, and its metrics when last measured."""
    number = run.clients
    recorded = run.contributions
    refused = np.array([client for _, client, _ in run.refusals], dtype=np.int64)
    taken = _counts(recorded["client"], number)
    weights = np.bincount(
        recorded["client"], weights=recorded["coefficient"], minlength=number
    )
    columns: dict[str, Any] = {"client": np.arange(number), "name": _titles(run)}
    for name, key in (("size", "sizes"), ("importance", "importance")):
        values = run.array(key)
        if values is not None:
            columns[name] = values
    columns["contributions"] = taken
    columns["refusals"] = _counts(refused, number)
    columns["mean_weight"] = weights / max(run.rounds, 1)
    with np.errstate(invalid="ignore"):  # nan for clients without contributions
        columns["weight_per_contribution"] = weights / taken
    if run.array("personal") is not None:
        columns["personal"] = taken > 0
    columns |= run.traits
    for metric in run.metrics:
        if run.is_per_client(metric):
            columns[metric] = _last_values(run.metric(metric))
    return columns


TABLES = {"rounds": rounds, "contributions": contributions, "clients": clients}
"""The functions that make the tables, by name."""


def _titles(run: ModelReader) -> list[str]:
    """Return the name of each client; ``client 3`` where it has none."""
    names = run.client_names
    return [client_title(client, names) for client in range(run.clients)]


def _counts(values: np.ndarray, number: int) -> np.ndarray:
    """Return how often each number below ``number`` occurs."""
    return np.bincount(values, minlength=number)


def _last_values(values: Floats) -> Floats:
    """Return the last value that is not nan of each column, (R, N) -> (N,)."""
    last = np.full(values.shape[1], np.nan)
    for row in values:
        measured = ~np.isnan(row)
        last[measured] = row[measured]
    return last
