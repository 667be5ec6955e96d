"""Scores of the runs of a reproduction, and verdicts on the claims of the paper."""

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
from poise.results import Run
from poise.training import federation_in


def score(run: Run, name: str) -> float:
    """A score of a run by its name.

    - ``rounds_to:0.9``: rounds until the accuracy reaches a target, or another metric:
      ``rounds_to:0.9:local_accuracy``. A target that the run did not reach counts as
      one round more than the run has, which favours the slower method.
    - ``final:accuracy``, ``half:accuracy``, ``mean:accuracy``: a metric at the end, at
      half time, and on average.
    - ``smoothness``: of the accuracy.
    - ``worst:client_test_accuracy``: the lowest final value of all clients.
    - ``spread:client_loss``: the standard deviation over the clients.
    - ``surrogate:client_loss``: Σ q_i L_i with q_i in proportion to p_i times the
      number of aggregations with client i. Weights that ignore how often each client
      answers minimise it.
    - ``weight:flip ratio>0``: mean coefficient over mean base weight of the clients
      whose trait meets the condition; nan if the clients do not have the trait.
    - ``distinct_clients``, ``distinct_classes``: means over the rounds; with ``:late``,
      over the second half.
    - ``homogeneity``: of the similarity graph of the run's clients, computed from its
      experiment.
    - ``retraining``, ``forgotten:2``, …: scores of unlearning requests
      (`score_of_requests`).

    ``final``, ``worst``, ``spread`` and ``surrogate`` are means over the last twentieth
    of the measurements.
    """
    kind, _, rest = name.partition(":")
    if kind in SCORES:
        return score_of_requests(run, kind, rest)
    metric = "accuracy"
    if "own_accuracy" in run.metrics and "accuracy" not in run.metrics:
        metric = "own_accuracy"
    if kind == "rounds_to":
        target, _, named = rest.partition(":")
        reached = run.rounds_to(float(target), named or metric)
        return float(run.rounds + 1 if reached is None else reached)
    if kind == "smoothness":
        return run.smoothness(metric)
    if kind == "weight":
        return _weight_gain(run, rest)
    if kind in ("worst", "spread", "surrogate"):
        return _score_per_client(run, kind, rest)
    if kind in ("final", "half", "mean"):
        return _score_of_curve(run, kind, rest or metric)
    if kind == "homogeneity":
        return client_similarity(run).homogeneity
    if kind in _COUNTS:
        counts = _COUNTS[kind](run)
        require(counts is not None, f"{kind}: the run has no classes")
        first_round = run.rounds // 2 if rest == "late" else 0
        return float(np.asarray(counts)[first_round:].mean())
    raise InvalidOption(
        f"unknown score {name!r}",
        "known: rounds_to:TARGET, rounds_to:TARGET:METRIC, final:METRIC, half:METRIC, "
        "mean:METRIC, worst:METRIC, spread:METRIC, surrogate:METRIC, weight:TRAIT>NUMBER, "
        "smoothness, distinct_clients, distinct_classes:late, homogeneity; for "
        "unlearning requests "
        f"{', '.join(SCORES)}",
    )


def _score_per_client(run: Run, kind: str, metric: str) -> float:
    """A score of a metric per client: ``worst``, ``spread`` or ``surrogate``."""
    values = run.metric(metric)
    require(
        values.ndim == 2, f"{kind}:{metric}: {metric} has one value, not one per client"
    )
    measured = values[~np.isnan(values).all(axis=1)]
    last = measured[-max(1, len(measured) // 20) :]
    if kind == "worst":
        return float(np.nanmin(last.mean(axis=0)))
    if kind == "spread":
        return float(scores.spread(last).mean())
    return float((last @ _surrogate_importance(run)).mean())


def _score_of_curve(run: Run, kind: str, metric: str) -> float:
    """A score of a metric over the rounds: ``final``, ``half`` or ``mean``."""
    values = run.metric(metric)
    values = values[~np.isnan(values)]
    if kind == "half":
        return float(values[len(values) // 2])
    if kind == "mean":
        return float(values.mean())
    last = values[-max(1, len(values) // 20) :]
    return float(last.mean())


_COUNTS: dict[str, Callable[[Run], Any]] = {
    "distinct_clients": scores.distinct_clients,
    "distinct_classes": scores.distinct_classes,
}


@dataclass(frozen=True)
class SimilaritySummary:
    """A similarity graph in short: homogeneity, ``-ln mis`` of its pairs, nonzero eigenvalues."""

    homogeneity: float
    edges: Floats
    spectrum: Floats


def client_similarity(run: Run) -> SimilaritySummary:
    """The similarity of a run's clients, from their data, which its experiment describes."""
    return _client_similarity(run.experiment, int(run.meta["seed"]))


@lru_cache(maxsize=256)
def _client_similarity(experiment: str, seed: int) -> SimilaritySummary:
    graph = similarity(federation_in(parse(experiment), seed))
    return SimilaritySummary(
        graph.homogeneity, graph.edges, spectrum=graph.spectrum[1:]
    )


def _surrogate_importance(run: Run) -> np.ndarray:
    """Importance of each client in the problem that time-blind weights solve; sums to 1."""
    importance = run.array("importance")
    require(
        importance is not None,
        "surrogate: the run does not store the clients' importance",
    )
    assert importance is not None
    aggregations = np.bincount(scores.participations(run)[1], minlength=len(importance))
    weights = importance * aggregations
    return np.asarray(weights / weights.sum())


def _weight_gain(run: Run, condition: str) -> float:
    """Mean coefficient over mean base weight of the clients whose trait meets a condition."""
    match = re.fullmatch(r"(.+)([<>])(.+)", condition)
    require(
        match is not None,
        f"weight:{condition} has no condition",
        "for example weight:flip ratio>0",
    )
    assert match is not None
    trait = match[1].strip()
    relation = match[2]
    number = float(match[3])
    values = run.traits.get(trait)
    if values is None:
        return float("nan")
    contributions = run.contributions
    trait_values = values[contributions["client"]]
    meets = trait_values > number if relation == ">" else trait_values < number
    chosen = contributions[meets]
    if not len(chosen):
        return float("nan")
    return float(chosen["coefficient"].sum() / chosen["base"].sum())


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, whether it holds, and the measured values."""

    text: str
    holds: bool
    measured: str


def judge(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> ClaimVerdict:
    """Whether a claim about two arms, left and right, holds.

    - ``at_most = r``: mean(left) <= r * mean(right).
    - ``relation = "above"`` or ``"below"``: the paired difference over seeds has that
      sign; with ``significant = true``, its 95 % interval excludes 0; with
      ``every_seed = true``, every single seed has that sign.
    - ``within = r``: the means differ by at most the share r.
    - ``apart_at_most = x``: the means differ by at most x.
    - ``above_by = x``: the left mean is x or more above the right one.
    - ``no_difference = true``: the 95 % interval of the paired difference contains 0.
    - ``in_band = true``: the left mean lies between the lowest and the highest run of
      the right.
    - ``between = [a, b]``: the left mean alone lies in this interval.
    - ``right_cell = c``: the right arm is measured in the cell c.
    - ``than_cell = c``: compares left - right in ``cell`` with left - right in c;
      "below" means that the first difference is smaller.
    """
    if "between" in claim:
        cell = claim.get("cell", "")
        values = [score(run, claim["score"]) for run in runs[cell, claim["left"]]]
        return _judge_between(claim, np.array(values))
    left, right = _sides(claim, runs)
    mean, half = paired(left - right)
    ratio = left.mean() / right.mean() if right.mean() else float("nan")
    ratio_is_meaningful = right.mean() and "than_cell" not in claim
    shown_ratio = f"ratio {ratio:.2f}, " if ratio_is_meaningful else ""
    measured = (
        f"{left.mean():.4g} against {right.mean():.4g}, {shown_ratio}"
        f"difference {mean:+.4g} ± {half:.2g}"
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
        sign = 1 if claim.get("relation") == "above" else -1
        threshold = half if claim.get("significant") else 0.0
        holds = sign * mean > threshold
        if claim.get("every_seed"):
            holds = bool((sign * left > sign * right).all())
    return ClaimVerdict(str(claim["text"]), bool(holds), measured)


def _sides(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> tuple[np.ndarray, np.ndarray]:
    """The two compared sides, one value per seed: two arms, or their differences in two cells."""

    def values(cell: str, side: str) -> np.ndarray:
        return np.array([score(r, claim["score"]) for r in runs[cell, claim[side]]])

    cell = claim.get("cell", "")
    left = values(cell, "left")
    right = values(claim.get("right_cell", cell), "right")
    if "than_cell" not in claim:
        return left, right
    other_cell = claim["than_cell"]
    return left - right, values(other_cell, "left") - values(other_cell, "right")


def _judge_between(claim: Mapping[str, Any], values: np.ndarray) -> ClaimVerdict:
    mean, half = paired(values)
    low, high = claim["between"]
    return ClaimVerdict(
        str(claim["text"]), low <= mean <= high, f"{mean:.4g} ± {half:.2g}"
    )


def paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval (Student) of paired differences.

    >>> mean, half = paired(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    n = len(differences)
    if n < 2:
        return float(differences.mean()), float("inf")
    half = stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    return float(differences.mean()), float(half)
