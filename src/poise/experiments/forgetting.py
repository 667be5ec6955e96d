"""Arms of a reproduction that train once and then honour requests to forget, one after the other.

The table ``[requests]`` of a preset says who is to be forgotten and how. Arms that differ in nothing else share their
training, so that methods are compared on the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from poise.composition import Composition
from poise.core.errors import InvalidOption, require, suggest
from poise.core.types import Record
from poise.experiments.runner import compose, resume
from poise.experiments.spec import Experiment
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE
from poise.training import begin
from poise.unlearning.budget import Budget
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE
from poise.unlearning.operation import unlearn
from poise.unlearning.request import Request
from poise.unlearning.retraining import ACCURACY, Goal

Observe = Callable[[str, Composition], list[Callable[[Record], None]]]
OURS = ("run", "measure_forgotten", "out", "federation", "task", "callbacks", "stop")
"""Arguments of `poise.unlearn` that a preset does not give: they say where, not what."""

SCORES = ("retraining", "forgotten", "remaining", "restart", "kept", "reached", "training")


@dataclass(frozen=True)
class Requests:
    """The table [requests].

    Args:
        clients: W_1, W_2, …: who is to be forgotten, request by request.
        options: of `poise.unlearn`: the method, the target, the least and the most rounds, and the budget.
    """

    clients: tuple[tuple[int, ...], ...]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Requests:
        """From a preset."""
        known = [name for name in signature(unlearn).parameters if name not in OURS]
        for key in table:
            require(key in known, f"[requests] has no key {key!r}", suggest(key, known))
        for key in ("clients", "target"):
            require(key in table, f"[requests] has no {key}")
        options = {k: v for k, v in table.items() if k != "clients"}
        return cls(tuple(tuple(some) for some in table["clients"]), options)

    def goal(self, stop: Callable[[], bool]) -> Goal:
        """When training ends: as retraining does, at the target, after at least so many rounds."""
        least = int(self.options.get("min_rounds", 50))
        nobody = Request((), "scratch", Budget(), float(self.options["target"]), least, max(least, 1))
        return Goal(nobody, ACCURACY, stop)


def trained(
    experiment: Experiment, seed: int, folder: Path, label: str, observe: Observe, stop: Callable[[], bool]
) -> Run | None:
    """The training that all requests start from, until its target or its last round; None where somebody said stop."""
    goal = Requests.of(experiment.tables["requests"]).goal(stop)
    if (folder / DATABASE).exists():
        there = open_run(folder)
        goal.follow(there)
        if _over(there, goal, experiment):
            return there
        there.close()
        made = resume(folder, callbacks=(goal.see,), stop=goal.reached)
    else:
        composition = compose(experiment, seed)
        made = begin(composition, folder, (goal.see, *observe(label, composition)), goal.reached)
    return made if _over(made, goal, experiment) else None


def _over(run: Run, goal: Goal, experiment: Experiment) -> bool:
    return goal.met or run.rounds >= int(experiment.tables["run"]["rounds"])


def honoured(requests: Requests, training: Run, folder: Path, federation: Any, stop: Callable[[], bool]) -> Run | None:
    """Honour all requests, one branch each in ``folder``; the run of the last one, or None where somebody said stop.

    A request whose certificate is there already is not done again.
    """
    place = folder
    for index, clients in enumerate(requests.clients, start=1):
        place = folder / f"{index:03d}"
        if (place / CERTIFICATE).exists():
            continue
        if stop():
            return None
        made = unlearn(
            training, clients, **requests.options, out=folder, federation=federation, measure_forgotten=True, stop=stop
        )
        made.run.close()
        if not made.certificate:
            return None
    return open_run(place)


def certificates(run: Run) -> list[dict[str, Any]]:
    """The certificates of a history, in order, given the run of its last branch."""
    if run.path is None or not (run.path / CERTIFICATE).exists():
        raise InvalidOption(
            "the run is not a branch of a history in a folder", "only requests to forget have this score"
        )
    index = int(run.path.name)
    return [read(run.path.parent / f"{r:03d}" / CERTIFICATE) for r in range(1, index + 1)]


def score_of_requests(run: Run, kind: str, rest: str) -> float:
    """A score of a history: of request ``rest``, or of all of them where it is empty.

    ``retraining``: aggregations spent (the sum over all requests; those of the training are not in it).
    ``forgotten``: accuracy on everyone forgotten so far, F_r; ``remaining``: on the others (means).
    ``restart``: aggregations behind the model that was restarted from, from the first initial model on (mean).
    ``kept``: that number as a share of the aggregations behind the model that was there before the request (mean).
    ``reached``: the share of requests that reached the target. ``training``: aggregations of the training.
    """
    found = certificates(run)
    if kind == "training":
        return float(found[0]["evidence"]["training"]["rounds"])
    values = _values(found, kind)
    if rest:
        index = int(rest)
        require(1 <= index <= len(values), f"{kind}:{rest}: there are {len(values)} requests")
        return values[index - 1]
    return float(np.sum(values) if kind == "retraining" else np.mean(values))


def _values(found: Sequence[Mapping[str, Any]], kind: str) -> list[float]:
    if kind in ("restart", "kept"):
        depths = _depths([(int(c["restart"]["branch"]), int(c["restart"]["round"])) for c in found])
        newest = [a + int(c["result"]["rounds"]) for a, c in zip(depths, found, strict=True)]
        before = [int(found[0]["evidence"]["training"]["rounds"]), *newest[:-1]]
        return depths if kind == "restart" else [a / b for a, b in zip(depths, before, strict=True)]
    key = {
        "retraining": "rounds", "forgotten": "on forgotten clients", "remaining": "on remaining clients",
        "reached": "target reached",
    }[kind]  # fmt: skip
    return [float(c["result"][key]) for c in found]


def _depths(nodes: Sequence[tuple[int, int]]) -> list[float]:
    """How many aggregations lie behind each restart model, along its own history.

    >>> _depths([(0, 7), (1, 5), (1, 3)])
    [7.0, 12.0, 10.0]
    """
    depths = [0.0]
    for branch, rounds in nodes:
        depths.append(depths[branch] + rounds)
    return depths[1:]
