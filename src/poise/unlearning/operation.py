"""`poise.unlearn`: unlearn clients of a run, and certify the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from poise.config.unlearn_request import (
    Guarantee,
    Method,
    Noise,
    UnlearnRequest,
    client_numbers,
)
from poise.core.federations import FederationLike, TaskLike
from poise.core.progress import run_progress
from poise.core.types import Record
from poise.privacy.budget import Budget, Participation
from poise.privacy.gaussian import Calibration
from poise.results import Run
from poise.training import never
from poise.unlearning.fulfilment import Unlearned, fulfil
from poise.unlearning.named_clients import numbered
from poise.unlearning.shards import ShardEnsemble, ensemble_in, holds_shards


def unlearn(
    run: Run | ShardEnsemble | str | Path,
    clients: int | str | Iterable[int | str],
    method: Method = "sifu",
    epsilon: float = 10.0,
    delta: float = 0.01,
    sigma: float | Literal["plan"] = 0.05,
    target: float | None = None,
    *,
    calibration: Calibration = "analytic",
    participation: Participation = "conservative",
    strong_convexity: float | None = None,
    min_rounds: int = 50,
    max_rounds: int = 10_000,
    heuristic: bool = False,
    plan_sigma: bool = False,
    guarantee: Guarantee = "each",
    noise: Noise = "secret",
    measure_forgotten: bool = False,
    held_out: bool = False,
    out: str | Path | None = None,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
    progress: bool | None = None,
) -> Unlearned:
    """Unlearn clients: restart from a model that they hardly moved, add noise, retrain the others.

    Requests add up: each continues the history that the last one left, as a new branch
    of the run's folder, and covers all clients unlearned so far. Repeat an interrupted
    request to finish it.

    Args:
        run: the training run (or any branch of it), or its folder; for ``shards`` the
            ensemble or its folder.
        clients: the clients to unlearn, by name or numbered as in the training.
        method: ``sifu`` (IFU for a first request), ``scratch``, ``fine-tune``,
            ``last``, ``dp`` (for a run trained with `Clipped` weights and a `Noisy`
            server), ``fed-accum`` (for a run with ``keep_updates``), ``exact`` (for
            `poise.ridge`, with ``keep_updates``) or ``shards`` (for `poise.shards`).
        epsilon: epsilon of the guarantee.
        delta: delta of the guarantee.
        sigma: standard deviation of the noise (``last`` computes its own, ``dp`` added
            its noise during training).
        target: accuracy on the remaining clients at which retraining ends (a loss, for
            tasks without accuracy); by default 99 % of the present model's accuracy on
            them.
        calibration: of the Gaussian mechanism, ``analytic`` or ``classical`` (for
            epsilon < 1).
        participation: how partial participation counts: ``conservative`` renormalises
            inside the recorded cohort; ``optimistic`` takes ``p_c/(1 - p_c)`` for any
            cohort, which is smaller and no bound.
        strong_convexity: mu of the clients' losses, where it is known.
        min_rounds: retrain for at least this many rounds.
        max_rounds: stop retraining after this many rounds.
        heuristic: continue where the bound has no proof; the certificate says so.
        plan_sigma: choose sigma from the noise levels that training declared
            ([unlearning] sigmas), by the expected number of rounds; the same as
            ``sigma="plan"``.
        guarantee: ``each`` guarantees (epsilon, delta) for every client of the request
            by itself; ``group`` for all of them together, which restarts earlier.
        noise: ``secret`` draws a seed that poise does not keep; the certificate only
            commits to it. ``seeded`` draws the noise from the run's seed, for tests:
            the result is reproducible, and the noise hides nothing from anyone who
            knows the seed.
        measure_forgotten: also measure the new model on the unlearned clients, which
            reads their data.
        held_out: the target is the accuracy on the held-out data, not on the remaining
            clients' training data.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.
        callbacks: called with the record of each round of retraining.
        stop: called before each round; true stops retraining, and the same request
            resumes it.
        progress: show a bar on stderr; by default after two seconds in a terminal or a
            notebook, and never elsewhere.

    Source: [Fraboni 2023, Alg. 6 and 7].
    """
    planned = plan_sigma or bool(sigma == "plan")  # NumPy has its own truth values
    request = UnlearnRequest(
        clients=client_numbers(numbered(run, clients)),
        method=method,
        epsilon=epsilon,
        delta=delta,
        sigma=Budget.sigma if sigma == "plan" else sigma,
        plan_sigma=planned,
        target=target,
        calibration=calibration,
        participation=participation,
        strong_convexity=strong_convexity,
        min_rounds=min_rounds,
        max_rounds=max_rounds,
        heuristic=heuristic,
        guarantee=guarantee,
        noise=noise,
        measure_forgotten=measure_forgotten,
        held_out=held_out,
        out=None if out is None else str(out),
    )
    with run_progress(progress, max_rounds, "retraining") as shown:
        observers = (*callbacks, *shown)
        if method == "shards" or isinstance(run, ShardEnsemble) or holds_shards(run):
            from poise.unlearning.shard_requests import fulfil_shards

            return fulfil_shards(
                ensemble_in(run, method),
                request,
                federation=federation,
                task=task,
                callbacks=observers,
                stop=stop,
            )
        return fulfil(
            run,
            request,
            federation=federation,
            task=task,
            callbacks=observers,
            stop=stop,
        )
