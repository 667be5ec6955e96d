"""What the server sends to each client about its neighbours: the weighted mean of their last local
models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from poise.core.algorithm_state import AlgorithmState
from poise.core.round_updates import RoundUpdates
from poise.core.types import Assignment, Floats
from poise.core.vectors import Vector

LOCAL, MEAN, FIRST = "local", "mean", "first"
"""Kept per client: its last local model, and the mean that it was sent; on the server: the first
model."""


def sent(
    algorithm_state: AlgorithmState, started: Sequence[Assignment], shares: Floats
) -> AlgorithmState:
    """Give every client that starts u_i = sum_j p_ij w_j / p_i; whoever has not worked yet counts
    with theta^0.
    """
    if not started:
        return algorithm_state
    first = algorithm_state.shared[FIRST]
    models = torch.stack(
        [algorithm_state.client_state.get(j, {}).get(LOCAL, first) for j in range(len(shares))]
    )
    rows = shares[[f.client for f in started]]
    means = torch.from_numpy(rows / rows.sum(axis=1, keepdims=True)).to(models) @ models
    own = {
        f.client: {**algorithm_state.client_state.get(f.client, {}), MEAN: means[k]}
        for k, f in enumerate(started)
    }
    return replace(algorithm_state, client_state={**algorithm_state.client_state, **own})


def local_models(states: dict[int, dict[str, Vector]], updates: RoundUpdates) -> None:
    """Add to the state of each client that answered its last local model: what it received plus
    what it changed.
    """
    for row, (client, version) in enumerate(
        zip(updates.clients.tolist(), updates.versions.tolist(), strict=True)
    ):
        received = updates.models[version][: updates.trainable]
        states.setdefault(client, {})[LOCAL] = received + updates.deltas[row]
