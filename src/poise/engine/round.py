"""One application of the equation.

    theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )

`aggregate` does it in named stages: execute, decode, attack, validate, weigh, combine,
apply, record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from poise.core import equation, latest, neighbours, spill
from poise.core.algorithm_state import (
    AlgorithmState,
    NamedVectors,
    absorb_updates,
    memory_of,
)
from poise.core.arrivals import Arrivals
from poise.core.history import History
from poise.core.protocols import Weighting
from poise.core.rng import keys
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AggregatorTraits, traits_of
from poise.core.types import Floats, Record, Refusal, Step
from poise.core.vectors import Stack, Vector
from poise.core.weights import weigh, without_excluded
from poise.engine.attacks import NOTES, attacked
from poise.engine.executor import LazyExecutor
from poise.engine.plan import Parts, Plan
from poise.engine.probes import measurements
from poise.engine.state import State
from poise.engine.validation import check_coefficients, check_direction, late, validated
from poise.engine.wire import Wire

NOTHING = "nothing"
"""The name of the empty tensor that the ledger keeps for an attacker without notes."""


@dataclass(frozen=True)
class Context:
    """What stays the same in all rounds: plan, wire, workers and history."""

    plan: Plan
    wire: Wire
    executor: LazyExecutor
    history: History

    @cached_property
    def linear(self) -> bool:
        """Whether the direction is the weighted sum of the updates."""
        return traits_of(self.plan.parts.aggregator, AggregatorTraits).linear

    @cached_property
    def keeps_latest(self) -> bool:
        """Whether the direction combines the latest answers of all clients."""
        return traits_of(self.plan.parts.aggregator, AggregatorTraits).latest


@dataclass(frozen=True)
class RoundResult:
    """A round's record, the state after it, what its clients keep, and the updates."""

    record: Record
    state: State
    client_state: Mapping[int, NamedVectors]
    updates: RoundUpdates


def aggregate(state: State, step: Step, context: Context) -> RoundResult:
    """Make the next model from the work of the clients that arrived."""
    plan = context.plan
    parts = plan.parts
    history = context.history
    client_state = state.algorithm_state.client_state
    arrivals = context.executor.collect(step.assignments, state)
    updates = decoded(arrivals, step, state, context)
    updates, notes = attacked(updates, parts.attacks, plan.seed, client_state)
    updates = _sent_through(context.wire, updates, notes)
    updates, refused = validated(
        updates,
        state.theta,
        drop=plan.drop_refused,
        limits=plan.limits,
        history=history,
    )
    coefficients = weighed(updates, parts.weighting)
    weights = without_excluded(coefficients, updates.clients, history.excluded)
    answers: Mapping[int, NamedVectors] = {}
    if context.keeps_latest:
        answers = latest.answers(updates, coefficients)
    direction = _combined(updates, weights, answers, client_state, context)
    check_direction(direction, state.theta, parts.aggregator, round=updates.round)
    updates = updates.combined(weights, direction, linear=context.linear)
    after = applied(state, updates, direction, parts=parts)
    states = _client_states(updates, notes, parts, before=client_state)
    for client, answer in answers.items():
        states[client] = {**states.get(client, {}), **answer}
    after = _with_client_states(after, states)
    refusals = refused + late(step)
    traffic = _traffic(arrivals, step, after, context)
    record = _record(
        state, step, updates, refusals=refusals, traffic=traffic, context=context
    )
    for client, gradient in history.add_updates(
        updates.clients.tolist(), updates.deltas
    ).items():
        states[client] = {**states.get(client, {}), **gradient}
    return RoundResult(record, after, client_state=states, updates=updates)


def decoded(
    arrivals: Arrivals, step: Step, state: State, context: Context
) -> RoundUpdates:
    """Return the updates that clients sent, with the server's facts about them."""
    plan = context.plan
    history = context.history
    clients = step.clients
    versions = step.versions
    stack, norms = _stack_and_norms(arrivals, state.theta, context.wire)
    rates = {v: plan.parts.solver.rate(v) for v in set(versions.tolist())}
    return RoundUpdates(
        clients=clients,
        versions=versions,
        occurrences=np.array([a.occurrence for a in step.assignments], dtype=np.int64),
        stack=stack,
        norms=norms,
        samples=arrivals.samples,
        steps=arrivals.steps,
        rates=np.array([rates[v] for v in versions.tolist()]),
        loss_before=arrivals.loss_before,
        loss_after=arrivals.loss_after,
        lowest_loss=history.lowest(clients),
        participations=history.participations(clients) + 1,
        client_state=arrivals.client_state,
        reasons=arrivals.reasons,
        round=state.index,
        trainable=context.wire.layout.trainable,
        reached=history.reached,
        models=state.models,
        map_workers=context.executor.map_workers,
        **plan.parts.base_columns(step, plan.setting),
    )


def _stack_and_norms(
    arrivals: Arrivals, theta: Vector, wire: Wire
) -> tuple[Stack, Floats]:
    """Return the stack of updates (m, d) and the length of each."""
    if not len(arrivals):
        return theta.new_zeros((0, len(theta))), np.zeros(0)
    stack = wire.decode(arrivals.payload, theta)
    if arrivals.norms is not None:
        return stack, arrivals.norms
    return stack, torch.linalg.vector_norm(stack, dim=1).double().cpu().numpy()


def _sent_through(
    wire: Wire, updates: RoundUpdates, notes: Mapping[int, NamedVectors]
) -> RoundUpdates:
    """Send forged updates through the wire, which carries no more for attackers.

    The keys of ``notes`` are the clients with forged updates.
    """
    if wire.direct or not notes:
        return updates
    stack = spill.copied(updates.stack)
    norms = updates.norms.copy()
    rows = np.flatnonzero(np.isin(updates.clients, list(notes)))
    for row in rows.tolist():
        no_state = wire.kept(AlgorithmState(), [0], stack[row])
        stream = keys(
            0, "forged", int(updates.versions[row]), int(updates.clients[row])
        )
        sent = wire.encode(stack[row : row + 1], no_state, stream)
        stack[row] = wire.decode(sent.payload, stack[row])[0]
        norms[row] = float(torch.linalg.vector_norm(stack[row]).double())
    return replace(updates, stack=stack, norms=norms)


def weighed(updates: RoundUpdates, weighting: Weighting) -> Floats:
    """Return the coefficients of the weighting."""
    weights = weigh(weighting, updates)
    check_coefficients(weights, updates.clients, updates.round)
    return weights


def _combined(
    updates: RoundUpdates,
    weights: Floats,
    answers: Mapping[int, NamedVectors],
    before: Mapping[int, NamedVectors],
    context: Context,
) -> Vector:
    """Return the direction, of this round's updates or of all clients' latest answers."""
    aggregator = context.plan.parts.aggregator
    if not context.keeps_latest:
        return aggregator.combine(updates.stack, weights)
    return latest.direction(
        aggregator,
        updates,
        weights,
        new=answers,
        before=before,
        excluded=context.history.excluded,
    )


def applied(
    state: State, updates: RoundUpdates, direction: Vector, parts: Parts
) -> State:
    """Apply the direction; return the next state, with the old client states."""
    memory = memory_of(parts.solver)
    algorithm_state = state.algorithm_state
    trainable = updates.trainable
    moving = equation.Moving(state.theta, trainable, state=state.server)
    shift = None
    if memory is not None:
        algorithm_state, shift = absorb_updates(memory, algorithm_state, updates)
    theta, server = equation.step(
        moving, direction, updates.weights, parts.server, shift=shift
    )
    if memory is not None:
        change = theta[:trainable] - state.theta[:trainable]
        shared = memory.observe(algorithm_state.shared, change)
        algorithm_state = replace(algorithm_state, shared=shared)
    versions_in_flight = {a.version for a in state.in_flight.assignments}
    return State(
        index=state.index + 1,
        theta=theta,
        server=server,
        in_flight=state.in_flight,
        models={version: state.models[version] for version in versions_in_flight},
        algorithm_state=algorithm_state.landed(versions_in_flight),
    )


def _with_client_states(state: State, states: Mapping[int, NamedVectors]) -> State:
    """Return the state with new vectors of some clients."""
    if not states:
        return state
    client_state = {**state.algorithm_state.client_state, **states}
    algorithm_state = replace(state.algorithm_state, client_state=client_state)
    return replace(state, algorithm_state=algorithm_state)


def _client_states(
    updates: RoundUpdates,
    notes: Mapping[int, NamedVectors],
    parts: Parts,
    before: Mapping[int, NamedVectors],
) -> dict[int, Mapping[str, Vector]]:
    """Return the vectors that every client of this round keeps from now on.

    ``notes`` are the vectors of attackers, ``before`` the clients' vectors before the
    round.
    """
    states: dict[int, dict[str, Vector]] = {}
    if not updates.client_state and not notes and not parts.perturbs:
        return {}
    for row, client in enumerate(updates.clients.tolist()):
        state = {
            name: values[row].clone() for name, values in updates.client_state.items()
        }
        state.update(notes.get(client, {}))
        had_notes = any(name.startswith(NOTES) for name in before.get(client, {}))
        if not state and had_notes:  # tell the ledger that the notes are gone
            state = {NOTHING: updates.stack.new_zeros(0)}
        if state:
            states[client] = state
    if parts.perturbs:
        neighbours.local_models(states, updates)
    return dict(states)


def _record(
    state: State,
    step: Step,
    updates: RoundUpdates,
    refusals: tuple[Refusal, ...],
    traffic: tuple[int, int],
    context: Context,
) -> Record:
    """Return the record of the round, without its metrics."""
    bytes_up, bytes_down = traffic
    return Record(
        index=state.index,
        time=step.time,
        contributions=updates.contributions(),
        metrics={},
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        in_flight=state.in_flight,
        refusals=refusals,
        measurements=measurements(context.plan.probes, updates, context.history),
    )


def _traffic(
    arrivals: Arrivals, step: Step, after: State, context: Context
) -> tuple[int, int]:
    """Return the bytes up, of all answers, and down, of models for started clients."""
    wire = context.wire
    receivers = len(step.assignments) + len(step.late)
    up = wire.bytes_up(arrivals.payload, len(context.plan.parts.reports))
    return up, receivers * wire.bytes_down(after.theta, after.algorithm_state.shared)
