"""Small runs with chosen numbers, written straight into a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from poise.core.types import Contribution, Record
from poise.ledger import Ledger
from poise.results import Run, open_run

Metrics = Mapping[str, Sequence[Any]]


def experiment(seed: int = 0, **sections: Any) -> dict[str, Any]:
    """An experiment file's tables, some of them replaced."""
    base = {
        "solver": {"name": "sgd", "lr": 0.1, "steps": 5},
        "sampler": {"name": "uniform", "m": 2},
        "weighting": {"name": "proportional"},
    }
    return {
        **base,
        **sections,
        "run": {"seeds": [seed], "evaluate_every": 1, **sections.get("run", {})},
    }


def made_run(
    metrics: Metrics | None = None,
    seed: int = 0,
    rounds: int | None = None,
    clients: int = 4,
    cohorts: Sequence[Mapping[int, float]] | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    times: Sequence[float] | None = None,
    bases: Sequence[Mapping[int, float]] | None = None,
    path: Path | None = None,
    status: str = "done",
    **sections: Any,
) -> Run:
    """A run with these metrics (None = not measured) and these weights (and base weights) per
    client and round."""
    metrics = metrics or {}
    rounds = (
        rounds
        if rounds is not None
        else max((len(v) for v in metrics.values()), default=0)
    )
    meta = {
        "seed": seed,
        "clients": clients,
        "status": status,
        "poise": "0.0.test",
        "keep": "last",
    }
    text = tomli_w.dumps(experiment(seed, **sections))
    ledger = Ledger.create(path, {**meta, "experiment": text}, arrays or {}, text)
    theta = torch.zeros(2)
    ledger.start(theta)
    for n in range(rounds):
        weights = cohorts[n] if cohorts else {n % clients: 0.5, (n + 1) % clients: 0.5}
        base = bases[n] if bases else weights
        parts = tuple(
            Contribution(c, n, 0, base[c], w, 1.0, 10, 5) for c, w in weights.items()
        )
        found = {k: v[n] for k, v in metrics.items() if v[n] is not None}
        time = float(times[n]) if times is not None else n + 1.0
        ledger.append(
            Record(n, time, parts, found, bytes_up=100, bytes_down=50), theta, {}
        )
    if path is None:
        return Run(ledger)
    ledger.close()
    return open_run(path)
