"""Clocks and client state on four real nodes: replaying the ledger gives the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import poise
from backends.conftest import TEXT
from poise.apps.deploy import jobs
from poise.apps.deploy.folder import Deployment, read_toml
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

LIVE = (
    TEXT.replace('name = "sgd"', 'name = "scaffold"')
    .replace('"soft-max"\ntemperature = 2.0', '"time-based"\ntimes = "estimated"')
    .replace("rounds = 2", "rounds = 4")
)


def changed(file: Path, **values: Any) -> str:
    """Change a node's file; what it was before."""
    before = file.read_text()
    file.write_text(tomli_w.dumps({**read_toml(file), **values}))
    return before


def test_fedbuff_with_a_slow_node_and_memories(
    deployed: Deployment, tmp_path: Path
) -> None:
    files = [deployed.node(c) / "policy.toml" for c in range(4)]
    before = {file: changed(file, solvers=["scaffold"]) for file in files}
    slow = deployed.node(3) / "node.toml"
    before[slow] = changed(slow, delay=20.0)
    try:
        text = LIVE + '[clock]\nname = "buffered"\nc = 2\n'
        there = jobs.run_deployed(parse(text), deployed.path, tmp_path / "out")[0]
    finally:
        for file, content in before.items():
            file.write_text(content)
    assert there.rounds == 4
    assert there.refusals == []
    assert (np.diff(there.times) >= 0).all()
    assert 3 not in there.schedule[0].clients, "the slow one is not waited for"
    poise.clocks.save_schedule(there.schedule, tmp_path / "steps.csv")
    replay = LIVE + f'[clock]\nname = "replay"\nschedule = "{tmp_path / "steps.csv"}"\n'
    here = run_experiment(parse(replay), None)[0]
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    assert np.allclose(there.weights, here.weights, atol=1e-6)
    states = sorted((deployed.node(1) / "state").rglob("*.safetensors"))
    assert states, "its control variate lies on the node"
