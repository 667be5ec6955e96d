"""`poise.unlearn`: from a request to a model that has forgotten, and a certificate of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from poise.composition import Composition
from poise.core.errors import InvalidOption
from poise.core.types import Record
from poise.core.vectors import Layout, Vector
from poise.ledger.run import Run, open_run
from poise.unlearning.budget import Budget, Participation
from poise.unlearning.certificate import certify, read, write
from poise.unlearning.gaussian import Calibration
from poise.unlearning.histories import CERTIFICATE, Branch, Histories, at_rest, one_at_a_time
from poise.unlearning.methods import CERTIFIED, admit, decide, grounds_for, start_of
from poise.unlearning.noise import commitment
from poise.unlearning.proof import Grounds, refuse
from poise.unlearning.request import Request, checked_clients, load
from poise.unlearning.retraining import (
    Goal,
    aimed,
    begun,
    composition_of,
    fits,
    present_score,
    remaining,
    retrain,
    score_of,
    score_on,
    short_of,
)
from poise.unlearning.tree import Node


@dataclass(frozen=True)
class Unlearned:
    """What came of a request: the new branch, the rounds it took, where it restarted, and the certificate."""

    run: Run
    rounds: int
    restart: Node
    certificate: dict[str, Any]
    reached: bool
    path: Path | None = None


def unlearn(
    run: Run | str | Path, clients: Any, method: str = "sifu", epsilon: float = 10.0, delta: float = 0.01,
    sigma: float = 0.05, target: float | None = None, *, calibration: Calibration = "analytic",
    participation: Participation = "conservative", strong_convexity: float | None = None, min_rounds: int = 50,
    max_rounds: int = 10_000, heuristic: bool = False, noise: Literal["seeded", "secret"] = "seeded",
    measure_forgotten: bool = False, held_out: bool = False, out: str | Path | None = None,
    federation: Any = None, task: Any = None, callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Unlearned:  # fmt: skip
    """Forget clients: restart from a model that they hardly moved, hide the rest by noise, retrain without them.

    Requests add up: each goes on from the history that the last one left, as a new branch of the run's folder, and
    covers everyone forgotten so far. A request that was interrupted is finished by asking for it again.

    Args:
        run: the training run (or any branch of it), or its folder.
        clients: who is to be forgotten, numbered as in the training.
        method: ``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``, ``last``, ``dp`` (for a run trained with
            `Clipped` weights and a `Noisy` server) or ``fed-accum`` (for a run with ``keep_updates``).
        epsilon: of the guarantee.
        delta: of the guarantee.
        sigma: standard deviation of the noise (``last`` works out its own, ``dp`` had it while training).
        target: accuracy on the remaining clients at which retraining ends (a loss, for tasks without accuracy);
            by default 99 % of what the present model has on them.
        calibration: of the Gaussian mechanism, ``analytic`` or ``classical``.
        participation: how partial participation counts, ``conservative`` or ``optimistic`` (see `Budget`).
        strong_convexity: mu of the clients' losses, where it is known.
        min_rounds: retrain for at least this many rounds.
        max_rounds: and give up after this many.
        heuristic: go on where the bound has no proof; the certificate says so.
        noise: ``seeded`` draws it from the run's seed, which makes the result reproducible and the noise known to
            whoever has the run; ``secret`` draws a seed that is not kept, and the certificate only commits to it.
        measure_forgotten: measure the new model on the forgotten clients too, which reads their data.
        held_out: aim at the accuracy on the held-out data instead of that on the remaining clients' own.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        federation: needed where the run was made with data given as Python objects.
        task: likewise for its task.
        callbacks: called with the record of each round of retraining.
        stop: asked before each round; true stops, and asking again goes on.

    Source: E Algorithms 6 and 7.
    """
    trained, place = open_run(run) if isinstance(run, str | Path) else run, None if out is None else Path(out)
    histories = Histories.of(trained, place)
    at_rest(histories.root)
    checked_clients(clients, histories.root.clients, histories.forgotten)  # before a folder is made
    budget = Budget(epsilon, delta, sigma, calibration, participation, strong_convexity)
    with one_at_a_time(histories.folder):
        histories = Histories.of(trained, place)  # as the request before this one left them
        wanted = checked_clients(clients, histories.root.clients, histories.forgotten)
        whole = composition_of(histories.root, federation, task)
        if federation is None and getattr(whole.backend, "name", "") == "flower":
            raise InvalidOption(
                "the clients of this run are nodes of a deployment", "poise deploy unlearn RUN --to DIR"
            )
        gone = sorted({*histories.forgotten, *wanted})
        left = remaining(whole, gone)
        oracle = left.task.bind(left.federation, left.backend.device)
        score = score_of(oracle.metrics, held_out)
        fits(left, oracle, score)  # before the request is written down, which only finishing it takes back
        open_ = histories.open_request
        if target is None:
            newest = torch.from_numpy(histories.run(histories.newest).model)
            target = open_.target if open_ else short_of(present_score(left, oracle, newest, score), score)
        target = target.item() if isinstance(target, np.generic) else target
        asked = Request(wanted, method, budget, target, min_rounds, max_rounds, heuristic, noise)
        job = _job(asked, open_, histories, whole, oracle.layout)
        goal = Goal(job.request, score, stop)
        folder = histories.place(job.request.index)
        made = retrain(aimed(left, job.request, score), job.start, folder, goal, callbacks)
        goal.follow(made)
        if not goal.met and made.rounds < max_rounds:  # somebody said stop
            return Unlearned(made, made.rounds, job.request.node, {}, reached=False)
        histories.remember(Branch(job.request, made, done=True))
        seen = _on_forgotten(whole, gone, made, score) if measure_forgotten else None
        document = certify(histories, job.request, job.grounds, score, goal.met, seen)
        path = None if folder is None else write(document, folder)
        return Unlearned(made, made.rounds, job.request.node, document, goal.met, path)


def outcome(made: Run) -> Unlearned:
    """What came of the request whose branch this is, from its folder; without certificate where it is not finished."""
    assert made.path is not None
    path = made.path / CERTIFICATE
    document = read(path) if path.exists() else {}
    reached = bool(document) and document["result"]["target reached"]
    return Unlearned(made, made.rounds, load(made.path).node, document, reached, path if document else None)


def _on_forgotten(whole: Composition, gone: list[int], made: Run, score: str) -> float:
    """The score of the new model on those whom it should not know any more."""
    others = [c for c in range(whole.federation.clients) if c not in set(gone)]
    oracle = whole.task.bind(whole.federation.without(others), whole.backend.device)
    return score_on(oracle, torch.from_numpy(made.model), score)


@dataclass(frozen=True)
class Job:
    """A request with what was decided about it; ``start`` is None where retraining has begun already."""

    request: Request
    grounds: Grounds
    start: Vector | None


def _job(asked: Request, open_: Request | None, histories: Histories, whole: Composition, layout: Layout) -> Job:
    """Decide about a request, and write the decision down before anything else happens."""
    if open_ is not None and (other := asked.otherwise_than(open_)):
        named, options = ", ".join(map(str, open_.clients)), ", ".join(f"{k} = {v}" for k, v in other.items())
        raise InvalidOption(
            f"request {open_.index} (clients {named}, {open_.method}) is not finished",
            f"ask for it again to finish it, as it was asked: {options}",
        )
    admit(asked.method, histories, whole.parts, asked.budget)
    found = grounds_for(asked.method, whole.parts, layout.trainable < layout.size, asked.budget)
    if asked.method in CERTIFIED and asked.method != "scratch":
        refuse(found.gaps, asked.heuristic)
    index = histories.newest + 1
    place = histories.place(index)
    if open_ is not None and begun(place):
        return Job(open_, found, None)
    decision = decide(asked.method, histories, asked.clients, asked.budget)
    seed = whole.seed if asked.noise == "seeded" else secrets.randbits(120)
    bound = commitment(seed, index) if decision.sigma else ""
    request = replace(asked, index=index, node=decision.node, sigma=decision.sigma, commitment=bound)
    if place is not None:
        request.save(place)
    return Job(request, found, start_of(request, histories, whole.parts, seed))
