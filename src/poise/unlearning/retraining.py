"""Retraining on the clients that remain, until they are served well enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from poise.config.unlearn_request import UnlearnRequest
from poise.core.algorithm_state import AlgorithmState
from poise.core.capabilities import LetsClientsLeave, PerClient
from poise.core.errors import IncompatibleParts, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import Attack, Oracle
from poise.core.rng import address
from poise.core.types import Ints, Record
from poise.core.vectors import Vector
from poise.engine.local_work import LocalWork
from poise.engine.plan import Parts
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE
from poise.training import Composition, begin, compose, experiment_of, recorded, resume_run
from poise.unlearning.request import Request

RESTARTING = ("sifu", "scratch")
"""Methods after which a request may restart inside the branch; the others go on from its end."""

ACCURACY, LOSSES, HELD_OUT = "train_accuracy", ("train_loss", "loss"), "accuracy"


def composition_of(
    run: Run, federation: FederationLike | None = None, task: TaskLike | None = None
) -> Composition:
    """What a run was composed of, made again from its experiment; objects stand for tables that it
    does not have.
    """
    experiment = experiment_of(run)
    return compose(experiment, experiment.seeds[0], federation, task)


def score_of(metrics: Iterable[str], held_out: bool = False) -> str:
    """What a target is about: accuracy on the training data of the clients, or the loss where there
    is none.

    ``held_out``: accuracy on the held-out data instead, which nobody has to be asked for.
    """
    known = set(metrics)
    if held_out:
        require(
            HELD_OUT in known, "held_out: there is no accuracy on held-out data", "leave it out"
        )
        return HELD_OUT
    return next(name for name in (ACCURACY, *LOSSES) if name in known)


def without(federation: FederationLike, gone: Sequence[int] | Ints) -> FederationLike:
    """The federation that is left when these clients are gone."""
    if not isinstance(federation, LetsClientsLeave):
        raise IncompatibleParts(
            f"{type(federation).__name__} cannot be asked for the clients that are left"
        )
    left: FederationLike = federation.without(gone)
    return left


def remaining(whole: Composition, gone: list[int]) -> Composition:
    """The run's own recipe, on the clients that are left."""
    left = without(whole.federation, gone)
    stay = [c for c in range(whole.federation.clients) if c not in set(gone)]
    parts = for_clients(whole.parts, stay)
    return replace(whole, federation=left, parts=parts, unlearning=None).with_options(start=None)


def for_clients(parts: Parts, stay: Sequence[int]) -> Parts:
    """The parts for the clients that stay: what was given client by client is given for these,
    renumbered.
    """
    left: dict[str, Any] = {}
    for slot, chosen in parts.chosen():
        if slot != "attacks" and isinstance(chosen, PerClient):
            left[slot] = chosen.for_clients(stay)
    return replace(parts, **left, attacks=tuple(_attacking(parts.attacks, stay)))


def _attacking(attacks: Sequence[Attack], stay: Sequence[int]) -> Iterator[Attack]:
    """The attacks of those who stay, under their new numbers."""
    place = {client: k for k, client in enumerate(stay)}
    for attack in attacks:
        left = tuple(place[c] for c in attack.clients if c in place)
        if left:
            yield cast(Attack, replace(cast(Any, attack), clients=left))


def fits(left: Composition, oracle: Oracle, score: str) -> None:
    """Raise where the recipe cannot be used on the clients that are left."""
    if left.federation.on_demand:
        raise IncompatibleParts(
            (
                "the clients of this run are made on demand: how well the remaining ones are served "
                "cannot be measured"
            ),
            "a run that may be asked to forget needs clients that are all there",
        )
    left.with_options(metrics=_measured(left, score)).plan(oracle)


def _measured(left: Composition, score: str) -> tuple[str, ...]:
    """The metrics of a run and the score that its retraining aims at."""
    return tuple(sorted({*left.options.metrics, score}))


def aimed(left: Composition, request: Request, score: str) -> Composition:
    """The same, for as long as a request allows, measuring what it aims at, with draws of its own.

    Models that are kept for later requests are kept for the budget of this one: a history has one
    budget.
    """
    restarts = left.options.keep == "unlearnable" and request.method in RESTARTING
    return replace(left, unlearning=request.budget if restarts else None).with_options(
        rounds=request.max_rounds,
        time=None,
        seed=address(left.seed, "branch", request.index) % 2**31,
        metrics=_measured(left, score),
    )


@dataclass
class Goal:
    """Knows from the records when retraining may end."""

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
        """Take in what a run has recorded so far."""
        self.rounds = run.rounds
        self.value = (
            float(run.metric(self.score)[-1])
            if run.rounds and self.score in run.metrics
            else np.nan
        )

    @property
    def met(self) -> bool:
        """Whether the remaining clients are served well enough."""
        target = self.request.target
        assert target is not None
        more = self.score in (ACCURACY, HELD_OUT)
        enough = self.value >= target if more else self.value <= target
        return bool(enough) and self.rounds >= self.request.min_rounds

    def reached(self) -> bool:
        """Whether to stop: the goal is met, or someone else says so."""
        return self.met or self.stop()


def begun(folder: Path | None) -> bool:
    """Whether an earlier attempt wrote the model that it started from; without it, nothing is
    lost.
    """
    if folder is None or not (folder / DATABASE).exists():
        return False
    earlier = open_run(folder)
    there = "initial" in earlier.meta
    earlier.close()
    return there


def retrain(
    composition: Composition,
    start: Vector | None,
    folder: Path | None,
    goal: Goal,
    callbacks: Iterable[Callable[[Record], None]] = (),
) -> Run:
    """Train from ``start`` until the goal is met; None takes up what an earlier attempt left in the
    folder.
    """
    observers = (goal.see, *callbacks)
    if start is not None:
        for leftover in [] if folder is None else sorted(folder.glob(f"{DATABASE}*")):
            leftover.unlink()
        return begin(composition, folder, observers, goal.reached, start=start.cpu().numpy())
    assert folder is not None
    earlier = open_run(folder)
    goal.follow(earlier)
    earlier.close()
    begun_from = recorded(folder).tables["run"]["start"]
    return resume_run(composition.with_options(start=begun_from), folder, observers, goal.reached)


def score_on(oracle: Oracle, model: Vector, score: str) -> float:
    """The score of a model on the clients of an oracle."""
    found = oracle.measure(model, frozenset({score}), lambda work, items: [work(i) for i in items])
    return float(found[score])


def present_score(left: Composition, oracle: Oracle, model: Vector, score: str) -> float:
    """The score of a model on the clients that are left, measured where their data are."""
    backend = left.backend.open(
        LocalWork.plain(oracle, left.parts.solver), left.federation, left.seed
    )
    try:
        return float(backend.measure(model, frozenset({score}), AlgorithmState())[score])
    finally:
        backend.close()


def short_of(value: float, score: str) -> float:
    """The target where none is given: what the model to be cleaned has on the remaining clients,
    short by 1 %.
    """
    return value * (0.99 if score in (ACCURACY, HELD_OUT) else 1.01)
