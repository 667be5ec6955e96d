"""Named methods: a choice for each slot, never a loop of their own.

``poise.train(fed, task, **poise.recipes.fedavg(lr=0.1, epochs=1, batch_size=50, m=10), rounds=100)``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poise.clocks import Synchronous
from poise.samplers import Full, Uniform
from poise.servers import Add
from poise.solvers import SGD
from poise.weightings import Proportional


def fedavg(m: int | None = None, server_lr: float = 1.0, **solver: Any) -> dict[str, Any]:
    """FedAvg (McMahan et al. 2017): local SGD, everyone or m at random, weights by importance, added.

    Args:
        m: clients per round; None for all.
        server_lr: learning rate of the server.
        solver: options of `poise.solvers.SGD`.

    >>> sorted(fedavg(lr=0.1, epochs=1))
    ['clock', 'sampler', 'server', 'solver', 'weighting']
    """
    return {
        "solver": SGD(**solver),
        "sampler": Full() if m is None else Uniform(m),
        "clock": Synchronous(),
        "weighting": Proportional(),
        "server": Add(server_lr),
    }


def fedsgd(lr: float, m: int | None = None) -> dict[str, Any]:
    """FedSGD: FedAvg with one full-batch step per round, that is, distributed gradient descent.

    >>> fedsgd(lr=0.5)["solver"].steps
    1
    """
    return fedavg(m=m, lr=lr, steps=1)


RECIPES: dict[str, Callable[..., dict[str, Any]]] = {"fedavg": fedavg, "fedsgd": fedsgd}
