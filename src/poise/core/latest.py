"""The latest answer of every client, which the server keeps for some aggregators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from poise.core.protocols import Aggregator
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats
from poise.core.vectors import Vector

LATEST = "latest"
"""The name of a client's latest answer, in its client state; trainable entries only."""

WEIGHT = "latest weight"
"""The name of the weight p_i kappa_i of the latest answer, in its client state."""

Kept = Mapping[str, Vector]


def answers(updates: RoundUpdates, weights: Floats) -> dict[int, dict[str, Vector]]:
    """Return what the server keeps of these answers, by client.

    The weight is ``p_i`` times the coefficient over the base weight.
    """
    base = updates.base_weights
    ratio = np.divide(weights, base, out=np.zeros(len(weights)), where=base != 0)
    kept = {}
    for row, client in enumerate(updates.clients.tolist()):
        weight = float(updates.importance[row] * ratio[row])
        kept[client] = {
            LATEST: updates.deltas[row].clone(),
            WEIGHT: torch.tensor([weight], dtype=torch.float64),
        }
    return kept


def direction(
    aggregator: Aggregator,
    updates: RoundUpdates,
    weights: Floats,
    new: Mapping[int, Kept],
    before: Mapping[int, Kept],
    excluded: frozenset[int],
) -> Vector:
    """Combine the latest answers of all clients, in the order of their numbers.

    Buffers move by the answers of this round. An excluded client no longer counts.
    """
    latest = {c: state for c, state in before.items() if LATEST in state}
    latest.update(new)
    clients = sorted(client for client in latest if client not in excluded)
    moving = updates.stack.new_zeros(updates.trainable)
    if clients:
        rows = torch.stack([latest[client][LATEST] for client in clients])
        shares = np.array([float(latest[client][WEIGHT]) for client in clients])
        moving = aggregator.combine(rows.to(updates.stack), shares)
    if updates.trainable == updates.stack.shape[1]:
        return moving
    buffers = aggregator.combine(updates.stack[:, updates.trainable :], weights)
    return torch.cat([moving, buffers])
