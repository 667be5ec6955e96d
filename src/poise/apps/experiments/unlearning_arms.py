"""Arms of a reproduction that train once and then honour requests to forget, one after the other.

The table ``[requests]`` of a preset says who is to be forgotten and how. Arms that differ in
nothing else share their training, so that methods are compared on the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.experiment import Experiment
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import InvalidOption, require
from poise.core.federations import FederationLike
from poise.core.options import check_keys, options_of
from poise.core.types import Record
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE
from poise.training import Composition, begin, compose, resume
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE
from poise.unlearning.operation import fulfil
from poise.unlearning.retraining import ACCURACY, Goal

Observe = Callable[[str, Composition], list[Callable[[Record], None]]]
REQUEST_KEYS = [
    name for name in options_of(UnlearnRequest) if name not in ("measure_forgotten", "out")
]
"""The keys of the table [requests]: all options of a request but those that say where it is, and
what to measure."""

SCORES = ("retraining", "forgotten", "remaining", "restart", "kept", "reached", "training")


@dataclass(frozen=True)
class Requests:
    """The table [requests]: one request to forget after the other, with the same options."""

    requests: tuple[UnlearnRequest, ...]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Requests:
        """From a preset, whose key ``clients`` has a list of clients for each request."""
        check_keys(table, REQUEST_KEYS, "[requests]")
        for key in ("clients", "target"):
            require(key in table, f"[requests] has no {key}", where=key)
        options = {key: value for key, value in table.items() if key != "clients"}
        measured = {**options, "measure_forgotten": True}
        return cls(
            tuple(UnlearnRequest(clients=tuple(some), **measured) for some in table["clients"])
        )

    def goal(self, stop: Callable[[], bool]) -> Goal:
        """When training ends: as retraining does, at the target, after at least so many rounds."""
        return Goal(self.requests[0], ACCURACY, stop)


def trained(
    experiment: Experiment,
    seed: int,
    folder: Path,
    label: str,
    observe: Observe,
    stop: Callable[[], bool],
) -> Run | None:
    """The training that all requests start from, until its target or its last round; None where
    somebody said stop.
    """
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


def honoured(
    requests: Requests,
    training: Run,
    folder: Path,
    federation: FederationLike,
    stop: Callable[[], bool],
) -> Run | None:
    """Honour all requests, one branch each in ``folder``; the run of the last one, or None where
    somebody said stop.

    A request whose certificate is there already is not done again.
    """
    place = folder
    for index, request in enumerate(requests.requests, start=1):
        place = folder / f"{index:03d}"
        if (place / CERTIFICATE).exists():
            continue
        if stop():
            return None
        made = fulfil(training, replace(request, out=str(folder)), federation=federation, stop=stop)
        made.run.close()
        if not made.certificate:
            return None
    return open_run(place)


def certificates(run: Run) -> list[dict[str, Any]]:
    """The certificates of a history, in order, given the run of its last branch."""
    if run.path is None or not (run.path / CERTIFICATE).exists():
        raise InvalidOption(
            "the run is not a branch of a history in a folder",
            "only requests to forget have this score",
        )
    index = int(run.path.name)
    return [read(run.path.parent / f"{r:03d}" / CERTIFICATE) for r in range(1, index + 1)]


def score_of_requests(run: Run, kind: str, rest: str) -> float:
    """A score of a history: of request ``rest``, or of all of them where it is empty.

    ``retraining``: aggregations spent (the sum over all requests; those of the training are not in
    it). ``forgotten``: accuracy on everyone forgotten so far, F_r; ``remaining``: on the others
    (means). ``restart``: aggregations behind the model that was restarted from, from the first
    initial model on (mean). ``kept``: that number as a share of the aggregations behind the model
    that was there before the request (mean). ``reached``: the share of requests that reached the
    target. ``training``: aggregations of the training.
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
        "retraining": "rounds",
        "forgotten": "on forgotten clients",
        "remaining": "on remaining clients",
        "reached": "target reached",
    }[kind]
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
