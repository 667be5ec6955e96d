"""How each client fares, by name: its data, its part in the runs, its own metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.groups import Group
from poise.analysis.reports.numbers import with_interval
from poise.analysis.reports.wording import sentence
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
        metrics: the metrics per client, in the order of the columns; the first sorts.
        heading: titles of the columns.
        lines: a line per client: its name, then its values.
        order: the number of the client of each line.
        clients: number of all clients.
        seeds: number of runs that the values are means of.
    """

    label: str
    metrics: tuple[str, ...]
    heading: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    clients: int
    seeds: int

    @property
    def note(self) -> str:
        """How to read the table, and what it leaves out."""
        if not self.metrics:
            return (
                "To see how the model fares on each client, measure it there: metrics = "
                '["client_accuracy"] under [run].'
            )
        words = f"Sorted by {_words(self.metrics[0])}: the worst comes first."
        names_by_data: dict[str, list[str]] = {}
        for name in self.metrics:
            names_by_data.setdefault(measured_on(name), []).append(_words(name))
        for data, names in names_by_data.items():
            words += f" {sentence(', '.join(names))}: {data}."
        if not any(map(_is_test, self.metrics)):
            words += (
                " A metric client_test_… measures on data that training did not use."
            )
        if self.seeds > 1:
            words += (
                f" Every value is a mean over {self.seeds} seeds, those of metrics ± half "
                "the width of the 95 % confidence interval."
            )
        if len(self.lines) < self.clients:
            words += f" Shows {len(self.lines)} of {self.clients} clients."
        return words


MEASURED_ON = {
    "client_test_": "of the model on the client's own test data",
    "client_local_": "of the client's model after local work, on its own test data",
    "client_": "of the model on the client's training data",
    "": "of the model on the client's data",
}
"""Model and data of a metric per client, by the beginning of its name."""


def measured_on(metric: str) -> str:
    """The model and the data that a metric per client measures.

    >>> measured_on("client_test_accuracy"), measured_on("client_loss")
    ("of the model on the client's own test data", "of the model on the client's training data")
    """
    return next(
        words for start, words in MEASURED_ON.items() if metric.startswith(start)
    )


def _is_test(metric: str) -> bool:
    return metric.startswith(("client_test_", "client_local_"))


def _words(metric: str) -> str:
    return metric.replace("_", " ")


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
    if metrics:
        name, values = next(iter(metrics.items()))
        means = _means(values)
        if first.directions.lower_is_better(name):
            means = -means
        order = np.argsort(means, kind="stable")
    lines = []
    shown = order[:MOST_LINES].tolist()
    for client in shown:
        cells = [_text(column[client]) for column in columns.values()]
        cells += [_estimated(values[:, client]) for values in metrics.values()]
        lines.append((client_title(client, first.client_names), *cells))
    return ClientTable(
        group.label,
        metrics=tuple(metrics),
        heading=("client", *columns, *map(_words, metrics)),
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
    aggregations = max(sum(run.rounds for run in runs), 1)
    columns["mean weight"] = np.bincount(who, weights, minlength=clients) / aggregations
    with np.errstate(invalid="ignore"):
        if ages.any():
            columns["mean staleness"] = (
                np.bincount(who, ages, minlength=clients) / count
            )
    return columns


def _metrics(runs: Sequence[Run]) -> dict[str, Floats]:
    """The last value of each metric per client, (S, N); metrics on test data first."""
    names = [
        name
        for name in runs[0].metrics
        if all(name in run.metrics and run.is_per_client(name) for run in runs)
    ]
    if any(run.rounds * run.clients > MOST_CELLS for run in runs):
        return {}
    return {
        name: np.array([_last(run.metric(name)) for run in runs])
        for name in sorted(names, key=_importance)
    }


def _importance(metric: str) -> tuple[int, bool, str]:
    """The key of a sort: the model on test data, after local work, on training data."""
    starts = list(MEASURED_ON)
    place = next(k for k, start in enumerate(starts) if metric.startswith(start))
    return place, "accuracy" not in metric, metric


def _means(values: Floats) -> Floats:
    """The mean of the known values of each client, (N,); nan where there is none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))


def _estimated(values: Floats) -> str:
    """The mean of the known values ± half its 95 % interval over the seeds."""
    known = values[np.isfinite(values)]
    if not len(known):
        return "—"
    estimated = estimate(known.tolist())
    return with_interval(estimated.mean, estimated.half_width)


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
