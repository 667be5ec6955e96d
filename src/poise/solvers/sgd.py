"""`SGD`: stochastic gradient descent, the local work of FedAvg."""

from __future__ import annotations

from dataclasses import field

from poise.core.parts import part
from poise.core.traits import SolverTraits
from poise.solvers.base import LocalSGD


@part("solver", "sgd")
class SGD(LocalSGD):
    """Local SGD: ``w <- w - lr * decay**n * g_i(w)``.

    The solver clips the gradient to norm ``clip``, adds ``weight_decay * w`` and
    applies momentum: the order of PyTorch's optimiser. Momentum starts from zero in
    every piece of work, unless the client keeps it (``keep_state``).

    Args:
        lr: learning rate.
        steps: local steps; give either ``steps`` or ``epochs``.
        epochs: passes over the client's data.
        batch_size: samples per step; None takes all samples of the client.
        momentum: heavy-ball coefficient.
        nesterov: whether momentum looks ahead, as Nesterov's does.
        optimizer: another optimiser (`poise.solvers.optimizers`), by name, table or
            part; not together with momentum.
        weight_decay: L2 penalty, on all parameters (bias too).
        decoupled: whether the decay bypasses optimiser and momentum, as in AdamW.
        clip: largest gradient norm; None for no clipping. PyTorch's ``clip_grad_norm_``
            adds 1e-6 to the norm, this solver does not.
        decay: learning-rate factor per round.
        schedule: further factor of the rate, by round (`poise.solvers.schedules`).
        local_schedule: further factor of the rate, by local step.
        keep_state: whether clients keep the state of their optimiser between rounds.
        accumulate: batches per step; the step follows their mean gradient.

    Source: [McMahan 2017, Alg. 1].

    >>> import numpy as np
    >>> SGD(lr=0.1, epochs=2, batch_size=50).steps_for(np.array([100, 120]))
    array([4, 6])
    """

    lr: float = field(kw_only=False)

    @property
    def traits(self) -> SolverTraits:
        """Declare gradient steps from which clients send only updates."""
        return self.traits_with(
            SolverTraits(gradient_steps=True, sends_only_updates=True)
        )
