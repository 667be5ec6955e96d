"""Arms of a reproduction that train once and then unlearn clients, one request after the other.

The table ``[requests]`` of a preset names the clients and the method. Arms that differ
only in this table share their training, so the reproduction compares methods on the
same model.
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
from poise.ledger.store import DATABASE
from poise.results import Run, open_run
from poise.training import Composition, begin, compose, resume
from poise.unlearning.certificate import read
from poise.unlearning.fulfilment import fulfil
from poise.unlearning.histories import CERTIFICATE
from poise.unlearning.retraining import ACCURACY, Goal

Observe = Callable[[str, Composition], list[Callable[[Record], None]]]
REQUEST_KEYS = [
    name
    for name in options_of(UnlearnRequest)
    if name not in ("measure_forgotten", "out")
]
"""Options of a request in the table [requests]: all except ``measure_forgotten`` and ``out``."""

WHOLE_TRAINING = "whole_training"
"""The key of [requests] by which training has all its rounds, also beyond the target."""

SCORES = (
    "retraining",
    "forgotten",
    "remaining",
    "restart",
    "kept",
    "reached",
    "promised",
    "training",
)


@dataclass(frozen=True)
class Requests:
    """The table [requests]: unlearning requests in order, with the same options.

    Args:
        requests: the requests.
        whole_training: training has all rounds of [run]; otherwise it ends at the
            target, but not before ``min_rounds``, as retraining does.
    """

    requests: tuple[UnlearnRequest, ...]
    whole_training: bool = False

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Requests:
        """The requests of a preset; its key ``clients`` has one list of clients per request."""
        check_keys(table, [*REQUEST_KEYS, WHOLE_TRAINING], "[requests]")
        for key in ("clients", "target"):
            require(key in table, f"[requests] has no {key}", where=key)
        whole = table.get(WHOLE_TRAINING, False)
        require(
            isinstance(whole, bool),
            f"[requests] whole_training = {whole!r} is not true or false",
            where=WHOLE_TRAINING,
        )
        own = ("clients", WHOLE_TRAINING)
        options = {key: value for key, value in table.items() if key not in own}
        requests = [
            UnlearnRequest(clients=tuple(clients), measure_forgotten=True, **options)
            for clients in table["clients"]
        ]
        return cls(tuple(requests), whole)

    def goal(self, stop: Callable[[], bool]) -> TrainingGoal:
        """When training ends."""
        return TrainingGoal(
            self.requests[0], ACCURACY, stop, whole_training=self.whole_training
        )


@dataclass
class TrainingGoal(Goal):
    """Decides when training ends: at the target, or only with its last round."""

    whole_training: bool = False

    @property
    def met(self) -> bool:
        """Whether training may end before its last round."""
        return not self.whole_training and super().met


def trained(
    experiment: Experiment,
    seed: int,
    folder: Path,
    label: str,
    observe: Observe,
    stop: Callable[[], bool],
) -> Run | None:
    """The training before all requests, until its target or its last round; None if stopped."""
    goal = Requests.of(experiment.tables["requests"]).goal(stop)
    if (folder / DATABASE).exists():
        existing = open_run(folder)
        goal.follow(existing)
        if _is_finished(existing, goal, experiment):
            return existing
        existing.close()
        run = resume(folder, callbacks=(goal.see,), stop=goal.reached, progress=False)
    else:
        composition = compose(experiment, seed)
        callbacks = (goal.see, *observe(label, composition))
        run = begin(composition, folder, callbacks, goal.reached)
    if _is_finished(run, goal, experiment):
        return run
    return None


def _is_finished(run: Run, goal: Goal, experiment: Experiment) -> bool:
    """Whether a training has met its goal or has all its rounds."""
    return goal.met or run.rounds >= int(experiment.tables["run"]["rounds"])


def fulfil_all(
    requests: Requests,
    training: Run,
    folder: Path,
    federation: FederationLike,
    stop: Callable[[], bool],
) -> Run | None:
    """Fulfil all requests, one branch each in ``folder``; the run of the last, None if stopped.

    Requests that already have a certificate are skipped.
    """
    branch = folder
    for index, request in enumerate(requests.requests, start=1):
        branch = folder / f"{index:03d}"
        if (branch / CERTIFICATE).exists():
            continue
        if stop():
            return None
        unlearned = fulfil(
            training,
            replace(request, out=str(folder)),
            federation=federation,
            stop=stop,
        )
        unlearned.run.close()
        if not unlearned.certificate:
            return None
    return open_run(branch)


def certificates(run: Run) -> list[dict[str, Any]]:
    """The certificates of a history, in order, given the run of its last branch."""
    if run.path is None or not (run.path / CERTIFICATE).exists():
        raise InvalidOption(
            "the run is not a branch of a history in a folder",
            "only runs of unlearning requests have this score",
        )
    index = int(run.path.name)
    return [
        read(run.path.parent / f"{r:03d}" / CERTIFICATE) for r in range(1, index + 1)
    ]


def score_of_requests(run: Run, kind: str, rest: str) -> float:
    """A score of a history: of request ``rest``, or of all of them where it is empty.

    - ``retraining``: aggregations of the retraining, summed over all requests (without
      training).
    - ``forgotten``, ``remaining``: accuracy on all clients unlearned so far, F_r, and
      on the others (means).
    - ``restart``: aggregations between the initial model and the restart model (mean).
    - ``kept``: that number as a share of the aggregations behind the model before the
      request (mean).
    - ``reached``: the share of requests that reached the target.
    - ``promised``: the share of requests whose certificate promises its guarantee: the
      method has one, and nothing is listed as not proved.
    - ``training``: aggregations of the training.
    """
    documents = certificates(run)
    if kind == "training":
        return float(documents[0]["evidence"]["training"]["rounds"])
    values = _values(documents, kind)
    if rest:
        index = int(rest)
        require(
            1 <= index <= len(values),
            f"{kind}:{rest}: there are {len(values)} requests",
        )
        return values[index - 1]
    return float(np.sum(values) if kind == "retraining" else np.mean(values))


def _values(documents: Sequence[Mapping[str, Any]], kind: str) -> list[float]:
    """The score of each request, from its certificate."""
    restarts = [
        (int(c["restart"]["branch"]), int(c["restart"]["round"])) for c in documents
    ]
    if kind == "restart":
        return _depths(restarts)
    if kind == "kept":
        before = float(documents[0]["evidence"]["training"]["rounds"])
        shares = []
        for depth, certificate in zip(_depths(restarts), documents, strict=True):
            shares.append(depth / before)
            before = depth + int(certificate["result"]["rounds"])
        return shares
    if kind == "promised":
        return [float(c["guarantee"]["promised"]) for c in documents]
    key = {
        "retraining": "rounds",
        "forgotten": "on forgotten clients",
        "remaining": "on remaining clients",
        "reached": "target reached",
    }[kind]
    return [float(certificate["result"][key]) for certificate in documents]


def _depths(nodes: Sequence[tuple[int, int]]) -> list[float]:
    """The number of aggregations behind each restart model, along its own history.

    >>> _depths([(0, 7), (1, 5), (1, 3)])
    [7.0, 12.0, 10.0]
    """
    depths = [0.0]
    for branch, rounds in nodes:
        depths.append(depths[branch] + rounds)
    return depths[1:]
