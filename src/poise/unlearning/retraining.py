"""Retrain on the remaining clients until their score reaches the target of the request."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any, cast

import numpy as np

from poise.config.unlearn_request import UnlearnRequest
from poise.core.algorithm_state import AlgorithmState
from poise.core.capabilities import LetsClientsLeave, PerClient
from poise.core.curvature import Curvature, curvature_of
from poise.core.errors import IncompatibleParts, LedgerError, require
from poise.core.federations import FederationLike, HasDigest, HasMembers, TaskLike
from poise.core.protocols import Attack, Oracle
from poise.core.rng import address
from poise.core.types import Ints, Record
from poise.core.vectors import Vector
from poise.engine.local_work import LocalWork
from poise.engine.plan import Parts
from poise.ledger.schema import is_damage
from poise.ledger.store import DATABASE
from poise.results import Run, open_run
from poise.training import (
    Composition,
    begin,
    compose,
    experiment_of,
    recorded,
    resume_run,
)
from poise.training.composition import TABLE_LIMIT
from poise.unlearning.request import Request

RESTARTING = ("sifu", "scratch")
"""Methods after which a request may restart inside the branch; the others continue at its end."""

AGAIN = "unlearn(run, …"
"""The call that takes objects which the run cannot name, up to its options."""

ACCURACY = "train_accuracy"
LOSSES = ("train_loss", "loss")
HELD_OUT = "accuracy"

SCORE = "score"
SCORE_NAME = "score name"
"""The score of the model in the metadata of a branch without rounds, and its metric."""

UNLEARNED_SCORE = "score on unlearned clients"
"""The metadata of a branch with its score on the unlearned clients, where it was measured."""


def composition_of(
    run: Run, federation: FederationLike | None = None, task: TaskLike | None = None
) -> Composition:
    """Compose a run again from its experiment.

    ``federation`` and ``task`` replace tables that the experiment does not have.
    """
    experiment = experiment_of(run)
    return compose(experiment, experiment.seeds[0], federation, task, again=AGAIN)


def training_curvature(run: Run, whole: Composition) -> Curvature | None:
    """Return the curvature that a training recorded; measure it where it did not."""
    recorded = Curvature.recorded(run.meta)
    if recorded is not None or whole.federation.on_demand:
        return recorded
    oracle = whole.task.bind(whole.federation, whole.backend.device)
    return curvature_of(whole.federation, oracle, whole.parts.solver.batch_size)


def score_name(metrics: Iterable[str], held_out: bool = False) -> str:
    """Return the metric of a target: accuracy on the clients' training data, or else the loss.

    With ``held_out``: accuracy on the held-out data, which the server can measure
    without clients.
    """
    known = set(metrics)
    if held_out:
        require(
            HELD_OUT in known,
            "held_out: this task has no accuracy on held-out data",
            "leave held_out out",
        )
        return HELD_OUT
    return next(name for name in (ACCURACY, *LOSSES) if name in known)


def federation_without(
    federation: FederationLike, removed: Sequence[int] | Ints
) -> FederationLike:
    """Return the federation of the remaining clients."""
    if not isinstance(federation, LetsClientsLeave):
        raise IncompatibleParts(
            f"{type(federation).__name__} has no method without(clients), which unlearning needs",
            "add the method, or use poise.federation",
        )
    remaining: FederationLike = federation.without(removed)
    return remaining


def composition_without(whole: Composition, removed: list[int]) -> Composition:
    """Return the composition of a run on the remaining clients."""
    federation = federation_without(whole.federation, removed)
    stay = [c for c in range(whole.federation.clients) if c not in set(removed)]
    parts = for_clients(whole.resolved().parts, stay)
    remaining = replace(whole, federation=federation, parts=parts, unlearning=None)
    return remaining.with_options(start=None)


def for_clients(parts: Parts, stay: Sequence[int]) -> Parts:
    """Return the parts for the clients that stay: options per client are selected, renumbered."""
    changed: dict[str, Any] = {}
    for slot, part in parts.chosen():
        if slot != "attacks" and isinstance(part, PerClient):
            changed[slot] = part.for_clients(stay)
    return replace(
        parts, **changed, attacks=tuple(_remaining_attacks(parts.attacks, stay))
    )


def _remaining_attacks(
    attacks: Sequence[Attack], stay: Sequence[int]
) -> Iterator[Attack]:
    """Yield the attacks of the clients that stay, under their new numbers."""
    new_number = {client: k for k, client in enumerate(stay)}
    for attack in attacks:
        attackers = tuple(new_number[c] for c in attack.clients if c in new_number)
        if attackers:
            yield cast(Attack, replace(cast(Any, attack), clients=attackers))


def check_retraining(remaining: Composition, oracle: Oracle, *, score: str) -> None:
    """Raise where the run cannot be retrained on the remaining clients."""
    if remaining.federation.on_demand:
        raise IncompatibleParts(
            (
                "the clients of this run are made on demand: poise cannot measure the score on all "
                "remaining clients"
            ),
            "to unlearn clients later, train with a federation that holds all of its clients",
        )
    remaining.with_options(metrics=_metrics_with(remaining, score)).plan(oracle)


def _metrics_with(composition: Composition, score: str) -> tuple[str, ...]:
    """Return the metrics of a run and the score of the target."""
    return tuple(sorted({*composition.options.metrics, score}))


def for_request(remaining: Composition, request: Request, *, score: str) -> Composition:
    """Return the composition of retraining: the request's rounds and score, and its own seed.

    The branch keeps models for later requests within the budget of this one: a history
    has one budget.
    """
    restarts = remaining.options.keep == "unlearnable" and request.method in RESTARTING
    budget = request.budget if restarts else None
    seed = address(remaining.seed, "branch", request.index) % 2**31
    if request.method == "shards":  # a training without the clients has the same seed
        seed = remaining.seed
    return (
        replace(remaining, unlearning=budget)
        .without_end_rules()
        .with_options(
            rounds=request.max_rounds,
            time=None,
            seed=seed,
            metrics=_metrics_with(remaining, score),
        )
    )


@dataclass
class Goal:
    """Decides from the records of retraining when it ends."""

    request: UnlearnRequest
    score: str
    stop: Callable[[], bool]
    rounds: int = 0
    value: float = field(default=np.nan)

    def see(self, record: Record) -> None:
        """Take in one more round."""
        self.rounds = record.index + 1
        value = record.metrics.get(self.score)
        self.value = float(value) if isinstance(value, float) else np.nan

    def follow(self, run: Run) -> None:
        """Take in the rounds that a run has recorded so far."""
        self.rounds = run.rounds
        self.value = np.nan
        if SCORE in run.meta:  # a branch without rounds
            self.value = float(run.meta[SCORE])
            self.request = replace(self.request, min_rounds=0)
        if run.rounds and self.score in run.metrics:
            self.value = float(run.metric(self.score)[-1])

    @property
    def met(self) -> bool:
        """Whether the score reached the target, after the least number of rounds."""
        target = self.request.target
        assert target is not None
        if self.score in (ACCURACY, HELD_OUT):
            enough = self.value >= target
        else:
            enough = self.value <= target
        return bool(enough) and self.rounds >= self.request.min_rounds

    def reached(self) -> bool:
        """Whether to stop: the goal is met, or the caller's ``stop`` returns true."""
        return self.met or self.stop()


def has_started(folder: Path | None) -> bool:
    """Whether an earlier attempt has its start model; if not, retraining begins anew."""
    if folder is None or not (folder / DATABASE).exists():
        return False
    try:
        earlier = open_run(folder)
    except LedgerError as error:
        # killed between making the file and filling it, or damaged beyond reading
        if isinstance(error.__cause__, sqlite3.Error) and is_damage(error.__cause__):
            return False
        raise
    try:
        started = "initial" in earlier.meta and len(earlier.models(0)) > 0
    except LedgerError:  # without its start model, a branch cannot be certified
        started = False
    earlier.close()
    return started


def retrain(
    composition: Composition,
    start: Vector | None,
    *,
    folder: Path | None,
    goal: Goal,
    callbacks: Iterable[Callable[[Record], None]] = (),
) -> Run:
    """Train from ``start`` until the goal is met; None resumes the attempt in the folder."""
    observers = (goal.see, *callbacks)
    if start is not None:
        _drop_leftovers(folder)
        return begin(
            composition, folder, observers, goal.reached, start=start.cpu().numpy()
        )
    assert folder is not None
    earlier = open_run(folder)
    require_facts(earlier, composition)
    newest = earlier.newest_record
    if newest is not None:
        goal.see(newest)
    if _has_ended(earlier, goal):
        return earlier
    earlier.close()
    recorded_start = recorded(folder).tables["run"]["start"]
    resumed = composition.with_options(start=recorded_start)
    return resume_run(resumed, folder, observers, goal.reached, go_back=True)


def record_model(
    composition: Composition, model: Vector, *, folder: Path | None, goal: Goal
) -> Run:
    """Record a branch without rounds: its model, and the score of the model."""
    _drop_leftovers(folder)
    return begin(
        composition,
        folder,
        stop=lambda: True,
        start=model.cpu().numpy(),
        facts={SCORE: goal.value, SCORE_NAME: goal.score},
    )


def _drop_leftovers(folder: Path | None) -> None:
    """Delete the ledger of an attempt that did not get to its start model."""
    leftovers = [] if folder is None else sorted(folder.glob(f"{DATABASE}*"))
    for leftover in leftovers:
        leftover.unlink()


def require_facts(run: Run, composition: Composition) -> None:
    """Raise where the metadata of a run are not those of its composition.

    Its rounds have digests, its metadata have not.
    """
    fed = composition.federation
    facts: dict[str, Any] = {"seed": composition.seed, "clients": fed.clients}
    if isinstance(fed, HasDigest):
        facts["federation"] = fed.digest()
    if composition.curvature is not None:
        facts |= composition.curvature.facts()
    arrays: dict[str, Any] = {}
    if fed.clients <= TABLE_LIMIT:
        arrays = {"sizes": fed.sizes, "importance": fed.importance}
    if isinstance(fed, HasMembers) and fed.members[-1] >= fed.clients:
        arrays["members"] = fed.members
    problems = [key for key in facts if run.meta.get(key) != str(facts[key])]
    for name, expected in arrays.items():
        recorded = run.array(name)
        if recorded is None or not np.array_equal(recorded, expected):
            problems.append(name)
    if "initial" not in run.meta:
        problems.append("initial")
    if problems:
        raise LedgerError(
            f"{run!r}: its ledger has another {problems[0]!r} than its experiment",
            "restore the folder from a backup, or give the data of the original run",
        )


def _has_ended(branch: Run, goal: Goal) -> bool:
    """Whether retraining came to its end, and the branch can be read.

    Resuming it would only change its file, which later certificates may cover.
    """
    enough = goal.met or branch.rounds >= goal.request.max_rounds
    if not enough or branch.damage or branch.meta.get("status") == "running":
        return False
    try:
        return len(branch.model) > 0
    except LedgerError:
        return False


def unlearned_score(branch: Run) -> float | None:
    """Return the score of a branch on the unlearned clients; None if it was not measured."""
    recorded = branch.meta.get(UNLEARNED_SCORE)
    if recorded is None or isnan(float(recorded)):
        return None
    return float(recorded)


def score_on(oracle: Oracle, model: Vector, *, score: str) -> float:
    """Return the score of a model on the clients of an oracle."""
    measured = oracle.measure(
        model, frozenset({score}), lambda work, items: [work(i) for i in items]
    )
    return float(measured[score])


def present_score(
    remaining: Composition, oracle: Oracle, *, model: Vector, score: str
) -> float:
    """Return the score of a model on the remaining clients, measured by the run's backend."""
    work = LocalWork.plain(oracle, remaining.parts.solver)
    backend = remaining.backend.open(work, remaining.federation, remaining.seed)
    try:
        return float(
            backend.measure(model, frozenset({score}), AlgorithmState())[score]
        )
    finally:
        backend.close()


def default_target(value: float, score: str) -> float:
    """Return the default target: 1 % worse than the present model's score ``value``."""
    share = 0.99 if score in (ACCURACY, HELD_OUT) else 1.01
    return value * share
