"""One application of the equation.

    theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )

execute, decode, attack, validate, weigh, combine, apply, record: `aggregate` is that list, and each
stage is a function of a few named values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from poise.core import equation, neighbours
from poise.core.algorithm_state import AlgorithmState, NamedVectors, absorb_updates, memory_of
from poise.core.arrivals import Arrivals
from poise.core.history import History
from poise.core.protocols import ServerState, Weighting
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
"""The name under which an attacker keeps an empty tensor once it puts nothing aside any more."""


@dataclass(frozen=True)
class Context:
    """What stays the same from round to round: the orders, the way of the updates, the workers, the
    past.
    """

    plan: Plan
    wire: Wire
    executor: LazyExecutor
    history: History

    @cached_property
    def linear(self) -> bool:
        """Whether the direction is the weighted sum of the updates; asked once per run."""
        return traits_of(self.plan.parts.aggregator, AggregatorTraits).linear


@dataclass(frozen=True)
class RoundResult:
    """What came of a round: its record, the state after it, what its clients keep, and the
    updates.
    """

    record: Record
    state: State
    client_state: Mapping[int, NamedVectors]
    updates: RoundUpdates


def aggregate(state: State, step: Step, context: Context) -> RoundResult:
    """Make the next model from the work of the clients that arrived."""
    plan, parts, history = context.plan, context.plan.parts, context.history
    arrivals = context.executor.collect(step.assignments, state)
    updates = decoded(arrivals, step, state, context)
    updates, notes = attacked(updates, parts.attacks, plan.seed, state.algorithm_state.client_state)
    updates = _through_the_wire(updates, notes, context.wire)
    updates, refused = validated(updates, state.theta, plan.drop_refused)
    weights = weighed(updates, parts.weighting, history.excluded)
    direction = parts.aggregator.combine(updates.stack, weights)
    check_direction(direction, state.theta, parts.aggregator, updates.round)
    updates = updates.combined(weights, direction, context.linear)
    theta, server, algorithm_state = applied(state, updates, direction, parts)
    states = _client_states(updates, notes, parts, state.algorithm_state.client_state)
    algorithm_state = replace(
        algorithm_state, client_state={**algorithm_state.client_state, **states}
    )
    record = _record(state, step, updates, refused + late(step), context)
    up, down = _traffic(arrivals, step, theta, algorithm_state, context)
    record = replace(record, bytes_up=up, bytes_down=down)
    for client, gradient in history.add_updates(updates.clients.tolist(), updates.deltas).items():
        states[client] = {**states.get(client, {}), **gradient}
    return RoundResult(record, _after(state, theta, server, algorithm_state), states, updates)


def decoded(arrivals: Arrivals, step: Step, state: State, context: Context) -> RoundUpdates:
    """The updates that clients sent, with what the server knows of these clients."""
    plan, history, clients, versions = context.plan, context.history, step.clients, step.versions
    stack, norms = _updates(arrivals, state.theta, context.wire)
    rates = {v: plan.parts.solver.rate(v) for v in set(versions.tolist())}
    return RoundUpdates(
        clients=clients,
        versions=versions,
        occurrences=np.array([f.occurrence for f in step.assignments], dtype=np.int64),
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


def _updates(arrivals: Arrivals, theta: Vector, wire: Wire) -> tuple[Stack, Floats]:
    """The stack of updates (m, d), and the length of each."""
    if not len(arrivals):
        return theta.new_zeros((0, len(theta))), np.zeros(0)
    stack = wire.decode(arrivals.payload, theta)
    if arrivals.norms is not None:
        return stack, arrivals.norms
    return stack, torch.linalg.vector_norm(stack, dim=1).double().cpu().numpy()


def _through_the_wire(
    updates: RoundUpdates, forged: Mapping[int, NamedVectors], wire: Wire
) -> RoundUpdates:
    """Forged updates as the server receives them: a liar's channel carries no more than
    anybody's.
    """
    if wire.direct or not forged:
        return updates
    stack, norms = updates.stack.clone(), updates.norms.copy()
    rows = np.flatnonzero(np.isin(updates.clients, list(forged)))
    for row in rows.tolist():
        nothing = wire.kept(AlgorithmState(), [0], stack[row])
        stream = keys(0, "forged", int(updates.versions[row]), int(updates.clients[row]))
        sent = wire.encode(stack[row : row + 1], nothing, stream)
        stack[row] = wire.decode(sent.payload, stack[row])[0]
        norms[row] = float(torch.linalg.vector_norm(stack[row]).double())
    return replace(updates, stack=stack, norms=norms)


def weighed(
    updates: RoundUpdates, weighting: Weighting, excluded: frozenset[int] = frozenset()
) -> Floats:
    """The coefficients that the weighting gives; clients in quarantine count nothing."""
    weights = weigh(weighting, updates)
    check_coefficients(weights, updates.clients, updates.round)
    return without_excluded(weights, updates.clients, excluded)


def applied(
    state: State, updates: RoundUpdates, direction: Vector, parts: Parts
) -> tuple[Vector, ServerState, AlgorithmState]:
    """The next model, the server's state, and what the server remembers."""
    memory, algorithm_state, trainable = (
        memory_of(parts.solver),
        state.algorithm_state,
        updates.trainable,
    )
    moving = equation.Moving(state.theta, trainable, state.server)
    if memory is None:
        theta, server = equation.step(moving, direction, updates.weights, parts.server)
        return theta, server, algorithm_state
    algorithm_state, shift = absorb_updates(memory, algorithm_state, updates)
    theta, server = equation.step(moving, direction, updates.weights, parts.server, shift=shift)
    shared = memory.observe(algorithm_state.shared, theta[:trainable] - state.theta[:trainable])
    return theta, server, replace(algorithm_state, shared=shared)


def _client_states(
    updates: RoundUpdates,
    notes: Mapping[int, NamedVectors],
    parts: Parts,
    kept: Mapping[int, NamedVectors],
) -> dict[int, Mapping[str, Vector]]:
    """What every client of this round keeps from now on, with what attackers put aside; ``kept`` is
    what they had.
    """
    states: dict[int, dict[str, Vector]] = {}
    if not updates.client_state and not notes and not parts.perturbs:
        return {}
    for row, client in enumerate(updates.clients.tolist()):
        state = {name: values[row].clone() for name, values in updates.client_state.items()}
        state.update(notes.get(client, {}))
        if not state and any(name.startswith(NOTES) for name in kept.get(client, {})):
            state = {
                NOTHING: updates.stack.new_zeros(0)
            }  # the ledger must know that its notes are gone
        if state:
            states[client] = state
    if parts.perturbs:
        neighbours.local_models(states, updates)
    return dict(states)


def _record(
    state: State, step: Step, updates: RoundUpdates, refused: tuple[Refusal, ...], context: Context
) -> Record:
    """What the ledger keeps of the round, but for its traffic and what is measured afterwards."""
    return Record(
        index=state.index,
        time=step.time,
        contributions=updates.contributions(),
        metrics={},
        bytes_up=0,
        bytes_down=0,
        in_flight=state.in_flight,
        refusals=refused,
        measurements=measurements(context.plan.probes, updates, context.history),
    )


def _traffic(
    arrivals: Arrivals, step: Step, theta: Vector, algorithm_state: AlgorithmState, context: Context
) -> tuple[int, int]:
    """Bytes up: what was answered. Bytes down: a model, and what is shared, to everyone who was
    asked.
    """
    wire, asked = context.wire, len(step.assignments) + len(step.late)
    up = wire.bytes_up(arrivals.payload, len(context.plan.parts.reports))
    return up, asked * wire.bytes_down(theta, algorithm_state.shared)


def _after(
    state: State, theta: Vector, server: ServerState, algorithm_state: AlgorithmState
) -> State:
    """The state after the round; versions that nobody works on any more are let go."""
    flying = {f.version for f in state.in_flight.assignments}
    models = {v: state.models[v] for v in flying}
    return State(
        state.index + 1,
        theta,
        server,
        in_flight=state.in_flight,
        models=models,
        algorithm_state=algorithm_state.landed(flying),
    )
