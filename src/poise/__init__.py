"""poise: federated learning that weighs the contribution of each client.

    theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )

Names are imported at first use, so that ``import poise`` is fast.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
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
        metrics,
        personal,
        plot,
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
    from poise.apps.experiments.sweep_results import Sweep, open_sweep
    from poise.apps.experiments.sweeping import sweep
    from poise.auditing.audit import audit
    from poise.core.errors import PoiseError
    from poise.data import federation
    from poise.results import Run, load, open_run
    from poise.tasks import Task, quadratics, ridge, task
    from poise.training import resume, train
    from poise.unlearning.operation import unlearn
    from poise.unlearning.shard_training import shards
    from poise.unlearning.shards import open_shards

_MODULE_OF = {
    "PoiseError": "poise.core.errors",
    "Run": "poise.results",
    "Sweep": "poise.apps.experiments.sweep_results",
    "Task": "poise.tasks",
    "audit": "poise.auditing.audit",
    "explain": "poise.analysis.explain",
    "federation": "poise.data",
    "load": "poise.results",
    "open_run": "poise.results",
    "open_shards": "poise.unlearning.shards",
    "open_sweep": "poise.apps.experiments.sweep_results",
    "quadratics": "poise.tasks",
    "resume": "poise.training",
    "ridge": "poise.tasks",
    "shards": "poise.unlearning.shard_training",
    "sweep": "poise.apps.experiments.sweeping",
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
    "metrics",
    "personal",
    "plot",
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
    "Sweep",
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
    "load",
    "metrics",
    "open_run",
    "open_shards",
    "open_sweep",
    "personal",
    "plot",
    "quadratics",
    "recipes",
    "resume",
    "ridge",
    "samplers",
    "servers",
    "shards",
    "solvers",
    "sweep",
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
        return getattr(_imported(_MODULE_OF[name]), name)
    if name in _PACKAGES:
        return _imported(f"poise.{name}")
    raise AttributeError(f"module 'poise' has no attribute {name!r}")


def _imported(module: str) -> ModuleType:
    from poise.core.collector import imports

    with imports():
        return importlib.import_module(module)


def __dir__() -> list[str]:
    return __all__
