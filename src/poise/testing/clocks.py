"""The contracts of clocks and durations."""

from __future__ import annotations

from functools import partial

import numpy as np

from poise.core.capabilities import KnowsLongRunWeights
from poise.core.durations import SAME
from poise.core.errors import PoiseError
from poise.core.protocols import Clock, Times
from poise.core.rng import generator
from poise.core.timeline import launch, timeline
from poise.core.traits import ClockTraits, traits_of
from poise.core.types import Assignment, Cohort, InFlight, Setting, Step
from poise.testing.clauses import fits, holds, quietly, setting_of


def check_clock(
    clock: Clock,
    setting: Setting | None = None,
    *,
    aggregations: int = 60,
    seed: int = 0,
    tolerance: float = 0.02,
) -> None:
    """Check the contract of clocks.

    Clauses: time never goes back; an arrival's version is not above the index, and its
    work is finished; no client is in flight twice; no work is lost, invented or
    altered; replay is identical; no step lies after the time budget; a round without
    clients raises no error. If ``unbiased_weights`` exists, the mean of d_i over many
    aggregations in which all clients work is p_i up to ``tolerance``. Declared traits
    are true (``one_version``: all arrivals worked on the newest model; a clock that
    declares to leave no client behind hears all clients at work).

    Args:
        clock: the clock, with durations for the clients of the setting.
        setting: the federation; eight clients by default.
        aggregations: number of steps to check.
        seed: of the durations and of the cohorts.
        tolerance: largest relative error of the unbiased weights.
    """
    where = setting or setting_of()
    fits(clock, where)
    for share in (1.0, 0.4):
        steps = _simulated_steps(clock, where, aggregations, seed, share)
        holds(
            steps == _simulated_steps(clock, where, aggregations, seed, share),
            clock,
            "replay is identical",
        )
    _survives_an_empty_round(clock)
    _keeps_the_budget(clock, where, aggregations, seed)
    _unbiased(clock, where, seed, tolerance)


def check_durations(durations: Times, clients: int = 8, seed: int = 0) -> None:
    """Check the contract of durations.

    Clauses: times are positive and finite, and depend on (seed, version, client) alone.
    """
    everyone = np.arange(clients)
    tau = np.asarray(durations.of(everyone, 3, seed, 0.0))
    holds(tau.shape == (clients,), durations, "one time per client", tau.shape)
    holds(
        np.isfinite(tau).all() and (tau > 0).all(),
        durations,
        "times are finite and above 0",
        tau,
    )
    holds(
        np.array_equal(tau, durations.of(everyone, 3, seed, 0.0)),
        durations,
        "replay is identical",
    )
    for i in range(clients):
        alone = durations.of(np.array([i]), 3, seed, 0.0)
        holds(
            alone[0] == tau[i],
            durations,
            "a client's time does not depend on who else is asked for",
            i,
        )


def _simulated_steps(
    clock: Clock, setting: Setting, aggregations: int, seed: int, share: float
) -> list[Step]:
    """Simulate cohorts of about this share of the clients, and check each step."""
    times = clock.times(setting.clients)
    in_flight = InFlight()
    steps = []
    for n in range(aggregations):
        drawn = np.flatnonzero(
            generator(seed, "cohort", n).random(setting.clients) < share
        )
        free = np.setdiff1d(drawn, [a.client for a in in_flight.assignments])
        started = launch(Cohort(free, (free + 1.0) / 10), times, in_flight.now, n, seed)
        before = (*in_flight.assignments, *started)
        step, after = clock.advance(in_flight, started, n)
        _check_step(clock, step, before=in_flight, after=after, assignments=before, n=n)
        _traits_hold(clock, step, after)
        steps.append(step)
        in_flight = after
    holds(any(len(s.assignments) for s in steps), clock, "somebody arrives")
    return steps


def _check_step(
    clock: Clock,
    step: Step,
    before: InFlight,
    after: InFlight,
    assignments: tuple[Assignment, ...],
    n: int,
) -> None:
    holds(step.index == n, clock, "steps are numbered in order", step.index)
    holds(
        np.isfinite(step.time) and step.time >= before.now,
        clock,
        "time never goes back",
        (before.now, step.time),
    )
    holds(
        after.now == step.time,
        clock,
        "the work in flight is left at the time of the step",
        (after.now, step.time),
    )
    holds(
        (step.versions <= n).all(),
        clock,
        "versions are not above the index",
        step.versions,
    )
    late = [a for a in step.assignments if a.finish > step.time * (1 + SAME)]
    holds(not late, clock, "who arrives has finished", late)
    kept = _identity((*step.assignments, *after.assignments)) == _identity(assignments)
    holds(
        kept,
        clock,
        "no work is lost, invented or altered",
        f"{assignments} became {step.assignments} and {after.assignments}",
    )
    flying = [a.client for a in after.assignments]
    holds(
        len(flying) == len(set(flying)), clock, "no client is in flight twice", flying
    )


def _identity(
    assignments: tuple[Assignment, ...],
) -> list[tuple[tuple[int, int, int], float, float]]:
    return sorted((a.key, a.finish, a.weight) for a in assignments)


def _survives_an_empty_round(clock: Clock) -> None:
    in_flight = InFlight(now=0.0)
    for index in range(5):
        before = in_flight.now
        step, in_flight = quietly(
            partial(clock.advance, in_flight, (), index),
            clock,
            "a round nobody was drawn for",
        )
        holds(
            step.assignments == () and in_flight.assignments == (),
            clock,
            "nobody arrives when nobody was drawn",
        )
        holds(step.time >= before, clock, "time never goes back", step.time)


def _keeps_the_budget(
    clock: Clock, setting: Setting, aggregations: int, seed: int
) -> None:
    everything = list(
        timeline(
            clock,
            None,
            clients=setting.clients,
            time=None,
            aggregations=aggregations,
            seed=seed,
        )
    )
    holds(
        len(everything) == aggregations,
        clock,
        "as many steps as asked for",
        len(everything),
    )
    budget = everything[aggregations // 2].time
    within = list(
        timeline(
            clock,
            None,
            clients=setting.clients,
            time=budget,
            aggregations=None,
            seed=seed,
        )
    )
    holds(
        all(s.time <= budget * (1 + 1e-9) for s in within),
        clock,
        "nothing after the budget",
        budget,
    )
    holds(
        within == everything[: len(within)],
        clock,
        "the budget changes no step before it",
    )
    holds(
        len(within) > aggregations // 2,
        clock,
        "nothing within the budget is left out",
        len(within),
    )


def _unbiased(clock: Clock, setting: Setting, seed: int, tolerance: float) -> None:
    if not isinstance(clock, KnowsLongRunWeights):
        return
    try:
        d = np.asarray(clock.unbiased_weights(None, setting.importance))
    except PoiseError:
        return  # the clock has no closed form for these durations
    holds(
        d.shape == (setting.clients,), clock, "one unbiased weight per client", d.shape
    )
    holds(
        np.isfinite(d).all() and (d > 0).all(),
        clock,
        "unbiased weights are finite and above 0",
        d,
    )
    arrivals = np.zeros(setting.clients)
    steps = 4000
    for step in timeline(
        clock, None, clients=setting.clients, time=None, aggregations=steps, seed=seed
    ):
        np.add.at(arrivals, step.clients, 1.0)
    mean = d * arrivals / steps
    holds(
        np.allclose(mean, setting.importance, rtol=tolerance),
        clock,
        "the mean of d_i over aggregations is p_i",
        f"{mean} for {setting.importance}",
    )


def _traits_hold(clock: Clock, step: Step, after: InFlight) -> None:
    """Check the declared traits that a step can show."""
    traits = traits_of(clock, ClockTraits)
    if traits.one_version:
        newest = bool((step.versions == step.index).all())
        holds(
            newest,
            clock,
            "declared one_version: whoever is heard worked on the newest model",
            step.versions,
        )
    if not traits.leaves_clients_behind:
        nobody = not step.late and not after.assignments
        holds(
            nobody,
            clock,
            "declared to leave nobody behind: everyone who was asked is heard",
            after.assignments,
        )
