"""The same experiment in one process and on four real nodes: TLS, keys, policies, killed nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import poise
from backends.support import TEXT, First, serving
from poise.apps.deploy import control, jobs
from poise.apps.deploy.certificates import make_node_key
from poise.apps.deploy.folder import Deployment, free_ports, make_deployment, read_toml
from poise.apps.deploy.policy import Policy
from poise.apps.deploy.programs import supernode
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import Experiment, load, parse
from poise.core.errors import PoiseError
from poise.evidence.countersign import node_keys, signed_contributions

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]


def both(
    deployed: Deployment, out: Path, experiment: Experiment, **more: Any
) -> tuple[Any, Any]:
    """The run on nodes, and the same one here."""
    there = jobs.run_deployed(experiment, deployed.path, out, **more)[0]
    return there, run_experiment(experiment, None)[0]


def test_a_rule_ends_a_run_on_nodes_after_the_same_round(
    deployed: Deployment, tmp_path: Path
) -> None:
    longer = TEXT.replace("rounds = 2", "rounds = 5")
    accuracy = run_experiment(parse(longer), None)[0].metric("accuracy")
    bound = float(accuracy[:2].max() + accuracy[2]) / 2  # met after three rounds
    assert accuracy[:2].max() < bound < accuracy[2]
    text = longer.replace("[run]", f'[run]\nstop_when = "accuracy >= {bound}"')
    there, here = both(deployed, tmp_path / "out", parse(text))
    assert (there.rounds, here.rounds) == (3, 3)
    assert there.ending == here.ending
    assert there.meta["status"] == "done"


def test_the_same_model_as_in_one_process(deployed: Deployment, first: First) -> None:
    there, here = first.run, run_experiment(parse(TEXT), None)[0]
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    assert np.allclose(there.weights, here.weights, atol=1e-6)
    assert np.allclose(there.metric("accuracy"), here.metric("accuracy"), atol=1e-6)
    assert there.meta["status"] == "done"
    assert poise.open_run(there.path).rounds == 2
    lines = [
        json.loads(line)
        for line in (deployed.node(1) / "journal.jsonl").read_text().splitlines()
    ]
    kinds = [line["kind"] for line in lines[:4]]
    assert kinds == ["hello", "curvature", "work", "work"]
    assert "curvature = false" in lines[1]["refused"]
    assert set(lines[2]["left"]) == {
        "alters",
        "boot",
        "client",
        "loss_before",
        "nonce",
        "occurrences",
        "samples",
        "signature",
        "steps",
        "versions",
    }


def test_every_node_signs_what_it_contributes(
    deployed: Deployment, first: First
) -> None:
    run = first.run
    keys = node_keys(deployed.path)
    signed = signed_contributions(run.path, keys)
    contributed = {
        (int(c["client"]), int(c["version"]), int(c["occurrence"]))
        for c in run.contributions
    }
    assert contributed <= signed
    known = json.loads(run.meta["node keys"])
    assert known == {str(c): key.fingerprint for c, key in keys.items()}


def test_a_policy_refusal_reaches_the_server_in_words(
    deployed: Deployment, tmp_path: Path
) -> None:
    file = deployed.node(2) / "policy.toml"
    before = file.read_text()
    file.write_text(
        before.replace(f"max_steps = {Policy().max_steps}", "max_steps = 3")
    )
    try:
        with pytest.raises(
            PoiseError,
            match=r"client 2 does not take part: its policy .* local steps \(at most 3\)",
        ):
            jobs.run_deployed(parse(TEXT), deployed.path, tmp_path / "out")
    finally:
        file.write_text(before)
    refused = [
        json.loads(line)
        for line in (deployed.node(2) / "journal.jsonl").read_text().splitlines()
    ][-1]
    assert "at most 3" in refused["refused"]
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_node_the_superlink_and_the_server_are_killed_and_nothing_is_lost(
    deployed: Deployment, tmp_path: Path
) -> None:
    """In the middle of round 1 a node and the SuperLink, after it the server; then the run is taken
    up again."""
    victims = [
        deployed.state()["processes"][name]["pid"] for name in ("node-1", "superlink")
    ]
    experiment = parse(TEXT.replace("rounds = 2", "rounds = 3"))

    def kill(line: Mapping[str, Any]) -> None:
        if line["round"] == 0:  # the work of round 1 is asked for in this moment
            for victim in victims:
                threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()
        else:
            os.kill(serving(deployed)[0], signal.SIGKILL)

    with pytest.raises(control.DeploymentFailed, match="ended without a message"):
        jobs.run_deployed(experiment, deployed.path, tmp_path / "out", observe=kill)
    there = jobs.resume_deployed(tmp_path / "out" / "seed-0", deployed.path)
    here = run_experiment(experiment, None)[0]
    assert (there.rounds, there.refusals, there.meta["status"]) == (3, [], "done")
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    now = deployed.state()["processes"]
    assert all(now[name]["starts"] >= 2 for name in ("node-1", "superlink"))
    assert now["node-1"]["pid"] != victims[0]


@pytest.mark.long
def test_a_node_killed_in_the_middle_of_a_round_comes_back(
    deployed: Deployment, tmp_path: Path
) -> None:
    victim = deployed.state()["processes"]["node-1"]["pid"]

    def kill(line: Mapping[str, Any]) -> None:
        if line["round"] == 0:  # the work of round 1 is asked for in this moment
            threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()

    there, here = both(deployed, tmp_path / "out", parse(TEXT), observe=kill)
    assert there.rounds == 2
    assert there.refusals == []
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    now = deployed.state()["processes"]["node-1"]
    assert (
        now["starts"] >= 2
    )  # Flower lets a key in again only after its lease has ended
    assert now["pid"] != victim


@pytest.mark.long
def test_a_run_whose_server_was_killed_goes_on(
    deployed: Deployment, tmp_path: Path
) -> None:
    def kill(line: Mapping[str, Any]) -> None:
        os.kill(serving(deployed)[0], signal.SIGKILL)

    experiment = parse(TEXT)
    with pytest.raises(control.DeploymentFailed, match="ended without a message"):
        jobs.run_deployed(experiment, deployed.path, tmp_path / "out", observe=kill)
    there = jobs.resume_deployed(tmp_path / "out" / "seed-0", deployed.path)
    here = run_experiment(experiment, None)[0]
    assert (there.rounds, there.meta["status"]) == (2, "done")
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


@pytest.mark.long
def test_a_killed_superlink_comes_back_and_the_run_ends(
    deployed: Deployment, tmp_path: Path
) -> None:
    victim = deployed.state()["processes"]["superlink"]["pid"]

    def kill(line: Mapping[str, Any]) -> None:
        if line["round"] == 0:
            threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()

    there, here = both(deployed, tmp_path / "out", parse(TEXT), observe=kill)
    assert (there.rounds, there.refusals) == (2, [])
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    assert deployed.state()["processes"]["superlink"]["starts"] >= 2


def test_a_node_with_a_wrong_key_or_certificate_is_not_let_in(
    deployed: Deployment, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    for stranger in (key, certificate):
        shutil.copytree(deployed.node(2), stranger)
    for file in ("node.key", "node.pub"):  # one that nobody registered
        (key / file).unlink()
    make_node_key(key)
    other = make_deployment(
        tmp_path / "other", 1, {"source": "digits"}
    )  # whose authority this server does not have
    shutil.copy(other.server / "ca.crt", certificate / "ca.crt")
    children = [
        supernode(stranger, deployed.path, tmp_path / f"{stranger.name}.log")
        for stranger in (key, certificate)
    ]
    for child in children:
        port = str(read_toml(key / "node.toml")["port"])
        child.command = [
            str(free_ports(1)[0]) if word == port else word for word in child.command
        ]
        child.tend()
    for child in children:
        assert child.process is not None
        try:
            child.process.wait(30)
        except subprocess.TimeoutExpired:
            child.signal(signal.SIGKILL)
            child.process.wait(10)
        assert "SuperNode ID" not in child.log.read_text()
    assert set(control.status(deployed.path)["nodes"].values()) == {"online"}


FILES = """
[data]
source = "nodes"
test = "held-out.npz"
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
epochs = 1
batch_size = 8
[run]
rounds = 1
metrics = ["client_loss"]
"""


@pytest.mark.long
def test_nodes_that_run_by_themselves_on_their_own_files(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    rows = [np.arange(0, 20), np.arange(20, 60)]
    made = make_deployment(tmp_path / "two", 2, {"source": "digits"})
    np.savez(tmp_path / "held-out.npz", x=x[60:], y=y[60:])
    (tmp_path / "exp.toml").write_text(FILES)
    here = poise.train(
        poise.federation((x[:60], y[:60]), rows, 2, test=(x[60:], y[60:])),
        poise.task("logistic"),
        solver=poise.solvers.SGD(lr=0.1, epochs=1, batch_size=8),
        rounds=1,
        metrics=["client_loss"],
    )
    for client, mine in enumerate(rows):
        folder = made.node(client)
        np.savez(folder / "mine.npz", x=x[mine], y=y[mine])
        table = {
            **read_toml(folder / "node.toml"),
            "data": {"file": "mine.npz", "classes": 2},
        }
        (folder / "node.toml").write_text(tomli_w.dumps(table))
        (folder / "policy.toml").write_text(tomli_w.dumps(Policy(metrics=True).table()))
    verb = [
        sys.executable,
        "-c",
        "from poise.apps.cli import main; main()",
        "deploy",
        "node",
    ]
    control.up(made.path, nodes=False, seconds=300)
    nodes = [
        subprocess.Popen([*verb, str(made.node(k))], stderr=subprocess.DEVNULL)
        for k in range(2)
    ]
    try:
        there = jobs.run_deployed(
            load(tmp_path / "exp.toml"), made.path, tmp_path / "out"
        )[0]
    finally:
        for node in nodes:
            node.terminate()
        assert [node.wait(30) for node in nodes] == [0, 0]
        control.down(made.path)
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    for name in ("accuracy", "client_loss"):
        assert np.allclose(there.metric(name), here.metric(name), atol=1e-6), name
