"""The contracts of clocks and durations."""

from __future__ import annotations

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
    """The contract of clocks.

    Clauses: time never goes back, an arrival's version is not above the index and its work is over,
        no client is in
    assignment twice, nothing is lost, invented or altered, replay is identical, nothing happens
    after the budget of time, a round nobody was drawn for is survived; where ``unbiased_weights``
    exists, the mean of d_i over many aggregations in which everybody works is p_i up to
    ``tolerance``; declared traits are true (``one_version``: whoever is heard worked on the newest
    model; a clock that declares to leave nobody behind hears everyone who was asked).

    Args:
        clock: the clock, with durations for the clients of the setting.
        setting: the federation; eight clients by default.
        aggregations: steps to look at.
        seed: of the durations and of the cohorts.
        tolerance: largest relative error of the unbiased weights.
    """
    where = setting_of() if setting is None else setting
    fits(clock, where)
    for share in (1.0, 0.4):
        steps = _flown(clock, where, aggregations, seed, share)
        holds(
            steps == _flown(clock, where, aggregations, seed, share), clock, "replay is identical"
        )
    _survives_an_empty_round(clock)
    _keeps_the_budget(clock, where, aggregations, seed)
    _unbiased(clock, where, seed, tolerance)


def check_durations(durations: Times, clients: int = 8, seed: int = 0) -> None:
    """The contract of durations: positive, finite, addressed by (seed, version, client), whoever
    else is asked for.
    """
    everyone = np.arange(clients)
    tau = np.asarray(durations.of(everyone, 3, seed, 0.0))
    holds(tau.shape == (clients,), durations, "one time per client", tau.shape)
    holds(
        np.isfinite(tau).all() and (tau > 0).all(), durations, "times are finite and above 0", tau
    )
    holds(
        np.array_equal(tau, durations.of(everyone, 3, seed, 0.0)), durations, "replay is identical"
    )
    for i in range(clients):
        alone = durations.of(np.array([i]), 3, seed, 0.0)
        holds(
            alone[0] == tau[i],
            durations,
            "a client's time does not depend on who else is asked for",
            i,
        )


def _flown(
    clock: Clock, setting: Setting, aggregations: int, seed: int, share: float
) -> list[Step]:
    """Fly cohorts of about this share of the clients, and check each step against what was in the
    in_flight before it.
    """
    times, in_flight, steps = clock.times(setting.clients), InFlight(), []
    for n in range(aggregations):
        drawn = np.flatnonzero(generator(seed, "cohort", n).random(setting.clients) < share)
        free = np.setdiff1d(drawn, [f.client for f in in_flight.assignments])
        started = launch(Cohort(free, (free + 1.0) / 10), times, in_flight.now, n, seed)
        before = (*in_flight.assignments, *started)
        step, after = clock.advance(in_flight, started, n)
        _lawful(clock, step, before=in_flight, after=after, assignments=before, n=n)
        _keeps_promises(clock, step, after)
        steps.append(step)
        in_flight = after
    holds(any(len(s.assignments) for s in steps), clock, "somebody arrives")
    return steps


def _lawful(
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
        "the in_flight is left at the time of the step",
        (after.now, step.time),
    )
    holds((step.versions <= n).all(), clock, "versions are not above the index", step.versions)
    late = [f for f in step.assignments if f.finish > step.time * (1 + SAME)]
    holds(not late, clock, "who arrives has finished", late)
    kept = _identity((*step.assignments, *after.assignments)) == _identity(assignments)
    holds(
        kept,
        clock,
        "no work is lost, invented or altered",
        f"{assignments} became {step.assignments} and {after.assignments}",
    )
    flying = [f.client for f in after.assignments]
    holds(len(flying) == len(set(flying)), clock, "no client is in flight twice", flying)


def _identity(
    assignments: tuple[Assignment, ...],
) -> list[tuple[tuple[int, int, int], float, float]]:
    return sorted((f.key, f.finish, f.weight) for f in assignments)


def _survives_an_empty_round(clock: Clock) -> None:
    step, in_flight = quietly(
        lambda: clock.advance(InFlight(now=2.0), (), 4), clock, "a round nobody was drawn for"
    )
    holds(
        step.assignments == () and in_flight.assignments == (),
        clock,
        "nobody arrives when nobody was drawn",
    )
    holds(step.time >= 2.0, clock, "time never goes back", step.time)


def _keeps_the_budget(clock: Clock, setting: Setting, aggregations: int, seed: int) -> None:
    everything = list(
        timeline(
            clock, None, clients=setting.clients, time=None, aggregations=aggregations, seed=seed
        )
    )
    holds(len(everything) == aggregations, clock, "as many steps as asked for", len(everything))
    budget = everything[aggregations // 2].time
    within = list(
        timeline(clock, None, clients=setting.clients, time=budget, aggregations=None, seed=seed)
    )
    holds(
        all(s.time <= budget * (1 + 1e-9) for s in within),
        clock,
        "nothing after the budget",
        budget,
    )
    holds(within == everything[: len(within)], clock, "the budget changes no step before it")
    holds(
        len(within) > aggregations // 2, clock, "nothing within the budget is left out", len(within)
    )


def _unbiased(clock: Clock, setting: Setting, seed: int, tolerance: float) -> None:
    if not isinstance(clock, KnowsLongRunWeights):
        return
    try:
        d = np.asarray(clock.unbiased_weights(None, setting.importance))
    except PoiseError:
        return  # it says that it has no closed form
    holds(d.shape == (setting.clients,), clock, "one unbiased weight per client", d.shape)
    holds(
        np.isfinite(d).all() and (d > 0).all(), clock, "unbiased weights are finite and above 0", d
    )
    arrivals, steps = np.zeros(setting.clients), 4000
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


def _keeps_promises(clock: Clock, step: Step, after: InFlight) -> None:
    """The declared traits that can be seen in a step are true."""
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
