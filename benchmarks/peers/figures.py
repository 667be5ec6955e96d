"""Bookkeeping of the measurements: medians, quartiles, ratios, and whether all have computed the
same.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GOALS = {
    "logistic-100x10x50": (8.0, 1.4),
    "mlp-100x10x50": (8.0, 1.4),
    "logistic-500x5x10": (50.0, 3.0),
    "mlp-500x5x10": (50.0, 3.0),
    "cnn-10x8x64": (None, 1.2),
}
"""Per work: how much faster than Flower, and than the best other peer, a round of poise is to
be."""

DEVIATIONS = 8.61
"""Standard deviations over poise's five seeds that a model may be away: Student's t with four
degrees of freedom, of which one in a thousand is further away by chance (a page has some hundred
comparisons)."""

POINTS, NATS = 0.5, 0.005
"""Percentage points of accuracy, and loss, that a model may be away in any case."""

SLOWER = 1.2
"""A configuration that takes so much longer for a whole run is not tried again: drift does not make
up for that."""

REFERENCES = ("bound",)
"""What is no federated learning and so no peer."""


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of repetitions."""

    median: float
    low: float
    high: float


def summary(values: Sequence[float]) -> Summary:
    """Quartiles that lie between the values, as ``numpy.percentile`` has them."""
    if len(values) == 1:
        return Summary(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Summary(median, low, high)


def medians(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds per round of every peer of a row."""
    return {
        name: summary(found["seconds"]).median
        for name, found in row["peers"].items()
        if "seconds" in found
    }


def ratios(row: Mapping[str, Any]) -> dict[str, float]:
    """How many times longer than poise every other peer takes; below 1 it is ahead."""
    found = medians(row)
    return {
        n: s / found["poise"]
        for n, s in found.items()
        if n != "poise" and n not in REFERENCES
    }


def best_other(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """The fastest peer beside poise, and its ratio."""
    found = ratios(row)
    return min(found.items(), key=lambda item: item[1]) if found else None


def promising(
    variants: Sequence[str], runs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """The configurations of a peer that may turn out to be its best: not much slower in all, or in
    their rounds alone.

    A first start is slow because nothing is in the system's memory yet; that alone does not rule a
    configuration out.
    """
    total = {v: min(run["total"] for run in done) for v, done in runs.items()}
    rounds = {
        v: min(run["total"] - run["startup"] for run in done)
        for v, done in runs.items()
    }
    near = [
        v
        for found in (total, rounds)
        for v in found
        if found[v] <= SLOWER * min(found.values())
    ]
    return [v for v in variants if v in near or v not in total]


def best_of(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The configuration with the lowest median among those that were tried most often, with all
    that it took.
    """
    most = max(len(done) for done in runs.values())
    median = {
        v: summary([run["total"] for run in done]).median
        for v, done in runs.items()
        if len(done) == most
    }
    variant = min(median, key=lambda v: median[v])
    done = runs[variant]
    startup = summary([run["startup"] for run in done]).median
    return {
        **done[-1],
        "variant": variant,
        "seconds": [run["total"] for run in done],
        "startup": startup,
    }


def ahead(rows: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, float]]:
    """Work, peer and ratio wherever a peer is faster than poise."""
    return [
        (work, peer, ratio)
        for work, row in rows.items()
        for peer, ratio in ratios(row).items()
        if ratio < 1
    ]


def allowed(row: Mapping[str, Any]) -> tuple[float, float]:
    """Percentage points and nats within which models agree: the least, or what other batches alone
    do to poise's.
    """
    noise = row.get("noise", ())
    points = 100 * DEVIATIONS * _deviation([found["accuracy"] for found in noise])
    nats = DEVIATIONS * _deviation([found["loss"] for found in noise])
    return max(POINTS, points), max(NATS, nats)


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def disagreements(row: Mapping[str, Any]) -> list[str]:
    """Peers whose model is elsewhere than the others' after the same rounds, and by how much."""
    points, nats = allowed(row)
    learned = {
        name: found for name, found in row["peers"].items() if "accuracy" in found
    }
    if len(learned) < 2:
        return []
    accuracy = statistics.median(found["accuracy"] for found in learned.values())
    loss = statistics.median(found["loss"] for found in learned.values())
    told = []
    for name, found in learned.items():
        off, away = 100 * (found["accuracy"] - accuracy), found["loss"] - loss
        if not (
            abs(off) <= points and abs(away) <= nats
        ):  # a loss that is not a number disagrees, too
            told.append(
                f"{name}: accuracy {off:+.2f} points, loss {away:+.3f} from the median of the peers"
            )
    return told


def along(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curves of a work that was run to its end, cut into a row for each point that all of them
    have.
    """
    curves = {
        name: found["curve"] for name, found in row["peers"].items() if "curve" in found
    }
    noise = row.get("noise_curves", ())
    points = min((len(curve) for curve in [*curves.values(), *noise]), default=0)
    return [
        {
            "peers": {name: curve[k] for name, curve in curves.items()},
            "noise": [curve[k] for curve in noise],
        }
        for k in range(points)
    ]


def goal(work: str, row: Mapping[str, Any]) -> str:
    """The goals of a row and whether they are met; empty where there are none."""
    if work not in GOALS:
        return ""
    over_flower, over_best = GOALS[work]
    told, found, best = [], ratios(row), best_other(row)
    if over_flower is not None and "flower" in found:
        told.append(_met(found["flower"], over_flower, "Flower"))
    if best is not None:
        told.append(_met(best[1], over_best, "the best other"))
    return "; ".join(told)


def _met(ratio: float, least: float, whom: str) -> str:
    return f"≥ {least:g} × {whom}: {'met' if ratio >= least else 'missed'}"
