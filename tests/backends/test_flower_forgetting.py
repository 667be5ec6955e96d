"""Unlearning and auditing with nodes in this process: which nodes get which requests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from backends.test_flower_nodes import Nodes
from poise.apps.deploy.fault_injection import FILE, FaultInjection
from poise.apps.deploy.jobs import unlearn_deployed
from poise.apps.deploy.node import NodeContext, answer
from poise.apps.deploy.node_data import NodeData
from poise.apps.deploy.policy import Policy
from poise.apps.deploy.server import DeployedJob, registered_federation
from poise.apps.experiments.runner import run_experiment
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage
from poise.backends.flower.transport import Transport
from poise.config.experiment import parse
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    PoiseError,
    UpdateRefused,
)
from poise.unlearning.fulfilment import outcome

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

N, GONE = 4, 2
TEXT = """
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.5
clients = 4
samples = 400
seed = 0
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.05
steps = 3
batch_size = 16
[run]
rounds = 6
keep = "all"
"""
OPTIONS: dict[str, Any] = {
    "method": "sifu",
    "sigma": 0.05,
    "target": 0.3,
    "min_rounds": 3,
    "max_rounds": 4,
    "out": None,
    "held_out": False,
    "noise": "seeded",
}


def asked(clients: list[int], options: dict[str, Any]) -> dict[str, Any]:
    """A request as a job has it."""
    return UnlearnRequest(clients=tuple(clients), **options).table()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_transport, "PAUSE", 0.0)


@dataclass
class Trying(Nodes):
    """Nodes that measure, some of which lie."""

    fault_injections: dict[int, FaultInjection] = field(default_factory=dict)

    def _answered(self, client: int, request: NodeMessage) -> NodeMessage:
        return answer(
            request,
            NodeContext(
                self.node_data[client],
                self.policy,
                fault_injection=self.fault_injections.get(client, FaultInjection()),
            ),
        )


@dataclass
class Bureau:
    """Gives jobs to nodes."""

    folder: Path
    grid: Trying
    jobs: int = 0

    def do(self, **order: Any) -> Path:
        self.jobs += 1
        job = DeployedJob(self.folder / f"{self.jobs}.json")
        job.file.write_text(json.dumps(order))
        with job.logged_warnings():
            (made,) = job.run(
                Transport(self.grid, {c: 100 + c for c in range(N)}, f"job-{self.jobs}")
            )
        return made

    def run(self, name: str, text: str = TEXT) -> Path:
        return self.do(
            text=text,
            file=str(self.folder / "e.toml"),
            set=[],
            seeds=None,
            out=str(self.folder / name),
        )

    def said(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in (self.folder / f"{self.jobs}.log").read_text().splitlines()
        ]

    def asked(self) -> list[int]:
        """Which nodes were sent something since the last look."""
        found = sorted({client for client, _ in self.grid.sent})
        self.grid.sent.clear()
        return found


@pytest.fixture
def bureau(tmp_path: Path) -> Bureau:
    fed = poise.federation(
        "digits", "dirichlet", clients=N, alpha=0.5, samples=400, seed=0
    )
    held = [
        NodeData(c, fed.shards([c]), {**(fed.spec or {}), "client": c})
        for c in range(N)
    ]
    return Bureau(tmp_path, Trying(held, Policy(metrics=True, curvature=True)))


@pytest.mark.parametrize("method", ["sifu", "scratch"])
def test_the_same_as_forgetting_in_one_process(
    bureau: Bureau, tmp_path: Path, method: str
) -> None:
    there = bureau.run("there")
    assert bureau.asked() == [0, 1, 2, 3]
    bureau.grid.away.append(GONE)  # its owner has left, and takes the node along
    branch = bureau.do(
        unlearn=str(there), request=asked([GONE], {**OPTIONS, "method": method})
    )
    assert bureau.asked() == [0, 1, 3]
    (here,) = run_experiment(parse(TEXT), tmp_path / "here")
    local = poise.unlearn(here, [GONE], **{**OPTIONS, "method": method})
    made = outcome(poise.open_run(branch))
    assert (made.restart, made.rounds, made.reached) == (
        local.restart,
        local.rounds,
        local.reached,
    )
    assert (made.restart[1] > 0) == (
        method == "sifu"
    )  # else the two methods would be one here
    assert (
        np.abs(np.asarray(made.run.model) - np.asarray(local.run.model)).max() <= 1e-6
    )
    assert (
        np.abs(np.asarray(made.run.model) - np.asarray(made.run.models(0))).max() > 1e-3
    )
    assert made.run.array("members").tolist() == [0, 1, 3]
    assert np.allclose(
        made.run.metric("train_accuracy"), local.run.metric("train_accuracy"), atol=1e-6
    )
    assert (
        made.certificate["result"]["on remaining clients"]
        == made.run.metric("train_accuracy")[-1]
    )
    assert len(poise.unlearning.verify(branch / "certificate.json")) > 10
    assert poise.open_run(branch).experiment.count("without") == 1


def test_a_second_request_leaves_out_everyone_forgotten_so_far(
    bureau: Bureau, tmp_path: Path
) -> None:
    there = bureau.run("there")
    (here,) = run_experiment(parse(TEXT), tmp_path / "here")
    for client in (GONE, 0):
        bureau.asked()
        branch = bureau.do(unlearn=str(there), request=asked([client], OPTIONS))
        local = poise.unlearn(here, [client], **OPTIONS)
    assert bureau.asked() == [1, 3]
    made = outcome(poise.open_run(branch))
    assert made.certificate["forgotten so far"] == [0, 2]
    assert (
        np.abs(np.asarray(made.run.model) - np.asarray(local.run.model)).max() <= 1e-6
    )
    with pytest.raises(
        IncompatibleParts, match="belongs to an unlearning request"
    ) as caught:
        bureau.do(resume=str(branch))
    assert "poise deploy unlearn" in caught.value.hint


def test_an_interrupted_request_is_finished_without_the_forgotten(
    bureau: Bureau,
) -> None:
    there = bureau.run("there")
    whole = bureau.do(
        unlearn=str(there),
        request=asked([GONE], {**OPTIONS, "out": str(bureau.folder / "whole")}),
    )
    stop = bureau.folder / f"{bureau.jobs + 1}.stop"

    def stopping(client: int, reply: NodeMessage) -> NodeMessage:
        if "steps" in reply.facts:
            stop.touch()
        return reply

    bureau.grid.forge = stopping
    half = bureau.do(unlearn=str(there), request=asked([GONE], OPTIONS))
    assert outcome(poise.open_run(half)).certificate == {}
    bureau.asked()
    with pytest.raises(InvalidOption, match="is not finished"):
        bureau.do(unlearn=str(there), request=asked([0], OPTIONS))
    assert GONE not in bureau.asked()
    again = bureau.do(unlearn=str(there), request=asked([GONE], OPTIONS))
    assert again == half
    assert bureau.asked() == [0, 1, 3]
    assert np.array_equal(poise.open_run(again).model, poise.open_run(whole).model)


def test_policies_without_metrics_leave_the_held_out_data_to_aim_at(
    bureau: Bureau,
) -> None:
    there = bureau.run("there")
    bureau.grid.policy = Policy(metrics=False, curvature=True)
    with pytest.raises(
        UpdateRefused, match=r"client.* not take part: .*train_accuracy"
    ) as caught:
        bureau.do(unlearn=str(there), request=asked([GONE], OPTIONS))
    assert "--held-out" in caught.value.hint
    assert not (there / "unlearning" / "001").exists()
    options = {**OPTIONS, "held_out": True, "target": None, "min_rounds": 1}
    made = outcome(
        poise.open_run(bureau.do(unlearn=str(there), request=asked([GONE], options)))
    )
    result = made.certificate["result"]
    assert (result["score"], result["on remaining clients"]) == ("accuracy", None)
    assert result["on held-out data"] == made.run.metric("accuracy")[-1]
    assert made.certificate["request"]["target"] == pytest.approx(
        0.99 * poise.open_run(there).metric("accuracy")[-1]
    )
    poise.unlearning.verify(made.path)
    with pytest.raises(InvalidOption, match="no longer take part"):
        unlearn_deployed(
            there, bureau.folder, UnlearnRequest(clients=(0,), measure_forgotten=True)
        )


def test_nodes_that_hold_something_else_now_are_named(bureau: Bureau) -> None:
    there = bureau.run("there")
    fewer = poise.federation(
        "digits", "dirichlet", clients=N, alpha=0.5, samples=300, seed=0
    )
    bureau.grid.node_data[3] = NodeData(3, fewer.shards([3]))
    with pytest.raises(
        IncompatibleParts,
        match=r"client 3 has \d+ samples now, and had \d+ in the training",
    ):
        bureau.do(unlearn=str(there), request=asked([GONE], OPTIONS))
    with pytest.raises(InvalidOption, match="there is no client 9"):
        bureau.do(unlearn=str(there), request=asked([9], OPTIONS))


def test_a_run_without_some_clients_never_asks_them(bureau: Bureau) -> None:
    text = TEXT.replace("[task]", "without = [0, 2]\n[task]")
    bureau.grid.away += [0, 2]
    made = poise.open_run(bureau.run("two", text))
    assert bureau.asked() == [1, 3]
    (here,) = run_experiment(parse(text), None)
    assert np.abs(np.asarray(made.model) - np.asarray(here.model)).max() <= 1e-6
    assert made.array("members").tolist() == [1, 3]
    with pytest.raises(PoiseError, match="there is no client 7"):
        bureau.run("seven", TEXT.replace("[task]", "without = [7]\n[task]"))


def test_importance_is_given_for_all_nodes_and_kept_by_those_who_stay(
    bureau: Bureau,
) -> None:
    given = TEXT.replace(
        "[task]", "importance = [1.0, 2.0, 3.0, 4.0]\nwithout = [0]\n[task]"
    )
    transport = Transport(bureau.grid, {c: 100 + c for c in range(N)}, "run")
    found = registered_federation(parse(given), 0, transport, 5.0)
    assert found.importance.tolist() == [2 / 9, 3 / 9, 4 / 9]
    left = found.without([1])
    assert (left.members.tolist(), left.spec["without"], left.clients) == (
        [1, 3],
        [0, 2],
        2,
    )
    assert left.importance.tolist() == [2 / 6, 4 / 6]
    assert left.sizes.tolist() == [bureau.grid.node_data[c].samples for c in (1, 3)]
    assert len({found.digest(), left.digest(), found.without([0, 1]).digest()}) == 3
    with pytest.raises(InvalidOption, match="no client of 3 would be left"):
        found.without([0, 1, 2])
    with pytest.raises(InvalidOption, match="there is no client 3"):
        found.without([3])


def test_a_client_may_leave_a_run_that_another_had_left_before(
    bureau: Bureau, tmp_path: Path
) -> None:
    text = TEXT.replace("[task]", "without = [0]\n[task]")
    there = bureau.run("three", text)
    bureau.asked()
    branch = bureau.do(
        unlearn=str(there), request=asked([1], OPTIONS)
    )  # client 1 of this run is node 2
    assert bureau.asked() == [1, 3]
    (here,) = run_experiment(parse(text), tmp_path / "here")
    local = poise.unlearn(here, [1], **OPTIONS)
    made = outcome(poise.open_run(branch))
    assert made.restart == local.restart
    assert (
        np.abs(np.asarray(made.run.model) - np.asarray(local.run.model)).max() <= 1e-6
    )
    assert made.run.array("members").tolist() == [1, 3]
    poise.unlearning.verify(made.path)
    poise.unlearning.verify(local.path)


def test_each_kind_of_run_is_forgotten_in_its_own_way(
    bureau: Bureau, tmp_path: Path
) -> None:
    there = bureau.run("there")
    with pytest.raises(InvalidOption, match="nodes of a deployment") as caught:
        poise.unlearn(there, [GONE], **OPTIONS)
    assert "poise deploy unlearn" in caught.value.hint
    assert not (there / "unlearning" / "001").exists()
    (here,) = run_experiment(parse(TEXT), tmp_path / "here")
    with pytest.raises(InvalidOption, match="was not trained on nodes"):
        bureau.do(unlearn=str(here.path), request=asked([GONE], OPTIONS))


LIAR = 1


@pytest.mark.parametrize(
    "table", [{"name": "free-rider", "kind": "disguised"}, {"name": "stale-replay"}]
)
def test_a_node_that_lies_is_found(bureau: Bureau, table: dict[str, Any]) -> None:
    bureau.grid.fault_injections[LIAR] = FaultInjection.of(
        {"client": LIAR, "attack": table}, bureau.folder
    )
    text = TEXT.replace("rounds = 6", 'rounds = 25\naudit = "quarantine"')
    run = poise.open_run(bureau.run("lied", text))
    assert poise.audit(run).suspects == [LIAR]
    assert run.weights[0, LIAR] > 0
    assert run.weights[-1, LIAR] == 0
    assert any(f"client {LIAR} is quarantined" in event for event in run.events)
    assert any(
        f"client {LIAR} is quarantined" in line.get("warning", "")
        for line in bureau.said()
    )
    assert (bureau.folder / FILE).exists()
    del bureau.grid.fault_injections[LIAR]
    assert poise.audit(poise.open_run(bureau.run("honest", text))).suspects == []


def test_a_lying_node_sends_what_the_attack_says_in_a_simulation(
    bureau: Bureau, tmp_path: Path
) -> None:
    bureau.grid.fault_injections[LIAR] = FaultInjection.of(
        {"client": LIAR, "attack": {"name": "stale-replay", "seed": 0}}, tmp_path
    )
    lied = TEXT + f'\n[[attacks]]\nname = "stale-replay"\nclients = [{LIAR}]\n'
    (here,) = run_experiment(parse(lied), None)
    first = poise.open_run(bureau.run("first"))
    assert np.abs(np.asarray(first.model) - np.asarray(here.model)).max() <= 1e-6
    second = poise.open_run(
        bureau.run("second")
    )  # what it put aside in the first run is not used in the second
    assert np.array_equal(second.model, first.model)


def test_lies_go_through_the_policy_too(bureau: Bureau, tmp_path: Path) -> None:
    bureau.grid.fault_injections[LIAR] = FaultInjection.of(
        {"client": LIAR, "attack": {"name": "scaled", "fraction": 1e6}}, tmp_path
    )
    bureau.grid.policy = Policy(clip=0.25)
    run = poise.open_run(bureau.run("clipped"))
    assert run.contributions["norm"].max() == pytest.approx(0.25, rel=1e-5)


def test_mistakes_in_a_trial(tmp_path: Path) -> None:
    assert FaultInjection.of({"client": 0, "delay": 2}, tmp_path).delay == 2
    with pytest.raises(InvalidOption, match="delay must be a number of seconds"):
        FaultInjection.of({"client": 0, "delay": -1.0}, tmp_path)
    with pytest.raises(InvalidOption, match="free-ride"):
        FaultInjection.of({"client": 0, "attack": {"name": "free-ride"}}, tmp_path)
    with pytest.raises(InvalidOption, match="seed must be a whole number"):
        FaultInjection.of(
            {"client": 0, "attack": {"name": "mimic", "seed": "x"}}, tmp_path
        )
