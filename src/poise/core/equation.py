"""The equation, written once.

theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from poise.core import spill
from poise.core.protocols import Server, ServerState
from poise.core.types import Floats
from poise.core.vectors import Stack, Vector


def combine(omega: Floats, deltas: Stack) -> Vector:
    """``sum_i omega_i * Delta_i``, (d,).

    >>> import numpy as np
    >>> combine(np.array([0.5, 2.0]), torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
    tensor([3., 6.])
    """
    weights = torch.from_numpy(omega).to(deltas)
    blocks = [weights @ deltas[:, block] for block in spill.column_blocks(deltas)]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


@dataclass(frozen=True)
class Moving:
    """The global model, and the state of the optimiser of its trainable entries."""

    theta: Vector
    trainable: int  # the optimiser moves theta[:trainable]
    state: ServerState


def step(
    at: Moving,
    direction: Vector,
    weights: Floats,
    server: Server,
    *,
    shift: Vector | None = None,
) -> tuple[Vector, ServerState]:
    """Apply an aggregated direction; return the next global model and server state.

    Only trainable entries go through the server optimiser. Batch-norm statistics and
    other buffers are averages, not optimisation variables: they move by the same
    weighted sum, scaled so that the weights never exceed one in total (a variance must
    stay inside the range of the variances that it averages).

    Args:
        at: the present model and server state.
        direction: the aggregated direction, (d,).
        weights: the coefficients that gave the direction, (m,).
        server: the server optimiser.
        shift: the vector that a solver's memory adds to the direction, if any.
    """
    theta = at.theta
    trainable = at.trainable
    moving = direction[:trainable]
    if shift is not None:
        moving = moving + shift
    moved, state = server.apply(theta[:trainable], moving, at.state)
    if trainable == len(theta):
        return moved, state
    buffers = theta[trainable:] + direction[trainable:] / max(1.0, float(weights.sum()))
    return torch.cat([moved, buffers]), state
