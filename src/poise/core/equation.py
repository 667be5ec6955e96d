"""The equation, written once.

theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from poise.core.protocols import Server, ServerState
from poise.core.types import Floats
from poise.core.vectors import Stack, Vector


def combine(omega: Floats, deltas: Stack) -> Vector:
    """``sum_i omega_i * Delta_i``: one product of a row with the stack, (d,).

    >>> import numpy as np
    >>> combine(np.array([0.5, 2.0]), torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
    tensor([3., 6.])
    """
    weights = torch.from_numpy(omega).to(deltas)
    return weights @ deltas


@dataclass(frozen=True)
class Moving:
    """A global model whose first ``trainable`` entries a server optimiser moves, and that
    optimiser's state.
    """

    theta: Vector
    trainable: int
    state: ServerState


def step(
    at: Moving, direction: Vector, weights: Floats, server: Server, *, shift: Vector | None = None
) -> tuple[Vector, ServerState]:
    """The next global model and server state, from the aggregated ``direction`` and the ``weights``
    it was made with.

    ``shift`` is what a solver's memory adds to the direction.

    Only what gradients move goes through the server optimiser. Batch-norm statistics and other
    buffers are averages, not optimisation variables: they move by the same weighted sum, scaled so
    that the weights never exceed one in total (a variance must stay inside the range of those it
    was averaged from).
    """
    theta, trainable = at.theta, at.trainable
    moving = direction[:trainable] if shift is None else direction[:trainable] + shift
    moved, state = server.apply(theta[:trainable], moving, at.state)
    if trainable == len(theta):
        return moved, state
    resting = theta[trainable:] + direction[trainable:] / max(1.0, float(weights.sum()))
    return torch.cat([moved, resting]), state
