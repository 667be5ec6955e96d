"""Four real nodes: one leaves and is unlearned, one lies and is detected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import poise
from backends.test_flower_forgetting import TEXT as WHOLE
from faults.support import call
from poise.apps.deploy import control, jobs
from poise.apps.deploy.folder import Deployment, make_deployment, read_toml
from poise.apps.deploy.policy import Policy
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse
from poise.config.unlearn_request import UnlearnRequest
from poise.training import federation_in

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

LEAVES, LIES = 2, 1
TEXT = WHOLE.replace(
    "rounds = 6", "rounds = 2"
)  # a round costs a new process on every node
REQUEST: dict[str, Any] = {
    "target": 0.1,
    "min_rounds": 1,
    "max_rounds": 1,
    "noise": "seeded",
}


@pytest.fixture(scope="module")
def hospital(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Deployment, list[subprocess.Popen[bytes]]]]:
    """A server, and four nodes that run by themselves."""
    made = make_deployment(
        tmp_path_factory.mktemp("leaving") / "four",
        4,
        federation_in(parse(TEXT), 0).spec,
    )
    for client in range(4):
        (made.node(client) / "policy.toml").write_text(
            tomli_w.dumps(Policy(metrics=True, curvature=True).table())
        )
    control.up(made.path, nodes=False, seconds=300)
    verb = [
        sys.executable,
        "-c",
        "from poise.apps.cli import main; main()",
        "deploy",
        "node",
    ]
    nodes = [
        subprocess.Popen([*verb, str(made.node(k))], stderr=subprocess.DEVNULL)
        for k in range(4)
    ]
    try:
        yield made, nodes
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(60)
        control.down(made.path)


def journal(deployed: Deployment, client: int) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (deployed.node(client) / "journal.jsonl").read_text().splitlines()
    ]


def pieces(vector: Any) -> list[bytes]:
    """Pieces of 64 bytes of a vector, as it travels and is stored."""
    data = np.ascontiguousarray(vector, dtype="<f4").tobytes()
    cut = [data[k : k + 64] for k in range(0, len(data) - 63, 64)]
    return [piece for piece in cut if any(piece)]


def files_with(trace: list[bytes], *folders: Path) -> set[str]:
    """The names of files that hold one of these pieces."""
    found = set()
    for file in (file for folder in folders for file in folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            if any(piece in content for piece in trace):
                found.add(file.name)
    return found


def test_erasing_leaves_no_update_in_run_or_deployment(
    hospital: Any, tmp_path: Path
) -> None:
    """Before, the updates are in the run and in the database of the SuperLink."""
    deployed, _ = hospital
    text = TEXT.replace("[run]", "[run]\nkeep_updates = true")
    run = jobs.run_deployed(parse(text), deployed.path, tmp_path / "erased")[0]
    trace = [piece for n in range(2) for piece in pieces(run.updates(n)[LEAVES])]
    places = (run.path, deployed.path)
    before = files_with(trace, *places)
    assert before & {"state.db", "state.db-wal"}
    assert "00000001.updates.safetensors" in before
    run.close()
    asked = call(
        *("deploy", "unlearn", run.path, "--client", LEAVES, "--to", deployed.path),
        *("--erase", "--keep-nodes", "--target", "0.1"),
        *("--min-rounds", "1", "--max-rounds", "1"),
    )
    assert asked.code == 0, asked.err
    assert files_with(trace, *places) == set()
    verified = call("verify", run.path / "unlearning" / "001" / "certificate.json")
    assert verified.code == 0, verified.err


def test_a_node_that_left_is_forgotten_on_the_others(
    hospital: Any, tmp_path: Path
) -> None:
    deployed, nodes = hospital
    there = jobs.run_deployed(parse(TEXT), deployed.path, tmp_path / "there")[0]
    fast = TEXT.replace("lr = 0.05", "lr = 0.2").replace("rounds = 2", "rounds = 1")
    too_fast = jobs.run_deployed(parse(fast), deployed.path, tmp_path / "fast")[0]
    nodes[LEAVES].send_signal(signal.SIGTERM)
    assert nodes[LEAVES].wait(60) == 0
    before = journal(deployed, LEAVES)
    (here,) = run_experiment(parse(TEXT), tmp_path / "here")
    for method, held_out in (("sifu", False), ("scratch", True)):
        options = {**REQUEST, "method": method, "held_out": held_out}
        made = jobs.unlearn_deployed(
            there.path,
            deployed.path,
            UnlearnRequest(clients=(LEAVES,), **options, out=str(tmp_path / method)),
        )
        local = poise.unlearn(
            here, [LEAVES], **options, out=tmp_path / f"local-{method}"
        )
        assert (made.restart, made.rounds, made.reached) == (local.restart, 1, True)
        assert (made.restart[1] > 0) == (method == "sifu")
        assert (
            np.abs(np.asarray(made.run.model) - np.asarray(local.run.model)).max()
            <= 1e-6
        )
        assert made.path is not None
        found = call("verify", made.path, "--run", there.path)
        assert found.code == 0, found.err
        grounds = made.certificate["grounds"]
        assert grounds["not proved"] == []
        assert made.certificate["guarantee"]["promised"] is True
        if method == "sifu":
            assert grounds["checked"] == local.certificate["grounds"]["checked"]
            assert grounds["checked"]["eta L"] <= 1
    to = ("--to", deployed.path, "--client", LEAVES)
    refused = call("deploy", "unlearn", too_fast.path, *to)
    assert refused.code == 2
    assert "eta = 0.2 is above 1/L" in refused.err
    assert journal(deployed, LEAVES) == before
    stays = journal(deployed, 3)
    assert {line["kind"] for line in before} == {"hello", "curvature", "work"}
    assert {line["kind"] for line in stays if line["time"] > before[-1]["time"]} >= {
        "hello",
        "work",
        "measure",
    }


def test_a_node_that_lies_is_found_and_its_weight_is_gone(
    hospital: Any, tmp_path: Path
) -> None:
    deployed, nodes = hospital
    if nodes[LEAVES].poll() is None:
        nodes[LEAVES].send_signal(signal.SIGTERM)
    file = deployed.node(LIES) / "node.toml"
    file.write_text(
        tomli_w.dumps(
            {**read_toml(file), "attack": {"name": "free-rider"}, "delay": 0.5}
        )
    )
    text = TEXT.replace("[task]", f"without = [{LEAVES}]\n[task]")
    text = text.replace("rounds = 2", 'rounds = 3\naudit = "quarantine"')
    with pytest.warns(UserWarning, match="is quarantined"):
        run = jobs.run_deployed(parse(text), deployed.path, tmp_path / "lied")[0]
    assert (run.weights[0] > 0).all()
    assert run.weights[-1, LIES] == 0
    found = call("audit", run.path, "--json", "--out", tmp_path / "audit.html")
    assert json.loads(found.out)["runs"][0]["suspects"] == [LIES], found.err
    assert os.path.getsize(tmp_path / "audit.html") > 1000
    with pytest.warns(UserWarning, match="is quarantined"):
        here = run_experiment(
            parse(text + f'\n[[attacks]]\nname = "free-rider"\nclients = [{LIES}]\n'),
            None,
        )
    assert np.abs(np.asarray(run.model) - np.asarray(here[0].model)).max() <= 1e-6
