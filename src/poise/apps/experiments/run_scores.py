"""Scores of the runs of a reproduction, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from poise.analysis.reports import scores
from poise.apps.experiments.unlearning_arms import SCORES, score_of_requests
from poise.auditing.audit import audit
from poise.config.experiment import parse
from poise.core.errors import InvalidOption, require
from poise.core.types import Floats
from poise.graph import similarity
from poise.results import Run
from poise.training import federation_in

KNOWN = (
    "rounds_to:TARGET, rounds_to:TARGET:METRIC, final:METRIC, half:METRIC, mean:METRIC, "
    "smoothness:METRIC (with :FIRST-LAST for a range of rounds), worst:METRIC, "
    "spread:METRIC, surrogate:METRIC, weight:TRAIT>NUMBER, distinct_clients, "
    "distinct_classes:late, audit_auc, audit_auc:seen:ROUND, homogeneity; for unlearning "
    f"requests {', '.join(SCORES)}"
)


def score(run: Run, name: str) -> float:
    """A score of a run by its name.

    - ``rounds_to:0.9``: rounds until the accuracy reaches a target, or another metric:
      ``rounds_to:0.9:local_accuracy``. A target that the run did not reach counts as
      one round more than the run has, which favours the slower method.
    - ``final:accuracy``, ``half:accuracy``, ``mean:accuracy``: a metric at the end, at
      half time, and on average.
    - ``smoothness``: of the accuracy, or of another metric: ``smoothness:loss``.
    - ``mean:accuracy:21-60``: only measurements after aggregations 21 to 60 (counted
      from 1), for example after the switch of a hybrid; also for ``final``, ``half``
      and ``smoothness``.
    - ``worst:client_test_accuracy``: the lowest final value of all clients.
    - ``spread:client_loss``: the standard deviation over the clients.
    - ``surrogate:client_loss``: Σ q_i L_i with q_i in proportion to p_i times the
      number of aggregations with client i. Weights that ignore how often each client
      answers minimise it.
    - ``weight:flip ratio>0``: mean coefficient over mean base weight of the clients
      whose trait meets the condition; nan if the clients do not have the trait.
    - ``distinct_clients``, ``distinct_classes``: means over the rounds; with ``:late``,
      over the second half.
    - ``audit_auc``: the chance that the audit scores a free-rider of the experiment
      above another client; ``audit_auc:seen`` compares only clients that took part,
      ``audit_auc:all:5`` and ``audit_auc:seen:5`` after five aggregations.
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
    if kind in _KINDS:
        return _KINDS[kind](run, kind, rest)
    raise InvalidOption(f"unknown score {name!r}", f"known: {KNOWN}")


def rounds_to_targets(names: Iterable[str]) -> list[float]:
    """The targets of the scores ``rounds_to:TARGET`` of the accuracy, sorted."""
    targets = set()
    for name in names:
        kind, _, rest = name.partition(":")
        target, _, metric = rest.partition(":")
        if kind == "rounds_to" and metric in ("", "accuracy"):
            targets.add(float(target))
    return sorted(targets)


def _main_metric(run: Run) -> str:
    """The accuracy; with personal layers, that of the clients on their own data."""
    if "own_accuracy" in run.metrics and "accuracy" not in run.metrics:
        return "own_accuracy"
    return "accuracy"


def _rounds_to(run: Run, kind: str, rest: str) -> float:
    """Rounds until a metric reaches a target; one more than the run has if it does not."""
    target, _, metric = rest.partition(":")
    reached = run.rounds_to(float(target), metric or _main_metric(run))
    if reached is None:
        return float(run.rounds + 1)
    return float(reached)


def _distinct(run: Run, kind: str, rest: str) -> float:
    """Mean number of different clients or classes per aggregation."""
    counts = _COUNTS[kind](run)
    require(counts is not None, f"{kind}: the run has no classes")
    first_round = run.rounds // 2 if rest == "late" else 0
    return float(np.asarray(counts)[first_round:].mean())


def _homogeneity(run: Run, kind: str, rest: str) -> float:
    return client_similarity(run).homogeneity


def _audit_auc(run: Run, kind: str, rest: str) -> float:
    """The AUC of the audit against the clients that the experiment lets attack."""
    which, _, after = rest.partition(":")
    name = ":".join(filter(None, (kind, rest)))
    require(
        which in ("", "all", "seen") and (not after or after.isdecimal()),
        f"{name} is no score",
        "write audit_auc, audit_auc:seen, audit_auc:all:5 or audit_auc:seen:5",
    )
    attackers: set[int] = set()
    for attack in run.experiment.tables.get("attacks", ()):
        attackers.update(int(client) for client in attack.get("clients", ()))
    return audit(run).auc(
        np.array(sorted(attackers), dtype=int),
        round=int(after) if after else None,
        seen=which == "seen",
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


def _score_of_curve(run: Run, kind: str, rest: str) -> float:
    """A score of a metric over the rounds: ``final``, ``half``, ``mean``, ``smoothness``."""
    metric, _, span = rest.partition(":")
    metric = metric or _main_metric(run)
    first, last = _rounds_of(span, run, name=f"{kind}:{rest}")
    if kind == "smoothness":
        return run.smoothness(metric, first=first, last=last)
    values = run.metric(metric)[first - 1 : last]
    values = values[~np.isnan(values)]
    require(
        len(values) > 0,
        f"{kind}:{rest}: the run did not measure {metric} in rounds {first} to {last}",
        "choose a longer range, or a smaller evaluate_every",
    )
    if kind == "half":
        return float(values[len(values) // 2])
    if kind == "mean":
        return float(values.mean())
    newest = values[-max(1, len(values) // 20) :]
    return float(newest.mean())


def _rounds_of(span: str, run: Run, name: str) -> tuple[int, int]:
    """The first and last aggregation of a range such as ``21-60``; all without a range."""
    if not span:
        return 1, run.rounds
    match = re.fullmatch(r"(\d+)-(\d+)", span)
    require(
        match is not None and 1 <= int(match[1]) <= int(match[2]),
        f"{name}: {span!r} is no range of rounds",
        "write the first and the last round, for example 21-60",
    )
    assert match is not None
    first, last = int(match[1]), int(match[2])
    require(
        last <= run.rounds,
        f"{name}: the run has {run.rounds} rounds",
        "end the range within the run",
    )
    return first, last


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


def _weight_gain(run: Run, kind: str, condition: str) -> float:
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


_KINDS: dict[str, Callable[[Run, str, str], float]] = {
    "rounds_to": _rounds_to,
    "final": _score_of_curve,
    "half": _score_of_curve,
    "mean": _score_of_curve,
    "smoothness": _score_of_curve,
    "worst": _score_per_client,
    "spread": _score_per_client,
    "surrogate": _score_per_client,
    "weight": _weight_gain,
    "distinct_clients": _distinct,
    "distinct_classes": _distinct,
    "audit_auc": _audit_auc,
    "homogeneity": _homogeneity,
}
