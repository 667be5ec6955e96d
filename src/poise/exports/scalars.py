"""What of a run is a number per round, and where such numbers go."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from poise.core.types import Floats
from poise.ledger.run import Run


@dataclass(frozen=True)
class Scalar:
    """A number after ``step`` aggregations."""

    name: str
    step: int
    value: float


class Sink(Protocol):
    """Where numbers go."""

    def begin(self, run: Run) -> None:
        """Make ready for a run: its parts and facts are known already, its rounds need not be
        there.
        """

    def write(self, numbers: Iterable[Scalar]) -> None:
        """Take these numbers."""

    def end(self, run: Run) -> None:
        """The run has no more of them for now."""


def export(run: Run, sink: Sink) -> None:
    """Hand everything that a run has to a sink."""
    sink.begin(run)
    sink.write(scalars(run))
    sink.end(run)


def scalars(run: Run, since: int = 0) -> Iterator[Scalar]:
    """The numbers of a run, round by round, from the ledger; rounds before ``since`` are left out.

    Metrics have their own names (one per client: ``/least``, ``/median``, ``/largest``). Beside
    them ``time``, ``bytes_up``, ``bytes_down``, ``clients`` (contributions), ``refused``,
    ``weights/sum``, ``weights/largest`` and ``norms/median``. What was not measured, or is not
    finite, is left out.

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
    """The experiment as names and values: ``solver.lr`` is ``0.1``, and so on; the seed beside
    them.

    As the ledger has it: the file in the run folder may have been edited since.
    """
    return {**flat(tomllib.loads(run.meta["experiment"])), "seed": run.meta["seed"]}


def flat(table: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested tables as one, with dots.

    >>> flat({"solver": {"name": "sgd", "lr": 0.1}, "attacks": [{"name": "mimic"}]})
    {'solver.name': 'sgd', 'solver.lr': '0.1', 'attacks.0.name': 'mimic'}
    """
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            found |= flat({str(k): v for k, v in enumerate(value)}, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = str(value)
    return found


def _metrics(run: Run) -> dict[str, Floats]:
    """Every metric after each round; of one with a value per client the least, the median and the
    largest.
    """
    found: dict[str, Floats] = {}
    for name in run.metrics:
        values = run.metric(name)
        if values.ndim == 1:
            found[name] = values
        else:
            found |= {f"{name}/{word}": _rows(values, at) for word, at in SPREAD.items()}
    return found


SPREAD = {"least": 0.0, "median": 0.5, "largest": 1.0}


def _rows(values: Floats, quantile: float) -> Floats:
    """A quantile of each row, of what was measured; nan where nothing was."""
    measured = [row[~np.isnan(row)] for row in values]
    return np.array(
        [np.quantile(row, quantile) if len(row) else np.nan for row in measured], dtype=np.float64
    )


def _rounds(run: Run) -> dict[str, Floats]:
    """What each round was like."""
    rounds, seen = run.rounds, run.contributions
    refused = [n for n, _, _ in run.refusals]
    norms = [seen["norm"][seen["round"] == n] for n in range(rounds)]
    return {
        "time": run.times,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "clients": np.bincount(seen["round"], minlength=rounds).astype(np.float64),
        "refused": np.bincount(np.array(refused, dtype=np.int64), minlength=rounds).astype(
            np.float64
        ),
        "weights/sum": run.weights.sum(axis=1),
        "weights/largest": run.weights.max(axis=1) if rounds else np.zeros(0),
        "norms/median": np.array(
            [np.median(n) if len(n) else np.nan for n in norms], dtype=np.float64
        ),
    }
