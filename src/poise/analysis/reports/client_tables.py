"""How each client fares, by name: its data, its part in the runs, its own metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poise.analysis.reports.groups import Group
from poise.core.client_names import client_title
from poise.core.types import Floats
from poise.results import Run

MOST_LINES = 50
"""Maximum number of clients in a table: those that fare worst."""

MOST_CELLS = 5_000_000
"""Number of clients times rounds from which metrics are not read for a table."""


@dataclass(frozen=True)
class ClientTable:
    """The clients of a group, those that fare worst first; means over its seeds.

    Args:
        label: label of the group.
        by: the metric that sorts, in words; empty if no metric is measured per client.
        heading: titles of the columns.
        lines: a line per client: its name, then its values.
        order: the number of the client of each line.
        clients: number of all clients.
        seeds: number of runs that the values are means of.
    """

    label: str
    by: str
    heading: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    clients: int
    seeds: int

    @property
    def note(self) -> str:
        """How to read the table, and what it leaves out."""
        if not self.by:
            return (
                "To see how the model fares on each client, measure it there: metrics = "
                '["client_accuracy"] under [run].'
            )
        words = f"Sorted by {self.by} on the client's own data: the worst comes first."
        if self.seeds > 1:
            words += f" Every value is a mean over {self.seeds} seeds."
        if len(self.lines) < self.clients:
            words += f" Shows {len(self.lines)} of {self.clients} clients."
        return words


def client_table(group: Group) -> ClientTable | None:
    """The clients of a group; None if its seeds have different clients, or no rounds.

    The values are those of the last measurement, as means over the seeds.
    """
    runs = [run for run in group.runs if run.rounds]
    if not runs or not _same_clients(runs):
        return None
    first = runs[0]
    columns = _columns(runs)
    metrics = _metrics(runs)
    order = np.arange(first.clients)
    by = ""
    if metrics:
        name, values = next(iter(metrics.items()))
        by = name.replace("_", " ")
        sign = -1.0 if first.directions.lower_is_better(name) else 1.0
        order = np.argsort(sign * values, kind="stable")
    columns |= {name.replace("_", " "): values for name, values in metrics.items()}
    lines = []
    shown = order[:MOST_LINES].tolist()
    for client in shown:
        cells = [_text(values[client]) for values in columns.values()]
        lines.append((client_title(client, first.client_names), *cells))
    return ClientTable(
        group.label,
        by,
        heading=("client", *columns),
        lines=tuple(lines),
        order=tuple(shown),
        clients=first.clients,
        seeds=len(runs),
    )


def _same_clients(runs: Sequence[Run]) -> bool:
    """Whether the clients of all runs are the same: by number, name and size."""
    first = runs[0]
    sizes = first.array("sizes")
    for run in runs[1:]:
        if (run.clients, run.client_names) != (first.clients, first.client_names):
            return False
        others = run.array("sizes")
        if (sizes is None) != (others is None):
            return False
        both = sizes is not None and others is not None
        if both and not np.array_equal(np.asarray(sizes), np.asarray(others)):
            return False
    return True


def _columns(runs: Sequence[Run]) -> dict[str, Floats]:
    """Samples, participation, mean weight and mean staleness of each client."""
    clients = runs[0].clients
    columns: dict[str, Floats] = {}
    sizes = runs[0].array("sizes")
    if sizes is not None:
        columns["samples"] = np.asarray(sizes, dtype=np.float64)
    rounds = [np.bincount(run.participants[:, 1], minlength=clients) for run in runs]
    columns["aggregations"] = np.mean(rounds, axis=0)
    tables = [run.contributions for run in runs]
    who = np.concatenate([table["client"] for table in tables])
    weights = np.concatenate([table["coefficient"] for table in tables])
    ages = np.concatenate([table["round"] - table["version"] for table in tables])
    count = np.bincount(who, minlength=clients)
    with np.errstate(invalid="ignore"):
        columns["mean weight"] = np.bincount(who, weights, minlength=clients) / count
        if ages.any():
            columns["mean staleness"] = (
                np.bincount(who, ages, minlength=clients) / count
            )
    return columns


def _metrics(runs: Sequence[Run]) -> dict[str, Floats]:
    """The last value of each metric per client, as means over the runs with a value."""
    names = [
        name
        for name in runs[0].metrics
        if all(name in run.metrics and run.is_per_client(name) for run in runs)
    ]
    if any(run.rounds * run.clients > MOST_CELLS for run in runs):
        return {}
    found = {}
    for name in sorted(names, key=lambda name: ("accuracy" not in name, name)):
        last = np.array([_last(run.metric(name)) for run in runs])
        known = np.isfinite(last)
        with np.errstate(invalid="ignore"):
            found[name] = np.where(known, last, 0.0).sum(axis=0) / known.sum(axis=0)
    return found


def _last(values: Floats) -> Floats:
    """The last known value of each column, (N,); nan where there is none."""
    known = ~np.isnan(values)
    rows = len(values) - 1 - np.argmax(known[::-1], axis=0)
    last = values[rows, np.arange(values.shape[1])]
    return np.where(known.any(axis=0), last, np.nan)


def _text(value: float) -> str:
    if not np.isfinite(value):
        return "—"
    return f"{value:.4g}"
