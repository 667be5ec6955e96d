"""Scores of a reproduction's runs, and whether what a paper claims holds for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats

from poise.analysis.reports import scores
from poise.apps.experiments.unlearning_arms import SCORES, score_of_requests
from poise.config.experiment import parse
from poise.core.errors import InvalidOption, require
from poise.core.types import Floats
from poise.graph import similarity
from poise.ledger.run import Run
from poise.training import federation_in


def score(run: Run, name: str) -> float:
    """A score by name: ``rounds_to:0.9``, ``final:accuracy``, ``half:accuracy``, ``mean:accuracy``,
    ``smoothness``, ``worst:client_test_accuracy`` (of the client that ends lowest), ``weight:flip
    ratio>0`` (of the clients with that trait, their mean coefficient over their mean base weight;
    nan where the clients have no such trait), ``distinct_clients`` and ``distinct_classes`` (means
    over the rounds, with ``:late`` over the second half), ``homogeneity`` (of the similarity graph
    of the run's clients, made anew from its experiment), ``spread:client_loss`` (standard deviation
    over the clients), ``surrogate:client_loss`` (Σ q_i L_i with q_i in proportion to p_i times the
    aggregations that client i took part in: what weights that ignore how often each client answers
    make small). Of requests to forget: ``retraining``, ``forgotten:2``, … (`score_of_requests`).

    ``final``, ``worst``, ``spread`` and ``surrogate`` are means over the last twentieth of the
    measurements. A target that was never reached counts as one round more than there were, which
    favours the slower method.
    """
    kind, _, rest = name.partition(":")
    if kind in SCORES:
        return score_of_requests(run, kind, rest)
    metric = (
        "own_accuracy"
        if "own_accuracy" in run.metrics and "accuracy" not in run.metrics
        else "accuracy"
    )
    if kind == "rounds_to":
        reached = run.rounds_to(float(rest), metric)
        return float(run.rounds + 1 if reached is None else reached)
    if kind == "smoothness":
        return run.smoothness(metric)
    if kind == "weight":
        return _gain(run, rest)
    if kind in ("worst", "spread", "surrogate"):
        each = run.metric(rest)
        require(each.ndim == 2, f"{name}: {rest} has one value, not one per client")
        each = each[~np.isnan(each).all(axis=1)]
        last = each[-max(1, len(each) // 20) :]
        if kind == "worst":
            return float(np.nanmin(last.mean(axis=0)))
        return float((scores.spread(last) if kind == "spread" else last @ _surrogate(run)).mean())
    if kind in ("final", "half", "mean"):
        values = run.metric(rest or metric)
        values = values[~np.isnan(values)]
        last = values[-max(1, len(values) // 20) :]
        return float(
            {"final": last.mean(), "half": values[len(values) // 2], "mean": values.mean()}[kind]
        )
    if kind == "homogeneity":
        return likeness(run).homogeneity
    if kind in _COUNTS:
        counts = _COUNTS[kind](run)
        require(counts is not None, f"{kind}: the run has no classes")
        return float(np.asarray(counts)[run.rounds // 2 if rest == "late" else 0 :].mean())
    raise InvalidOption(
        f"unknown score {name!r}",
        "rounds_to:TARGET, final:METRIC, half:METRIC, mean:METRIC, worst:METRIC, spread:METRIC, surrogate:METRIC, "
        "weight:TRAIT>NUMBER, smoothness, distinct_clients, distinct_classes:late, homogeneity; of requests to forget "
        f"{', '.join(SCORES)}",
    )


_COUNTS: dict[str, Callable[[Run], Any]] = {
    "distinct_clients": scores.distinct_clients,
    "distinct_classes": scores.distinct_classes,
}


@dataclass(frozen=True)
class Likeness:
    """What is kept of a similarity graph: homogeneity, ``-ln mis`` of its pairs, eigenvalues that
    are not 0.
    """

    homogeneity: float
    edges: Floats
    spectrum: Floats


def likeness(run: Run) -> Likeness:
    """How alike the clients of a run are, from their data, made anew from its experiment."""
    return _likeness(run.experiment, int(run.meta["seed"]))


@lru_cache(maxsize=256)
def _likeness(experiment: str, seed: int) -> Likeness:
    graph = similarity(federation_in(parse(experiment), seed))
    return Likeness(graph.homogeneity, graph.edges, graph.spectrum[1:])


def _surrogate(run: Run) -> np.ndarray:
    """Importance of each client in the problem that aggregations which ignore times solve; sums to
    1.
    """
    importance = run.array("importance")
    require(importance is not None, "surrogate: the run keeps no importance of its clients")
    assert importance is not None
    weights = importance * np.bincount(scores.participations(run)[1], minlength=len(importance))
    return np.asarray(weights / weights.sum())


def _gain(run: Run, condition: str) -> float:
    """Mean coefficient over mean base weight of the clients whose trait is above or below a
    number.
    """
    found = re.fullmatch(r"(.+)([<>])(.+)", condition)
    require(
        found is not None, f"weight:{condition} has no condition", "for example weight:flip ratio>0"
    )
    assert found is not None
    values = run.traits.get(found[1].strip())
    if values is None:
        return float("nan")
    number = float(found[3])
    parts = run.contributions
    own = values[parts["client"]]
    chosen = parts[own > number if found[2] == ">" else own < number]
    return (
        float(chosen["coefficient"].sum() / chosen["base"].sum()) if len(chosen) else float("nan")
    )


@dataclass(frozen=True)
class Verdict:
    """One claim and how it fared."""

    text: str
    holds: bool
    measured: str


def judge(claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]) -> Verdict:
    """Whether a claim holds.

    ``at_most = r``: mean(left) <= r * mean(right). ``above``/``below``: the paired difference over
    seeds has that sign, with a 95 % interval that excludes 0 where ``significant = true``. ``within
    = r``: the means differ by at most the share r. ``apart_at_most = x``: they differ by at most x.
    ``above_by = x``: the left is x or more above the right. ``no_difference = true``: the 95 %
    interval of the paired difference contains 0. ``every_seed = true``: the sign is the same for
    every single seed. ``in_band = true``: the mean of the left lies between the lowest and the
    highest single run of the right. ``between = [a, b]``: the mean of the left alone lies there.
    ``right_cell = c``: the right side is measured in the cell c. ``than_cell = c``: the two sides
    are left - right in ``cell`` and left - right in c, so that "below" says that the first
    difference is the smaller one.
    """
    if "between" in claim:
        return _between(
            claim,
            np.array(
                [score(r, claim["score"]) for r in runs[claim.get("cell", ""), claim["left"]]]
            ),
        )
    left, right = _sides(claim, runs)
    mean, half = paired(left - right)
    ratio = left.mean() / right.mean() if right.mean() else float("nan")
    silent = (
        "than_cell" in claim or not right.mean()
    )  # of two differences, or to nothing, it would say nothing
    shown = "" if silent else f"ratio {ratio:.2f}, "
    measured = (
        f"{left.mean():.4g} against {right.mean():.4g}, {shown}difference {mean:+.4g} ± {half:.2g}"
    )
    if "at_most" in claim:
        holds = ratio <= claim["at_most"]
    elif "within" in claim:
        holds = abs(ratio - 1) <= claim["within"]
    elif claim.get("in_band"):
        holds = right.min() <= left.mean() <= right.max()
        measured = f"{left.mean():.4g} in {right.min():.4g} … {right.max():.4g}"
    elif "apart_at_most" in claim:
        holds = abs(mean) <= claim["apart_at_most"]
    elif "above_by" in claim:
        holds = mean >= claim["above_by"]
    elif claim.get("no_difference"):
        holds = abs(mean) <= half
    else:
        signed = mean if claim.get("relation") == "above" else -mean
        holds = signed > (half if claim.get("significant") else 0.0)
        if claim.get("every_seed"):
            holds = bool(
                (left > right).all() if claim.get("relation") == "above" else (left < right).all()
            )
    return Verdict(str(claim["text"]), bool(holds), measured)


def _sides(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> tuple[np.ndarray, np.ndarray]:
    """What is compared, one value per seed: two arms, or how far they are apart in two cells."""

    def values(cell: str, side: str) -> np.ndarray:
        return np.array([score(r, claim["score"]) for r in runs[cell, claim[side]]])

    here = claim.get("cell", "")
    left, right = values(here, "left"), values(claim.get("right_cell", here), "right")
    if "than_cell" not in claim:
        return left, right
    return left - right, values(claim["than_cell"], "left") - values(claim["than_cell"], "right")


def _between(claim: Mapping[str, Any], values: np.ndarray) -> Verdict:
    mean, half = paired(values)
    low, high = claim["between"]
    return Verdict(str(claim["text"]), low <= mean <= high, f"{mean:.4g} ± {half:.2g}")


def paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval (Student) of paired differences.

    >>> mean, half = paired(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    n = len(differences)
    if n < 2:
        return float(differences.mean()), float("inf")
    return float(differences.mean()), float(
        stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    )
