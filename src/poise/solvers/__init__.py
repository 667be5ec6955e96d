"""Solvers: the local work of each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.solvers import optimizers, schedules
    from poise.solvers.adagrad import Adagrad
    from poise.solvers.adam import Adam, AdamW
    from poise.solvers.feddyn import FedDyn
    from poise.solvers.fedfor import FedFor
    from poise.solvers.perturbed import Perturbed
    from poise.solvers.prox import Prox
    from poise.solvers.rmsprop import RMSprop
    from poise.solvers.scaffold import Scaffold
    from poise.solvers.sgd import SGD
    from poise.solvers.sums import Sums

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "FedDyn",
    "FedFor",
    "Perturbed",
    "Prox",
    "RMSprop",
    "Scaffold",
    "Sums",
    "optimizers",
    "schedules",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Adagrad": "adagrad",
        "Adam": "adam",
        "AdamW": "adam",
        "FedDyn": "feddyn",
        "FedFor": "fedfor",
        "Perturbed": "perturbed",
        "Prox": "prox",
        "RMSprop": "rmsprop",
        "SGD": "sgd",
        "Scaffold": "scaffold",
        "Sums": "sums",
        "optimizers": "",
        "schedules": "",
    },
)
