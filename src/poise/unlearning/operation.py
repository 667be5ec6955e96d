"""`poise.unlearn`: from a request to a model that has forgotten, and a certificate of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from poise.config.unlearn_request import Method, Noise, UnlearnRequest, client_numbers
from poise.core.errors import InvalidOption
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import HasName, Oracle
from poise.core.types import Record
from poise.core.vectors import Layout, Vector
from poise.ledger.run import Run, open_run
from poise.privacy.budget import Participation
from poise.privacy.gaussian import Calibration
from poise.training import Composition, never
from poise.unlearning.certificate import certify, read, write
from poise.unlearning.histories import CERTIFICATE, Branch, Histories, at_rest, one_at_a_time
from poise.unlearning.methods import CERTIFIED, admit, decide, grounds_for, start_of
from poise.unlearning.noise import commitment
from poise.unlearning.proof import Grounds, refuse
from poise.unlearning.request import Request, checked_clients, load
from poise.unlearning.restart_tree import Node
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
    without,
)


@dataclass(frozen=True)
class Unlearned:
    """What came of a request: the new branch, the rounds it took, where it restarted, and the
    certificate.
    """

    run: Run
    rounds: int
    restart: Node
    certificate: dict[str, Any]
    reached: bool
    path: Path | None = None


def unlearn(
    run: Run | str | Path,
    clients: int | Iterable[int],
    method: Method = "sifu",
    epsilon: float = 10.0,
    delta: float = 0.01,
    sigma: float = 0.05,
    target: float | None = None,
    *,
    calibration: Calibration = "analytic",
    participation: Participation = "conservative",
    strong_convexity: float | None = None,
    min_rounds: int = 50,
    max_rounds: int = 10_000,
    heuristic: bool = False,
    noise: Noise = "seeded",
    measure_forgotten: bool = False,
    held_out: bool = False,
    out: str | Path | None = None,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> Unlearned:
    """Unlearn clients: restart from a model that they hardly moved, add noise, retrain the others.

    Requests add up: each continues the history that the last one left, as a new branch of the run's
    folder, and covers all clients unlearned so far. Repeat an interrupted request to finish it.

    Args:
        run: the training run (or any branch of it), or its folder.
        clients: the clients to unlearn, numbered as in the training.
        method: ``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``, ``last``, ``dp``
            (for a run trained with `Clipped` weights and a `Noisy` server) or ``fed-accum`` (for a
            run with ``keep_updates``).
        epsilon: epsilon of the guarantee.
        delta: delta of the guarantee.
        sigma: standard deviation of the noise (``last`` computes its own, ``dp`` added its noise
            during training).
        target: accuracy on the remaining clients at which retraining ends (a loss, for tasks
            without accuracy); by default 99 % of the present model's accuracy on them.
        calibration: of the Gaussian mechanism, ``analytic`` or ``classical`` (for epsilon < 1).
        participation: how partial participation counts: ``conservative`` renormalises inside the
            recorded cohort; ``optimistic`` takes ``p_c/(1 - p_c)`` for any cohort, which is smaller
            and no bound.
        strong_convexity: mu of the clients' losses, where it is known.
        min_rounds: retrain for at least this many rounds.
        max_rounds: stop retraining after this many rounds.
        heuristic: continue where the bound has no proof; the certificate says so.
        noise: ``seeded`` draws the noise from the run's seed: the result is reproducible, and
            anyone who has the run knows the noise. ``secret`` draws a seed that poise does not
            keep; the certificate only commits to it.
        measure_forgotten: also measure the new model on the unlearned clients, which reads their
            data.
        held_out: the target is the accuracy on the held-out data, not on the remaining clients'
            training data.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.
        callbacks: called with the record of each round of retraining.
        stop: called before each round; true stops retraining, and the same request resumes it.

    Source: [Fraboni 2023, Alg. 6 and 7].
    """
    request = UnlearnRequest(
        clients=client_numbers(clients),
        method=method,
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        target=target,
        calibration=calibration,
        participation=participation,
        strong_convexity=strong_convexity,
        min_rounds=min_rounds,
        max_rounds=max_rounds,
        heuristic=heuristic,
        noise=noise,
        measure_forgotten=measure_forgotten,
        held_out=held_out,
        out=None if out is None else str(out),
    )
    return fulfil(run, request, federation=federation, task=task, callbacks=callbacks, stop=stop)


def fulfil(
    run: Run | str | Path,
    request: UnlearnRequest,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> Unlearned:
    """Fulfil a request: decide where to restart, retrain on the clients that stay, and write the
    certificate.
    """
    trained = open_run(run) if isinstance(run, str | Path) else run
    place = None if request.out is None else Path(request.out)
    histories = Histories.of(trained, place)
    at_rest(histories.root)
    checked_clients(
        request.clients, histories.root.clients, histories.forgotten
    )  # before a folder is made
    with one_at_a_time(histories.folder):
        histories = Histories.of(trained, place)  # as the request before this one left them
        wanted = checked_clients(request.clients, histories.root.clients, histories.forgotten)
        situation = _situation(histories, replace(request, clients=wanted), federation, task)
        job = _job(situation)
        goal = Goal(job.request.asked, situation.score, stop)
        return _finish(situation, job, goal, callbacks)


@dataclass(frozen=True)
class Situation:
    """A request where it was made: the histories so far, the run as it was trained, and what is
    left of it.

    Args:
        asked: the request, with a target.
        histories: the training and the branches of earlier requests.
        whole: the run as it was trained.
        left: its recipe on the clients that stay.
        layout: of the models.
        score: what the target is about.
    """

    asked: UnlearnRequest
    histories: Histories
    whole: Composition
    left: Composition
    layout: Layout
    score: str

    @property
    def gone(self) -> list[int]:
        """Everyone forgotten so far, and by this request."""
        return sorted({*self.histories.forgotten, *self.asked.clients})


def _situation(
    histories: Histories,
    request: UnlearnRequest,
    federation: FederationLike | None,
    task: TaskLike | None,
) -> Situation:
    """Compose the run again without the clients of a request; raises where it cannot be
    retrained.
    """
    whole = composition_of(histories.root, federation, task)
    backend = whole.backend
    if federation is None and isinstance(backend, HasName) and backend.name == "flower":
        raise InvalidOption(
            "the clients of this run are nodes of a deployment", "poise deploy unlearn RUN --to DIR"
        )
    left = remaining(whole, sorted({*histories.forgotten, *request.clients}))
    oracle = left.task.bind(left.federation, left.backend.device)
    score = score_of(oracle.metrics, request.held_out)
    fits(
        left, oracle, score
    )  # before the request is written down, which only finishing it takes back
    if request.target is None and left.parts.personal is not None:
        raise InvalidOption(
            "personal layers: poise cannot tell how well the clients are served now", "give target="
        )
    if request.target is None:
        request = replace(request, target=_target(histories, left, oracle, score))
    return Situation(
        asked=request,
        histories=histories,
        whole=whole,
        left=left,
        layout=oracle.layout,
        score=score,
    )


def _target(histories: Histories, left: Composition, oracle: Oracle, score: str) -> float:
    """The target of a request that names none: that of the request to be finished, or a little
    below the present.
    """
    if histories.open_request is not None:
        return histories.open_request.target
    newest = torch.from_numpy(histories.run(histories.newest).model)
    return short_of(present_score(left, oracle, newest, score), score)


def _finish(
    situation: Situation, job: Job, goal: Goal, callbacks: Iterable[Callable[[Record], None]]
) -> Unlearned:
    """Retrain until the goal is met, and certify the result; without certificate where somebody
    said stop.
    """
    request, score, histories = job.request, situation.score, situation.histories
    folder = histories.place(request.index)
    made = retrain(aimed(situation.left, request, score), job.start, folder, goal, callbacks)
    goal.follow(made)
    if not goal.met and made.rounds < situation.asked.max_rounds:
        return Unlearned(made, made.rounds, request.node, {}, reached=False)
    histories.remember(Branch(request, made, done=True))
    on_forgotten = None
    if situation.asked.measure_forgotten:
        on_forgotten = _on_forgotten(situation.whole, situation.gone, made, score)
    document = certify(
        histories,
        request,
        grounds=job.grounds,
        score=score,
        reached=goal.met,
        forgotten=on_forgotten,
    )
    path = None if folder is None else write(document, folder)
    return Unlearned(
        made,
        rounds=made.rounds,
        restart=request.node,
        certificate=document,
        reached=goal.met,
        path=path,
    )


def outcome(made: Run) -> Unlearned:
    """What came of the request whose branch this is, from its folder; without certificate where it
    is not finished.
    """
    assert made.path is not None
    path = made.path / CERTIFICATE
    document = read(path) if path.exists() else {}
    reached = bool(document) and document["result"]["target reached"]
    return Unlearned(
        made,
        rounds=made.rounds,
        restart=load(made.path).node,
        certificate=document,
        reached=reached,
        path=path if document else None,
    )


def _on_forgotten(whole: Composition, gone: list[int], made: Run, score: str) -> float:
    """The score of the new model on those whom it should not know any more."""
    others = [c for c in range(whole.federation.clients) if c not in set(gone)]
    oracle = whole.task.bind(without(whole.federation, others), whole.backend.device)
    return score_on(oracle, torch.from_numpy(made.model), score)


@dataclass(frozen=True)
class Job:
    """A request with what was decided about it; ``start`` is None where retraining has begun
    already.
    """

    request: Request
    grounds: Grounds
    start: Vector | None


def _job(situation: Situation) -> Job:
    """Decide about a request, and write the decision down before anything else happens."""
    histories, whole, asked = situation.histories, situation.whole, situation.asked
    unfinished = histories.open_request
    if unfinished is not None:
        _refuse_another(Request(asked), unfinished)
    budget = asked.budget
    admit(asked.method, histories, whole.parts, budget)
    partly_trained = situation.layout.trainable < situation.layout.size
    grounds = grounds_for(
        asked.method, whole.parts, partly_trained, budget, audit=whole.options.audit
    )
    if asked.method in CERTIFIED and asked.method != "scratch":
        refuse(grounds.gaps, asked.heuristic)
    index = histories.newest + 1
    place = histories.place(index)
    if unfinished is not None and begun(place):
        return Job(unfinished, grounds, None)
    decision = decide(asked.method, histories, asked.clients, budget)
    seed = whole.seed if asked.noise == "seeded" else secrets.randbits(120)
    bound = commitment(seed, index) if decision.sigma else ""
    request = Request(asked, index, node=decision.node, sigma=decision.sigma, commitment=bound)
    if place is not None:
        request.save(place)
    return Job(request, grounds, start_of(request, histories, whole.parts, seed))


def _refuse_another(asked: Request, unfinished: Request) -> None:
    """Refuse a request that differs from the one to be finished."""
    differences = asked.differences(unfinished)
    if differences:
        named = ", ".join(map(str, unfinished.clients))
        options = ", ".join(f"{name} = {value}" for name, value in differences.items())
        raise InvalidOption(
            f"request {unfinished.index} (clients {named}, {unfinished.method}) is not finished",
            f"ask for it again to finish it, as it was asked: {options}",
        )
