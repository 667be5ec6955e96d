"""The mean of the neighbours' last local models, which the server sends to clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from poise.core.algorithm_state import AlgorithmState
from poise.core.round_updates import RoundUpdates
from poise.core.types import Assignment, Floats
from poise.core.vectors import Vector

LOCAL = "local"
"""The name of a client's last local model, in its client state."""

MEAN = "mean"
"""The name of the mean that a client was sent, in its client state."""

FIRST = "first"
"""The name of the first global model, in the server's shared vectors."""


def sent(
    algorithm_state: AlgorithmState, started: Sequence[Assignment], shares: Floats
) -> AlgorithmState:
    """Give every starting client u_i = sum_j p_ij w_j / p_i.

    A client that has not worked yet counts with theta^0. ``shares`` are p_ij, (N, N).
    """
    if not started:
        return algorithm_state
    client_state = algorithm_state.client_state
    first = algorithm_state.shared[FIRST]
    models = torch.stack(
        [client_state.get(j, {}).get(LOCAL, first) for j in range(len(shares))]
    )
    rows = shares[[assignment.client for assignment in started]]
    means = torch.from_numpy(rows / rows.sum(axis=1, keepdims=True)).to(models) @ models
    states = dict(client_state)
    for row, assignment in enumerate(started):
        client = assignment.client
        states[client] = {**client_state.get(client, {}), MEAN: means[row]}
    return replace(algorithm_state, client_state=states)


def local_models(states: dict[int, dict[str, Vector]], updates: RoundUpdates) -> None:
    """Add its last local model to the state of each client that answered."""
    for row, client in enumerate(updates.clients.tolist()):
        local = updates.local_model(row)[: updates.trainable]
        states.setdefault(client, {})[LOCAL] = local
