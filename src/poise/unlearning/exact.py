"""Exact unlearning of sums: take the updates of the clients out, and nothing of them is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core import equation
from poise.core.errors import IncompatibleParts
from poise.core.threads import one_thread
from poise.core.traits import (
    AggregatorTraits,
    ChannelTraits,
    ClockTraits,
    SamplerTraits,
    ServerTraits,
    SolverTraits,
    WeightingTraits,
    traits_of,
)
from poise.core.types import Floats, Ints
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.results import Run
from poise.training import seeded
from poise.unlearning.proof import Grounds

NOT_DELETED = (
    "the run folder still holds the stored updates of the forgotten clients and the "
    "models that they moved; removal from the model does not delete them"
)
"""Assumed until the clients are erased."""

GROUNDS = Grounds(
    (
        "the updates do not depend on the model, and the model is their weighted sum: without "
        "the terms of the forgotten clients it is the model of a training without them"
    ),
    assumed=(
        (
            "the server knows the sums of every client, F^T F and F^T Y; the sums of a client "
            "with few samples reveal the samples themselves"
        ),
        NOT_DELETED,
    ),
    gaps=(),
)
"""The grounds of complete removal. The guarantee is about the model, not about the run folder."""


def require_sums(run: Run, parts: Parts) -> None:
    """Raise where the model of a run is not the weighted sum of stored, independent updates."""
    for problem, hint in (*_unlike_parts(parts), *_unlike_rounds(run)):
        raise IncompatibleParts(f"exact: {problem}", hint)


def _unlike_parts(parts: Parts) -> Iterator[tuple[str, str]]:
    """Yield a problem and a remedy for every part that rules out exact removal."""
    other = "use method='scratch' (--method scratch) for this run"
    name = {slot: type(part).__name__ for slot, part in parts.chosen()}
    clock = traits_of(parts.clock, ClockTraits)
    weighting = traits_of(parts.weighting, WeightingTraits)
    server = traits_of(parts.server, ServerTraits)
    if not traits_of(parts.solver, SolverTraits).ignores_start:
        problem = f"the updates of {name['solver']} depend on the model that all clients moved"
        yield problem, f"train poise.ridge(…) with the solver Sums(), or {other}"
    if not traits_of(parts.sampler, SamplerTraits).selects_everyone:
        yield f"{name['sampler']} may leave clients out", f"use Full(), or {other}"
    if not clock.one_version or clock.leaves_clients_behind:
        yield f"{name['clock']} may leave clients out", f"use Synchronous(), or {other}"
    if not weighting.proportional or weighting.reads_updates:
        problem = f"the coefficients of {name['weighting']} depend on the updates"
        yield problem, f"use Proportional(), or {other}"
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        problem = f"{name['aggregator']} is no weighted sum"
        yield problem, f"use WeightedSum(), or {other}"
    if not traits_of(parts.channel, ChannelTraits).identity:
        yield f"{name['channel']} changes updates", f"use Plain(), or {other}"
    if not server.adds or server.rate != 1 or server.noise:
        yield f"{name['server']} does more than add the sum", f"use Add(), or {other}"
    if parts.attacks:
        yield "dishonest clients sent other updates than their sums", other


def _unlike_rounds(run: Run) -> Iterator[tuple[str, str]]:
    """Yield a problem and a remedy for everything in a ledger that rules out exact removal."""
    if run.rounds != 1:
        yield f"the training has {run.rounds} rounds, not one", "train with rounds=1"
        return
    if not run.keeps_updates:
        yield (
            "the run did not keep its updates",
            "train with keep_updates=True ([run] keep_updates = true)",
        )
    took_part = run.contributions["client"]
    absent = np.setdiff1d(np.arange(run.clients), took_part)
    if len(absent):
        yield (
            f"client {absent[0]} did not take part in the round",
            "train again with the clients that can take part",
        )


def sums_without(run: Run, parts: Parts, removed: Sequence[int]) -> Vector:
    """Return the model of a one-round run without the updates of the removed clients.

    ``theta_0 + sum_{i not removed} p_i / (sum_{j not removed} p_j) Delta_i``: the model of
    a training without them, with the same rounding.
    """
    rows = run.contributions
    stays = ~np.isin(rows["client"], list(removed))
    omega = remaining_shares(rows["coefficient"], rows["samples"], stays)
    theta = torch.from_numpy(run.models(0))
    deltas = torch.from_numpy(run.updates(0)[stays])
    server = seeded(parts, int(run.meta["seed"])).server
    with one_thread():
        direction = parts.aggregator.combine(deltas, omega)
        state = server.init(theta[: run.trainable])
        moving = equation.Moving(theta, run.trainable, state)
        return equation.step(moving, direction, omega, server)[0]


def remaining_shares(shares: Floats, sizes: Ints, stays: NDArray[np.bool_]) -> Floats:
    """Return p_i of the clients that stay, with the rounding of a federation without the others.

    >>> remaining_shares(np.array([0.5, 0.3, 0.2]), np.array([5, 3, 2]), np.arange(3) > 0)
    array([0.6, 0.4])
    """
    if np.array_equal(shares, sizes / sizes.sum()):
        left = sizes[stays]
        return np.asarray(left / left.sum())
    left = np.ascontiguousarray(shares[stays])
    if (left == left[0]).all():
        return np.full(len(left), 1 / len(left))
    return np.asarray(left / left.sum())
