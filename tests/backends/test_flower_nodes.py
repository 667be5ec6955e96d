"""The backend of real nodes, with nodes in this process: the contract, recorded refusals, nodes that go away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.backends import Flower, post
from poise.backends.letters import Letter, Parcel
from poise.backends.post import Post, connected
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError, UpdateRefused
from poise.deploy.holding import Holding
from poise.deploy.node import answer
from poise.deploy.policy import Policy
from poise.deploy.remote import Remote, check_registered
from poise.deploy.server import Job, registered_federation
from poise.experiments.spec import parse
from poise.testing import check_backend
from poise.testing.clauses import SIZES
from poise.testing.federations import SampleFederation

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

N = 4
TASK = {"model": "logistic"}
SGD = poise.solvers.SGD(lr=0.1, epochs=1, batch_size=16)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "PAUSE", 0.0)


@dataclass
class Nodes:
    """A Grid whose nodes are functions; ``forge(client, reply)`` is what they send instead."""

    holdings: list[Holding]
    policy: Policy = field(default_factory=Policy)
    forge: Callable[[int, Letter], Letter | int] = lambda client, reply: reply
    away: list[int] = field(default_factory=list)
    sent: list[tuple[int, Letter]] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return [100 + h.client for h in self.holdings if h.client not in self.away]

    def create_message(self, content: Any, kind: str, node: int, group: str, ttl: float) -> Any:
        assert kind.startswith("query.")
        assert ttl > 0
        return SimpleNamespace(metadata=SimpleNamespace(src_node_id=0, dst_node_id=node), content=content)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        begin = len(self.sent)
        self.sent += [(message.metadata.dst_node_id - 100, Letter.read(message)) for message in messages]
        return [str(k) for k in range(begin, len(self.sent))]

    def pull_messages(self, ids: Iterable[str]) -> list[Any]:
        return [self._reply(name, *self.sent[int(name)]) for name in ids]

    def _reply(self, name: str, client: int, letter: Letter) -> Any:
        try:
            made = answer(letter, self.holdings[client], self.policy)
        except PoiseError as error:
            made = Letter({"nonce": letter.facts["nonce"], "refused": str(error)})
        reply = self.forge(client, made)
        metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=100 + client)
        if isinstance(reply, int):
            error = SimpleNamespace(code=reply, reason="gone")
            return SimpleNamespace(metadata=metadata, has_error=lambda: True, error=error)
        return SimpleNamespace(metadata=metadata, has_error=lambda: False, content=reply.content())


def federation() -> Any:
    return poise.federation("digits", "dirichlet", clients=N, alpha=0.5, samples=400)


def nodes(**more: Any) -> Nodes:
    fed = federation()
    return Nodes([Holding(c, fed.shards([c])) for c in range(N)], **more)


def trained(grid: Nodes, **more: Any) -> Any:
    fed = federation()
    remote = Remote([h.facts() for h in grid.holdings], "size", fed.test_shard, fed.spec)
    way = Post(grid, {h.client: 100 + h.client for h in grid.holdings}, "run", TASK)
    options = {"solver": SGD, "rounds": 3, "backend": Flower(patience=5.0), "bad_updates": "drop", **more}
    with connected(way):
        return poise.train(remote, poise.task(**TASK), **options)


def test_the_contract() -> None:
    fed = SampleFederation.random(SIZES, seed=3)
    grid = Nodes([Holding(c, fed.shards(np.array([c]))) for c in range(len(SIZES))], Policy(metrics=True))
    task = {"model": "mlp", "hidden": 4, "dtype": "float64"}
    with connected(Post(grid, {c: 100 + c for c in range(len(SIZES))}, "run", task)):
        check_backend(Flower())


def test_the_same_run_as_in_one_process() -> None:
    losses = {"weighting": poise.weightings.SoftMax(temperature=2.0)}
    there = trained(nodes(), **losses)
    here = poise.train(federation(), poise.task(**TASK), solver=SGD, rounds=3, **losses)
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    assert np.allclose(there.weights, here.weights, atol=1e-6)


def nan(client: int, reply: Letter) -> Letter:
    return replace(reply, parcels={"0": Parcel.of(torch.full((650,), float("nan")))}) if client == 1 else reply


def greedy(client: int, reply: Letter) -> Letter:
    return replace(reply, facts={**reply.facts, "samples": 10**9}) if client == 1 else reply


@pytest.mark.parametrize(("forge", "words"), [(nan, "not finite"), (greedy, "samples 1000000000 instead of")])
def test_a_forged_reply_is_recorded_and_the_round_goes_on(forge: Any, words: str) -> None:
    run = trained(nodes(forge=forge))
    assert run.rounds == 3
    assert [(n, client) for n, client, _ in run.refusals] == [(0, 1), (1, 1), (2, 1)]
    assert all(words in reason for *_, reason in run.refusals)
    assert (run.weights[:, 1] == 0).all()
    assert np.isfinite(run.model).all()


def test_bad_updates_may_stop_the_run() -> None:
    with pytest.raises(UpdateRefused, match="round 0: client 1 sent an update that is not finite"):
        trained(nodes(forge=nan), bad_updates="stop")


def test_an_old_reply_is_refused() -> None:
    first: list[Letter] = []

    def replay(client: int, reply: Letter) -> Letter:
        if client != 2:
            return reply
        first.append(reply)
        return first[0]

    run = trained(nodes(forge=replay))
    assert run.refusals == [(1, 2, "an old reply once more"), (2, 2, "an old reply once more")]


def test_work_is_asked_for_again_after_a_node_was_away() -> None:
    lost = [5, 5, 8]

    def gone(client: int, reply: Letter) -> Letter | int:
        return lost.pop() if client == 3 and lost else reply

    run = trained(nodes(forge=gone))
    assert (run.refusals, lost) == ([], [])
    assert np.array_equal(run.model, trained(nodes()).model)


def test_a_node_that_never_answers_is_named() -> None:
    run = trained(nodes(away=[0]), rounds=1, backend=Flower(patience=0.2))
    assert run.refusals == [(0, 0, "nothing within 0.2 seconds")]
    crashing = trained(nodes(forge=lambda client, reply: 8 if client == 0 else reply), rounds=1)
    assert crashing.refusals == [(0, 0, "error 8 of its node: gone")]


def test_a_policy_is_felt_in_the_round() -> None:
    run = trained(nodes(policy=Policy(max_steps=1)), rounds=1)
    assert len(run.refusals) == N
    assert "a refusal: its policy does not allow" in run.refusals[0][2]


def test_metrics_of_the_clients_data_only_where_policies_allow() -> None:
    with pytest.raises(UpdateRefused, match="client 0 was asked for metrics and sent a refusal: its policy"):
        trained(nodes(), metrics=["client_loss"])
    there = trained(nodes(policy=Policy(metrics=True)), metrics=["client_loss", "train_accuracy"])
    here = poise.train(
        federation(), poise.task(**TASK), solver=SGD, rounds=3, metrics=["client_loss", "train_accuracy"]
    )
    for name in ("client_loss", "train_accuracy", "accuracy"):
        assert np.allclose(there.metric(name), here.metric(name), atol=1e-6), name


def test_what_nodes_cannot_do_is_refused() -> None:
    with pytest.raises(IncompatibleParts, match="Scaffold: clients would keep state"):
        trained(nodes(), solver=poise.solvers.Scaffold(lr=0.1, steps=1))
    with pytest.raises(IncompatibleParts, match="the data of client 0 are on its node"):
        trained(nodes(), weighting=poise.weightings.Adjacency())
    with pytest.raises(InvalidOption, match="works with the nodes of a deployment"):
        poise.train(federation(), poise.task(**TASK), solver=SGD, rounds=1, backend="flower")


def test_nodes_that_do_not_fit_are_named() -> None:
    facts = [h.facts() for h in nodes().holdings]
    with pytest.raises(InvalidOption, match=r"client 2 has samples of shape \[3\]"):
        check_registered([*facts[:2], {**facts[2], "shape": [3]}], None)
    with pytest.raises(InvalidOption, match="client 1 registered -5 samples"):
        check_registered([facts[0], {**facts[1], "samples": -5}], None)
    spec = {"source": "digits", "seed": 0, "importance": "size"}
    check_registered([{**facts[0], "data": {**spec, "client": 0, "importance": "equal"}}], spec)
    with pytest.raises(InvalidOption, match="seed = 0, but client 0's node holds seed = 1"):
        check_registered([{**facts[0], "data": {**spec, "client": 0, "seed": 1}}], spec)


BEGINS = """
[data]
source = "nodes"
test = "held-out.npz"
importance = "equal"
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 3
[run]
rounds = 1
"""


def test_what_the_server_learns_when_a_run_begins(tmp_path: Path) -> None:
    fed, grid = federation(), nodes()
    x, y = fed.test
    np.savez(tmp_path / "held-out.npz", x=x, y=y)
    way = Post(grid, {c: 100 + c for c in range(N)}, "run", TASK)
    experiment = parse(BEGINS, tmp_path / "exp.toml")
    found = registered_federation(experiment, 0, way, 5.0)
    assert found.sizes.tolist() == fed.sizes.tolist()
    assert found.importance.tolist() == [0.25] * N
    assert found.spec["test"] == str(tmp_path / "held-out.npz")
    assert len(found.test_shard.rows) == len(y)
    assert len(found.shards(np.array([0, 1])).rows) == 0
    with pytest.raises(InvalidOption, match=r"client 0 registered \d+ samples, and can have 3"):
        registered_federation(parse(BEGINS.replace("[task]", "max_samples = 3\n[task]")), 0, way, 5.0)
    with pytest.raises(InvalidOption, match="client 1 registered 1000000000 samples, and can have 1000000"):
        registered_federation(experiment, 0, replace(way, grid=nodes(forge=greedy)), 5.0)
    grid.policy = Policy(max_steps=2)
    with pytest.raises(UpdateRefused, match=r"client 0 does not take part: its policy does not allow 3 local steps"):
        registered_federation(experiment, 0, way, 5.0)
    other = parse(BEGINS.replace('"nodes"', '"digits"').replace('test = "held-out.npz"', "clients = 3"), tmp_path / "e")
    with pytest.raises(InvalidOption, match="clients = 3, but the deployment has 4 nodes"):
        registered_federation(other, 0, way, 5.0)
    with pytest.raises(UpdateRefused, match="client 2 does not take part: nothing within"):
        registered_federation(experiment, 0, replace(way, grid=nodes(away=[2])), 0.2)


def test_a_job_is_stopped_and_goes_on(tmp_path: Path) -> None:
    fed = federation()
    held_out = dict(zip("xy", fed.test, strict=True))
    np.savez(tmp_path / "held-out.npz", **held_out)
    text = BEGINS.replace("rounds = 1", "rounds = 3")
    order = {"text": text, "file": str(tmp_path / "exp.toml"), "set": ["solver.steps=2"], "seeds": [5],
             "out": str(tmp_path / "out")}  # fmt: skip
    first, second = Job(tmp_path / "a.json"), Job(tmp_path / "b.json")
    first.file.write_text(json.dumps(order))

    def stop(client: int, reply: Letter) -> Letter:
        if "steps" in reply.facts:
            first.file.with_suffix(".stop").touch()
        return reply

    way = Post(nodes(forge=stop), {c: 100 + c for c in range(N)}, "run")
    (path,) = first.do(way)
    stopped = poise.open_run(path)
    assert (path.name, stopped.rounds, stopped.meta["status"]) == ("seed-5", 1, "stopped")
    second.file.write_text(json.dumps({"resume": str(path)}))
    assert second.do(way) == [path]
    whole = poise.open_run(path)
    assert (whole.rounds, whole.meta["status"]) == (3, "done")
    first.file.with_suffix(".stop").unlink()
    first.file.write_text(json.dumps({**order, "out": str(tmp_path / "again")}))
    (again,) = first.do(replace(way, grid=nodes()))
    assert poise.open_run(again).digest == whole.digest
    said = [json.loads(line) for line in first.file.with_suffix(".log").read_text().splitlines()]
    assert [line["round"] for line in said] == [0, 0, 1, 2]
