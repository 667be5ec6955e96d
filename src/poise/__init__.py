"""poise: federated learning that weighs the contribution of each client.

    theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )

Names are imported at first use, so that ``import poise`` is fast.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from poise._version import __version__

# MKL may round a product differently if its memory starts at another address. A fixed
# code path
# makes a client's result independent of its place in the stack. MKL reads the variable
# at its first
# call. A setting of the user takes precedence.
os.environ.setdefault("MKL_CBWR", "AVX2")

if TYPE_CHECKING:
    from poise import (
        aggregators,
        attacks,
        backends,
        channels,
        clocks,
        exports,
        graph,
        personal,
        recipes,
        samplers,
        servers,
        solvers,
        testing,
        theory,
        unlearning,
        weightings,
    )
    from poise.analysis.explain import explain
    from poise.auditing.audit import audit
    from poise.core.errors import PoiseError
    from poise.data import federation
    from poise.ledger.run import Run, open_run
    from poise.tasks import Task, quadratics, ridge, task
    from poise.training import resume, train
    from poise.unlearning.operation import unlearn
    from poise.unlearning.shard_training import shards
    from poise.unlearning.shards import open_shards

_MODULE_OF = {
    "PoiseError": "poise.core.errors",
    "Run": "poise.ledger.run",
    "Task": "poise.tasks",
    "audit": "poise.auditing.audit",
    "explain": "poise.analysis.explain",
    "federation": "poise.data",
    "open_run": "poise.ledger.run",
    "open_shards": "poise.unlearning.shards",
    "quadratics": "poise.tasks",
    "resume": "poise.training",
    "ridge": "poise.tasks",
    "shards": "poise.unlearning.shard_training",
    "task": "poise.tasks",
    "train": "poise.training",
    "unlearn": "poise.unlearning.operation",
}
_PACKAGES = {
    "aggregators",
    "attacks",
    "backends",
    "channels",
    "clocks",
    "exports",
    "graph",
    "personal",
    "recipes",
    "samplers",
    "servers",
    "solvers",
    "testing",
    "theory",
    "unlearning",
    "weightings",
}

__all__ = [
    "PoiseError",
    "Run",
    "Task",
    "__version__",
    "aggregators",
    "attacks",
    "audit",
    "backends",
    "channels",
    "clocks",
    "explain",
    "exports",
    "federation",
    "graph",
    "open_run",
    "open_shards",
    "personal",
    "quadratics",
    "recipes",
    "resume",
    "ridge",
    "samplers",
    "servers",
    "shards",
    "solvers",
    "task",
    "testing",
    "theory",
    "train",
    "unlearn",
    "unlearning",
    "weightings",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"poise.{name}")
    raise AttributeError(f"module 'poise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
