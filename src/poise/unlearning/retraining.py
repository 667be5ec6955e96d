"""Retraining on the clients that remain, until they are served well enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from poise.composition import Composition
from poise.core.errors import IncompatibleParts, require
from poise.core.plan import Parts
from poise.core.rng import address
from poise.core.types import Record
from poise.core.vectors import Vector
from poise.experiments.runner import compose, recorded
from poise.experiments.spec import parse
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE
from poise.training import begin, take_up
from poise.unlearning.request import Request

RESTARTING = ("sifu", "scratch")
"""Methods after which a request may restart inside the branch; the others go on from its end."""

ACCURACY, LOSSES, HELD_OUT = "train_accuracy", ("train_loss", "loss"), "accuracy"


def composition_of(run: Run, federation: Any = None, task: Any = None) -> Composition:
    """What a run was composed of, made again from its experiment; objects stand for tables that it does not have."""
    experiment = parse(run.experiment) if run.path is None else recorded(run.path)
    return compose(experiment, experiment.seeds[0], federation, task)


def score_of(metrics: Iterable[str], held_out: bool = False) -> str:
    """What a target is about: accuracy on the training data of the clients, or the loss where there is none.

    ``held_out``: accuracy on the held-out data instead, which nobody has to be asked for.
    """
    known = set(metrics)
    if held_out:
        require(HELD_OUT in known, "held_out: there is no accuracy on held-out data", "leave it out")
        return HELD_OUT
    return next(name for name in (ACCURACY, *LOSSES) if name in known)


def remaining(whole: Composition, gone: list[int]) -> Composition:
    """The run's own recipe, on the clients that are left."""
    federation = whole.federation
    if not hasattr(federation, "without"):
        raise IncompatibleParts(f"{type(federation).__name__} cannot be asked for the clients that are left")
    stay = [c for c in range(federation.clients) if c not in set(gone)]
    left = federation.without(gone)
    return replace(whole, federation=left, parts=for_clients(whole.parts, stay), unlearning=None, start=None)


def for_clients(parts: Parts, stay: Sequence[int]) -> Parts:
    """The parts for the clients that stay: what was given client by client is given for these, renumbered."""
    clock: Any = parts.clock
    sampler: Any = parts.sampler
    durations: Any = getattr(clock, "durations", None)
    if hasattr(durations, "tau") and not isinstance(durations.tau, str):
        clock = replace(clock, durations=replace(durations, tau=_some(durations.tau, stay)))
    elif isinstance(durations, Sequence | np.ndarray) and not isinstance(durations, str):
        clock = replace(clock, durations=_some(durations, stay))
    groups = getattr(sampler, "groups", "")
    if not isinstance(groups, str):
        sampler = replace(sampler, groups=_some(groups, stay))
    return replace(parts, clock=clock, sampler=sampler, attacks=tuple(_attacking(parts.attacks, stay)))


def _attacking(attacks: Sequence[Any], stay: Sequence[int]) -> Iterator[Any]:
    """The attacks of those who stay, under their new numbers."""
    place = {client: k for k, client in enumerate(stay)}
    for attack in attacks:
        left = tuple(place[c] for c in attack.clients if c in place)
        if left:
            yield replace(attack, clients=left)


def _some(values: Any, stay: Sequence[int]) -> list[Any]:
    """The entries of some clients, as plain numbers."""
    return [np.asarray(values)[c].item() for c in stay]


def fits(left: Composition, oracle: Any, score: str) -> None:
    """Raise where the recipe cannot be used on the clients that are left."""
    if left.federation.on_demand:
        raise IncompatibleParts(
            "the clients of this run are made on demand: how well the remaining ones are served cannot be measured",
            "a run that may be asked to forget needs clients that are all there",
        )
    replace(left, metrics=tuple(sorted({*left.metrics, score}))).plan(oracle)


def aimed(left: Composition, request: Request, score: str) -> Composition:
    """The same, for as long as a request allows, measuring what it aims at, with draws of its own.

    Models that are kept for later requests are kept for the budget of this one: a history has one budget.
    """
    kept_for = request.budget if left.keep == "unlearnable" and request.method in RESTARTING else None
    return replace(
        left, rounds=request.max_rounds, time=None, seed=address(left.seed, "branch", request.index) % 2**31,
        metrics=tuple(sorted({*left.metrics, score})), unlearning=kept_for,
    )  # fmt: skip


@dataclass
class Goal:
    """Knows from the records when retraining may end."""

    request: Request
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
        self.value = float(run.metric(self.score)[-1]) if run.rounds and self.score in run.metrics else np.nan

    @property
    def met(self) -> bool:
        """Whether the remaining clients are served well enough."""
        more = self.score in (ACCURACY, HELD_OUT)
        enough = self.value >= self.request.target if more else self.value <= self.request.target
        return bool(enough) and self.rounds >= self.request.min_rounds

    def reached(self) -> bool:
        """Whether to stop: the goal is met, or someone else says so."""
        return self.met or self.stop()


def begun(folder: Path | None) -> bool:
    """Whether an earlier attempt wrote the model that it started from; without it, nothing is lost."""
    if folder is None or not (folder / DATABASE).exists():
        return False
    earlier = open_run(folder)
    there = "initial" in earlier.meta
    earlier.close()
    return there


def retrain(
    composition: Composition, start: Vector | None, folder: Path | None, goal: Goal,
    callbacks: Iterable[Callable[[Record], None]] = (),
) -> Run:  # fmt: skip
    """Train from ``start`` until the goal is met; None takes up what an earlier attempt left in the folder."""
    observers = (goal.see, *callbacks)
    if start is not None:
        for leftover in [] if folder is None else sorted(folder.glob(f"{DATABASE}*")):
            leftover.unlink()
        return begin(composition, folder, observers, goal.reached, start=start.cpu().numpy())
    assert folder is not None
    earlier = open_run(folder)
    goal.follow(earlier)
    earlier.close()
    return take_up(replace(composition, start=recorded(folder).tables["run"]["start"]), folder, observers, goal.reached)


def score_on(oracle: Any, model: Vector, score: str) -> float:
    """The score of a model on the clients of an oracle."""
    found = oracle.measure(model, frozenset({score}), lambda work, items: [work(i) for i in items])
    return float(found[score])


def present_score(left: Composition, oracle: Any, model: Vector, score: str) -> float:
    """The score of a model on the clients that are left, measured where their data are."""
    bench = left.backend.open(oracle, left.parts.solver, left.federation.sizes, left.seed)
    try:
        return float(bench.measure(model, frozenset({score}))[score])
    finally:
        bench.close()


def short_of(value: float, score: str) -> float:
    """The target where none is given: what the model to be cleaned has on the remaining clients, short by 1 %."""
    return value * (0.99 if score in (ACCURACY, HELD_OUT) else 1.01)
