"""The backend ``flower`` with nodes in this process: contract, refusals, nodes that go offline."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.apps.deploy.client_state_store import ClientStateStore
from poise.apps.deploy.node import NodeContext, answer
from poise.apps.deploy.node_data import NodeData
from poise.apps.deploy.policy import Policy
from poise.apps.deploy.registration import registered_federation
from poise.apps.deploy.remote_federation import Remote, check_registered
from poise.apps.deploy.server import DeployedJob
from poise.backends import Flower
from poise.backends.flower import nodes as flower_nodes
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.transport import Transport, connected
from poise.config.experiment import parse
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    PoiseError,
    UpdateRefused,
)
from poise.testing import check_backend
from poise.testing.clauses import SIZES
from poise.testing.federations import SampleFederation

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

N = 4
TASK = {"model": "logistic"}
SGD = poise.solvers.SGD(lr=0.1, epochs=1, batch_size=16)


class Hours:
    """A clock that moves when somebody sleeps, and a little whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


HOURS = Hours()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flower_transport, flower_nodes):
        monkeypatch.setattr(module, "time", HOURS)


@dataclass
class Nodes:
    """A Grid whose nodes are functions; ``forge(client, reply)`` is what they send instead."""

    node_data: list[NodeData]
    policy: Policy = field(default_factory=Policy)
    forge: Callable[[int, NodeMessage], NodeMessage | int] = lambda client, reply: reply
    away: list[int] = field(default_factory=list)
    stores: dict[int, ClientStateStore] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)  # by client: seconds
    sent: list[tuple[int, NodeMessage]] = field(default_factory=list)
    due: dict[str, float] = field(default_factory=dict)

    def get_node_ids(self) -> list[int]:
        return [100 + h.client for h in self.node_data if h.client not in self.away]

    def create_message(
        self, content: Any, kind: str, node: int, group: str, ttl: float
    ) -> Any:
        assert kind.startswith("query.")
        assert ttl > 0
        return SimpleNamespace(
            metadata=SimpleNamespace(src_node_id=0, dst_node_id=node), content=content
        )

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        begin = len(self.sent)
        self.sent += [
            (message.metadata.dst_node_id - 100, NodeMessage.read(message))
            for message in messages
        ]
        return [str(k) for k in range(begin, len(self.sent))]

    def pull_messages(self, ids: Iterable[str]) -> list[Any]:
        now = HOURS.monotonic()
        self.due |= {
            name: now + self.slow.get(self.sent[int(name)][0], 0.0)
            for name in ids
            if name not in self.due
        }
        return [
            self._reply(name, *self.sent[int(name)])
            for name in ids
            if self.due[name] <= now
        ]

    def _answered(self, client: int, request: NodeMessage) -> NodeMessage:
        store = self.stores.setdefault(client, ClientStateStore())
        return answer(request, NodeContext(self.node_data[client], self.policy, store))

    def _reply(self, name: str, client: int, request: NodeMessage) -> Any:
        try:
            made = self._answered(client, request)
        except PoiseError as error:
            made = NodeMessage({"nonce": request.facts["nonce"], "refused": str(error)})
        reply = self.forge(client, made)
        metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=100 + client)
        if isinstance(reply, int):
            error = SimpleNamespace(code=reply, reason="gone")
            return SimpleNamespace(
                metadata=metadata, has_error=lambda: True, error=error
            )
        return SimpleNamespace(
            metadata=metadata, has_error=lambda: False, content=reply.content()
        )


def federation() -> Any:
    return poise.federation("digits", "dirichlet", clients=N, alpha=0.5, samples=400)


def nodes(**more: Any) -> Nodes:
    fed = federation()
    return Nodes([NodeData(c, fed.shards([c])) for c in range(N)], **more)


def trained(grid: Nodes, **more: Any) -> Any:
    fed = federation()
    alters = {"alters": grid.policy.alters}
    registered = [{**h.facts(), **alters} for h in grid.node_data]
    remote = Remote(registered, "size", fed.test_shard, fed.spec)
    task = more.pop("task", TASK)
    transport = Transport(
        grid, {h.client: 100 + h.client for h in grid.node_data}, "run", task, "a" * 32
    )
    options = {
        "solver": SGD,
        "rounds": 3,
        "backend": Flower(patience=5.0),
        "bad_updates": "drop",
        **more,
    }
    with connected(transport):
        return poise.train(remote, poise.task(**task), **options)


def test_the_contract() -> None:
    fed = SampleFederation.random(SIZES, seed=3)
    grid = Nodes(
        [NodeData(c, fed.shards(np.array([c]))) for c in range(len(SIZES))],
        Policy(metrics=True),
    )
    task = {"model": "mlp", "hidden": 4, "dtype": "float64"}
    with connected(
        Transport(grid, {c: 100 + c for c in range(len(SIZES))}, "run", task)
    ):
        check_backend(Flower())


def test_the_same_run_as_in_one_process() -> None:
    losses = {"weighting": poise.weightings.SoftMax(temperature=2.0)}
    there = trained(nodes(), **losses)
    here = poise.train(federation(), poise.task(**TASK), solver=SGD, rounds=3, **losses)
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    assert np.allclose(there.weights, here.weights, atol=1e-6)


ANY = Policy(solvers=("feddyn", "scaffold", "sgd"), metrics=True)


@pytest.mark.parametrize(
    "solver",
    [
        poise.solvers.Scaffold(lr=0.1, steps=3, batch_size=16),
        poise.solvers.FedDyn(lr=0.1, steps=3, alpha=0.1),
    ],
)
def test_what_clients_remember_stays_on_their_nodes(
    solver: Any, tmp_path: Path
) -> None:
    sampler = poise.samplers.Uniform(2)
    here = poise.train(
        federation(), poise.task(**TASK), solver=solver, sampler=sampler, rounds=5
    )
    lost = [5, 8, 5]

    def gone(
        client: int, reply: NodeMessage
    ) -> NodeMessage | int:  # work is done, its answer lost: it is asked for once more
        return lost.pop() if client == 2 and lost else reply

    stores = {c: ClientStateStore(tmp_path / str(c)) for c in range(N)}
    there = trained(
        nodes(policy=ANY, forge=gone, stores=stores),
        solver=solver,
        sampler=sampler,
        rounds=5,
    )
    assert lost == []
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    last = {
        c: int(np.flatnonzero(there.weights[:, c])[-1])
        for c in range(N)
        if there.weights[:, c].any()
    }
    kept = {
        c: sorted(int(f.stem) for f in (tmp_path / str(c)).rglob("*.safetensors"))
        for c in last
    }
    assert {c: versions[-1] for c, versions in kept.items()} == last


def test_a_refused_update_does_not_change_what_its_client_remembers() -> None:
    solver = poise.solvers.Scaffold(lr=0.1, steps=3, batch_size=16)
    rounds: list[int] = []

    def once(client: int, reply: NodeMessage) -> NodeMessage:
        rounds.append(client)
        return nan(client, reply) if client == 1 and rounds.count(1) == 2 else reply

    grid = nodes(policy=ANY, forge=once)
    run = trained(grid, solver=solver, rounds=4)
    assert [(n, c) for n, c, _ in run.refusals] == [(1, 1)]
    asked = [request.facts["held"] for client, request in grid.sent if client == 1]
    assert asked == [-1, 0, 0, 2]


def test_states_that_never_counted_do_not_pile_up(tmp_path: Path) -> None:
    stores = {c: ClientStateStore(tmp_path / str(c)) for c in range(N)}
    solver = poise.solvers.Scaffold(lr=0.1, steps=3, batch_size=16)
    trained(nodes(policy=ANY, forge=nan, stores=stores), solver=solver, rounds=8)
    kept = [
        sorted(int(f.stem) for f in (tmp_path / str(c)).rglob("*.safetensors"))
        for c in range(N)
    ]
    assert kept == [[4, 5, 6, 7], [7], [4, 5, 6, 7], [4, 5, 6, 7]], (
        "client 1 is refused every time"
    )


def test_a_run_that_goes_on_finds_the_states_of_its_clients(tmp_path: Path) -> None:
    solver = poise.solvers.Scaffold(lr=0.1, steps=3, batch_size=16)
    stores = {c: ClientStateStore(tmp_path / str(c)) for c in range(N)}
    whole = trained(nodes(policy=ANY), solver=solver, rounds=5)
    count: list[int] = []

    def die(client: int, reply: NodeMessage) -> NodeMessage:
        count.append(client)
        if (
            len(count) == 2 * N + 2
        ):  # in the third round, when two have written down what they remember
            raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        trained(
            nodes(policy=ANY, forge=die, stores=stores),
            solver=solver,
            rounds=5,
            out=tmp_path / "run",
        )
    grid, fed = nodes(policy=ANY, stores=stores), federation()
    remote = Remote(
        [h.facts() for h in grid.node_data], "size", fed.test_shard, fed.spec
    )
    with connected(
        Transport(grid, {c: 100 + c for c in range(N)}, "other job", TASK, "a" * 32)
    ):
        done = poise.resume(
            tmp_path / "run", federation=remote, task=poise.task(**TASK)
        )
    assert np.array_equal(done.model, whole.model)


def test_personal_layers_stay_on_their_nodes(tmp_path: Path) -> None:
    options = {
        "solver": poise.solvers.SGD(lr=0.1, steps=3, batch_size=16),
        "personal": "batchnorm",
        "rounds": 3,
        "metrics": ["train_loss", "client_accuracy"],
    }
    task = {"model": "mlp", "hidden": 8, "norm": True}
    here = poise.train(federation(), poise.task(**task), **options)
    there = trained(nodes(policy=ANY), task=task, **options)
    for name in ("train_loss", "client_accuracy"):
        assert np.allclose(there.metric(name), here.metric(name), atol=1e-6), name
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


CLOCKS = [
    poise.clocks.Asynchronous(),
    poise.clocks.Buffered(2),
    poise.clocks.FixedWindow(0.3),
    poise.clocks.Synchronous(deadline=0.4),
    poise.clocks.Synchronous(enough=3),
]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda c: type(c).__name__)
def test_clocks_go_by_the_time_that_nodes_really_take(
    clock: Any, tmp_path: Path
) -> None:
    grid = nodes(slow={3: 0.7})
    run = trained(
        grid,
        clock=clock,
        rounds=5,
        weighting=poise.weightings.TimeBased(times="estimated"),
    )
    assert run.rounds == 5
    assert (np.diff(run.times) >= 0).all()
    assert 3 not in run.schedule[0].clients.tolist(), "the slow one is not waited for"
    if clock.waits:
        assert run.refusals == [(n, 3, "nothing in time") for n in range(5)]
        return
    poise.clocks.save_schedule(run.schedule, tmp_path / "steps.csv")
    replay = poise.clocks.Replay(str(tmp_path / "steps.csv"))
    weighting = poise.weightings.TimeBased(times="estimated")
    again = poise.train(
        federation(),
        poise.task(**TASK),
        solver=SGD,
        clock=replay,
        rounds=5,
        weighting=weighting,
    )
    assert np.abs(np.asarray(run.model) - np.asarray(again.model)).max() <= 1e-6
    assert np.allclose(run.weights, again.weights)


def test_times_that_were_given_are_not_those_of_nodes() -> None:
    for clock in (
        poise.clocks.Asynchronous([1.0, 2.0, 3.0, 4.0]),
        poise.clocks.Synchronous(deadline=2.0),
    ):
        with pytest.raises(
            IncompatibleParts,
            match=r"TimeBased: .*these clients take real time.*estimated",
        ):
            trained(nodes(), clock=clock, weighting=poise.weightings.TimeBased())
    assert (
        trained(nodes(), weighting=poise.weightings.TimeBased(), rounds=1).rounds == 1
    )  # all are waited for


def test_simulated_time_on_nodes() -> None:
    clock = poise.clocks.FixedWindow(0.5, [1.0, 0.4, 0.3, 2.0])
    backend = Flower(patience=5.0, time="simulated")
    there = trained(
        nodes(policy=Policy(min_cohort=1)), clock=clock, rounds=5, backend=backend
    )
    here = poise.train(
        federation(), poise.task(**TASK), solver=SGD, clock=clock, rounds=5
    )
    assert there.times.tolist() == here.times.tolist()
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


def nan(client: int, reply: NodeMessage) -> NodeMessage:
    return (
        replace(reply, tensors={"0": TensorBytes.of(torch.full((650,), float("nan")))})
        if client == 1
        else reply
    )


def greedy(client: int, reply: NodeMessage) -> NodeMessage:
    return (
        replace(reply, facts={**reply.facts, "samples": 10**9})
        if client == 1
        else reply
    )


@pytest.mark.parametrize(
    ("forge", "words"), [(nan, "not finite"), (greedy, "samples 1000000000 instead of")]
)
def test_a_forged_reply_is_recorded_and_the_round_goes_on(
    forge: Any, words: str
) -> None:
    run = trained(nodes(forge=forge))
    assert run.rounds == 3
    assert [(n, client) for n, client, _ in run.refusals] == [(0, 1), (1, 1), (2, 1)]
    assert all(words in reason for *_, reason in run.refusals)
    assert (run.weights[:, 1] == 0).all()
    assert np.isfinite(run.model).all()


@pytest.mark.parametrize("loss", [1.7e308, -1.7e308, 1e6])
@pytest.mark.parametrize("name", ["SoftMax", "SoftMin", "Exp"])
def test_an_absurd_loss_is_refused_and_the_run_goes_on(name: str, loss: float) -> None:
    def absurd(client: int, reply: NodeMessage) -> NodeMessage:
        lies = {
            k: [loss if k == "loss_before" else -loss]
            for k in reply.facts
            if k.startswith("loss_")
        }
        return replace(reply, facts={**reply.facts, **lies}) if client == 1 else reply

    run = trained(nodes(forge=absurd), weighting=getattr(poise.weightings, name)(0.2))
    assert run.rounds == 3
    assert [client for _, client, _ in run.refusals] == [1, 1, 1]
    assert all(f"of {loss:g}" in reason for *_, reason in run.refusals)
    assert not run.weights[:, 1].any()


def enlarged(factor: float) -> Callable[[int, NodeMessage], NodeMessage]:
    def forge(client: int, reply: NodeMessage) -> NodeMessage:
        if client != 1:
            return reply
        sent = reply.tensors["0"]
        update = torch.frombuffer(bytearray(sent.data), dtype=torch.float32)
        return replace(reply, tensors={"0": TensorBytes.of(factor * update)})

    return forge


def test_an_update_far_longer_than_the_median_is_refused() -> None:
    run = trained(nodes(forge=enlarged(1e15)))
    assert [client for _, client, _ in run.refusals] == [1, 1, 1]
    assert all("max_ratio = 100" in reason for *_, reason in run.refusals)
    assert run.meta["status"] == "done"
    assert run.metric("loss")[-1] < run.metric("loss")[0]


ONE_BY_ONE = poise.clocks.Asynchronous()


@pytest.mark.parametrize("clock", [ONE_BY_ONE, poise.clocks.Buffered(2)])
def test_a_huge_update_is_refused_where_few_arrive_together(clock: Any) -> None:
    # the liar is the fastest: its first update is refused before any other arrives
    slow = {0: 0.1, 2: 0.2, 3: 0.3}
    grid = nodes(forge=enlarged(1e15), slow=slow)
    run = trained(grid, clock=clock, rounds=12)
    assert {client for _, client, _ in run.refusals} == {1}
    assert all("max_ratio = 100" in reason for *_, reason in run.refusals)
    assert not run.weights[:, 1].any()
    assert run.meta["status"] == "done"


def test_a_resumed_run_remembers_the_lengths_of_its_updates(tmp_path: Path) -> None:
    def trained_on(grid: Nodes, rounds: int, **more: Any) -> Any:
        return trained(grid, clock=ONE_BY_ONE, rounds=rounds, **more)

    slow = {0: 0.1, 1: 0.15, 2: 0.2, 3: 0.3}
    trained_on(nodes(slow=slow), rounds=8, out=tmp_path / "run").close()
    # a length that the model alone would allow: 10,000 times the model's, at least 1
    grid = nodes(forge=enlarged(1e3), slow=slow)
    fed = federation()
    remote = Remote(
        [h.facts() for h in grid.node_data], "size", fed.test_shard, fed.spec
    )
    senders = {c: 100 + c for c in range(N)}
    with connected(Transport(grid, senders, "other job", TASK, "a" * 32)):
        task = poise.task(**TASK)
        run = poise.resume(tmp_path / "run", federation=remote, task=task, rounds=20)
    liars = [client for n, client, reason in run.refusals if "longer than" in reason]
    assert set(liars) == {1}
    assert not run.weights[8:, 1].any()


def test_a_somewhat_longer_update_passes_and_the_limit_may_be_lifted() -> None:
    assert trained(nodes(forge=enlarged(3.0))).refusals == []
    any_length = Flower(patience=5.0, max_ratio=float("inf"))
    with pytest.warns(UserWarning, match="diverged"):
        run = trained(nodes(forge=enlarged(1e15)), backend=any_length)
    assert run.refusals == []
    with pytest.raises(InvalidOption, match="max_ratio must be above 1"):
        Flower(max_ratio=0.5)


def test_bad_updates_may_stop_the_run() -> None:
    with pytest.raises(
        UpdateRefused, match="round 0: client 1 sent an update that is not finite"
    ):
        trained(nodes(forge=nan), bad_updates="stop")


def test_an_old_reply_is_refused() -> None:
    first: list[NodeMessage] = []

    def replay(client: int, reply: NodeMessage) -> NodeMessage:
        if client != 2:
            return reply
        first.append(reply)
        return first[0]

    run = trained(nodes(forge=replay))
    assert run.refusals == [(1, 2, "an old reply again"), (2, 2, "an old reply again")]


def test_work_is_asked_for_again_after_a_node_was_away() -> None:
    lost = [5, 5, 8]

    def gone(client: int, reply: NodeMessage) -> NodeMessage | int:
        return lost.pop() if client == 3 and lost else reply

    run = trained(nodes(forge=gone))
    assert (run.refusals, lost) == ([], [])
    assert np.array_equal(run.model, trained(nodes()).model)


def test_work_that_died_with_its_node_is_asked_for_again() -> None:
    """The node was back before anybody saw that it was away: Flower reports nothing, its reply
    never comes."""
    boots = dict.fromkeys(range(N), "first")
    lost: list[str] = []

    class Dying(Nodes):
        def pull_messages(self, ids: Iterable[str]) -> list[Any]:
            there = list(ids)
            for name in there:
                client, request = self.sent[int(name)]
                if client == 3 and request.facts.get("versions") == [1] and not lost:
                    lost.append(name)
                    boots[3] = "second"
            return super().pull_messages([name for name in there if name not in lost])

        def _answered(self, client: int, request: NodeMessage) -> NodeMessage:
            return answer(
                request,
                NodeContext(self.node_data[client], self.policy, boot=boots[client]),
            )

    dying = Dying(nodes().node_data)
    remote = Remote(
        [h.facts() for h in dying.node_data],
        "size",
        federation().test_shard,
        federation().spec,
    )
    transport = Transport(dying, {c: 100 + c for c in range(N)}, "run", TASK)
    transport.ask(
        {c: NodeMessage({**transport.common_facts("call", c)}) for c in range(N)}, 5.0
    )  # as a run begins, with a word to everybody
    with connected(transport):
        run = poise.train(
            remote, poise.task(**TASK), SGD, rounds=3, backend=Flower(patience=600.0)
        )
    assert lost
    assert run.refusals == []
    assert run.times[-1] < 60, (
        "it was not left to the patience with which slow nodes are waited for"
    )
    assert np.array_equal(run.model, trained(nodes()).model)
    assert [request.facts["kind"] for client, request in dying.sent if client == 3] == [
        "call",
        "work",
        "work",
        "call",
        "work",
        "work",
    ]


def test_a_node_that_is_only_slow_is_not_asked_twice() -> None:
    grid = nodes(slow={3: 100.0})
    transport = Transport(grid, {c: 100 + c for c in range(N)}, "run", TASK)
    remote = Remote(
        [h.facts() for h in grid.node_data],
        "size",
        federation().test_shard,
        federation().spec,
    )
    transport.boots.update({100 + c: "" for c in range(N)})
    transport.boots[103] = "here"
    grid._answered = lambda client, request: answer(
        request, NodeContext(grid.node_data[client], grid.policy, boot="here")
    )  # type: ignore[method-assign]
    with connected(transport):
        run = poise.train(
            remote, poise.task(**TASK), SGD, rounds=1, backend=Flower(patience=600.0)
        )
    assert run.refusals == []
    assert [request.facts["kind"] for client, request in grid.sent if client == 3] == [
        "work",
        "call",
    ]


def test_a_node_that_never_answers_is_named() -> None:
    run = trained(nodes(away=[0]), rounds=1, backend=Flower(patience=0.2))
    assert run.refusals == [(0, 0, "nothing within 0.2 seconds")]


@pytest.mark.parametrize("code", [1, 2, 8])
def test_an_app_that_fails_is_asked_four_times_and_then_refused(code: int) -> None:
    """Flower reports an app that it could not load (1), that raised (2) or whose process ended
    (8)."""
    crashes: list[int] = []

    def crash(client: int, reply: NodeMessage) -> NodeMessage | int:
        crashes.extend([client] * (client == 0))
        return code if client == 0 and len(crashes) <= limit else reply

    limit = 3
    assert trained(nodes(forge=crash), rounds=1).refusals == []
    crashes.clear()
    limit = 4
    refused = trained(nodes(forge=crash), rounds=1)
    assert refused.refusals == [(0, 0, f"error {code} of its node: gone")]
    assert len(crashes) == 4


def test_a_policy_is_felt_in_the_round() -> None:
    run = trained(nodes(policy=Policy(max_steps=1)), rounds=1)
    assert len(run.refusals) == N
    assert "a refusal: its policy does not allow" in run.refusals[0][2]


def test_what_pytorch_says_of_a_failure_stays_on_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the server refuses these batches before round 0; here the node does
    ignore = lambda composition, oracle: None
    monkeypatch.setattr("poise.training.operation.check_batches", ignore)
    task, one = (
        {"model": "mlp", "hidden": 4, "norm": True},
        poise.solvers.SGD(lr=0.1, steps=1, batch_size=1),
    )
    run = trained(nodes(), rounds=1, task=task, solver=one)
    said = run.refusals[0][2]
    assert (
        "its local work failed (ValueError); its journal says why (batch norm needs batches of two"
        in said
    )
    assert "torch.Size" not in said


def test_what_a_node_says_can_be_written_down(tmp_path: Path) -> None:
    """Half of a surrogate pair is a string of JSON, and no text that a ledger or a terminal
    takes."""

    def odd(client: int, reply: NodeMessage) -> NodeMessage:
        return (
            NodeMessage({"nonce": reply.facts["nonce"], "refused": "no \ud800\x1b[2J"})
            if client == 1
            else reply
        )

    run = trained(nodes(forge=odd), rounds=1, out=tmp_path / "run")
    assert poise.open_run(run.path).refusals == [(0, 1, "a refusal: no ??[2J")]


@pytest.mark.filterwarnings("ignore:client . was asked for metrics")
def test_metrics_of_the_clients_data_only_where_policies_allow() -> None:
    with pytest.warns(
        UserWarning,
        match="client 0 was asked for metrics and sent a refusal: its policy",
    ):
        silent = trained(nodes(), metrics=["client_loss", "train_loss"])
    assert np.isnan(silent.metric("client_loss")).all()
    assert np.isnan(silent.metric("train_loss")).all()
    assert np.isfinite(silent.metric("accuracy")).all(), (
        "what the server has is measured all the same"
    )
    one = nodes(
        policy=Policy(metrics=True),
        forge=lambda c, r: 7 if c == 2 and "metrics" in r.facts else r,
    )
    with pytest.warns(
        UserWarning, match="client 2 was asked for metrics and sent error 7"
    ):
        some = trained(one, metrics=["client_loss", "train_loss"])
    client_loss, p = some.metric("client_loss"), federation().importance
    rest = [0, 1, 3]
    assert np.isnan(client_loss[:, 2]).all()
    assert np.allclose(
        some.metric("train_loss"), client_loss[:, rest] @ p[rest] / p[rest].sum()
    )
    there = trained(
        nodes(policy=Policy(metrics=True)), metrics=["client_loss", "train_accuracy"]
    )
    here = poise.train(
        federation(),
        poise.task(**TASK),
        solver=SGD,
        rounds=3,
        metrics=["client_loss", "train_accuracy"],
    )
    for name in ("client_loss", "train_accuracy", "accuracy"):
        assert np.allclose(there.metric(name), here.metric(name), atol=1e-6), name


def test_metrics_of_a_set_on_nodes() -> None:
    """A node whose samples are of one class has no AUROC; this is no reason to warn."""
    task = {**TASK, "metrics": ["auroc", "f1"]}
    requested = ["client_auroc", "train_auroc", "client_f1"]
    grid = nodes(policy=Policy(metrics=True))
    pure = grid.node_data[2]
    labels = torch.full_like(pure.shard.labels, 3)
    grid.node_data[2] = replace(pure, shard=replace(pure.shard, labels=labels))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        some = trained(grid, task=task, metrics=requested)
    assert np.isnan(some.metric("client_auroc")[:, 2]).all()
    rest = [0, 1, 3]
    p = federation().importance[rest]
    assert np.allclose(
        some.metric("train_auroc"), some.metric("client_auroc")[:, rest] @ p / p.sum()
    )
    there = trained(nodes(policy=Policy(metrics=True)), task=task, metrics=requested)
    here = poise.train(
        federation(), poise.task(**task), SGD, rounds=3, metrics=requested
    )
    for name in (*requested, "auroc", "f1"):
        assert np.allclose(there.metric(name), here.metric(name), atol=1e-6), name


def test_what_nodes_cannot_do_is_refused() -> None:
    with pytest.raises(
        IncompatibleParts, match="the similarity graph needs data that are on the nodes"
    ):
        trained(nodes(), weighting=poise.weightings.Adjacency())
    with pytest.raises(InvalidOption, match="works with the nodes of a deployment"):
        poise.train(
            federation(), poise.task(**TASK), solver=SGD, rounds=1, backend="flower"
        )


def test_nodes_that_do_not_fit_are_named() -> None:
    facts = [h.facts() for h in nodes().node_data]
    with pytest.raises(InvalidOption, match=r"client 2 has samples of shape \[3\]"):
        check_registered([*facts[:2], {**facts[2], "shape": [3]}], None)
    with pytest.raises(InvalidOption, match="client 1 registered -5 samples"):
        check_registered([facts[0], {**facts[1], "samples": -5}], None)
    with pytest.raises(
        InvalidOption,
        match="client 0 registered 100 samples: its registration is invalid",
    ):
        check_registered([{**facts[0], "data": ["digits"]}], {"source": "digits"})
    spec = {"source": "digits", "seed": 0, "importance": "size"}
    check_registered(
        [{**facts[0], "data": {**spec, "client": 0, "importance": "equal"}}], spec
    )
    with pytest.raises(
        InvalidOption, match="seed = 0, but client 0's node holds seed = 1"
    ):
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
    transport = Transport(grid, {c: 100 + c for c in range(N)}, "run", TASK)
    experiment = parse(BEGINS, tmp_path / "exp.toml")
    found = registered_federation(experiment, 0, transport, 5.0)
    assert found.sizes.tolist() == fed.sizes.tolist()
    assert found.importance.tolist() == [0.25] * N
    assert found.spec["test"] == str(tmp_path / "held-out.npz")
    assert len(found.test_shard.rows) == len(y)
    assert len(found.shards(np.array([0, 1])).rows) == 0
    with pytest.raises(
        InvalidOption, match=r"client 0 registered \d+ samples, and can have 3"
    ):
        registered_federation(
            parse(BEGINS.replace("[task]", "max_samples = 3\n[task]")),
            0,
            transport,
            5.0,
        )
    with pytest.raises(
        InvalidOption,
        match="client 1 registered 1000000000 samples, and can have 1000000",
    ):
        registered_federation(
            experiment, 0, replace(transport, grid=nodes(forge=greedy)), 5.0
        )
    grid.policy = Policy(max_steps=2)
    with pytest.raises(
        UpdateRefused,
        match=r"clients 0.* do not take part: its policy does not allow 3 local steps",
    ):
        registered_federation(experiment, 0, transport, 5.0)
    other = parse(
        BEGINS.replace('"nodes"', '"digits"').replace(
            'test = "held-out.npz"', "clients = 3"
        ),
        tmp_path / "e",
    )
    with pytest.raises(
        InvalidOption, match="clients = 3, but the deployment has 4 nodes"
    ):
        registered_federation(other, 0, transport, 5.0)
    with pytest.raises(
        UpdateRefused, match="client 2 does not take part: nothing within"
    ):
        registered_federation(
            experiment, 0, replace(transport, grid=nodes(away=[2])), 0.2
        )


def test_a_job_is_stopped_and_goes_on(tmp_path: Path) -> None:
    fed = federation()
    held_out = dict(zip("xy", fed.test, strict=True))
    np.savez(tmp_path / "held-out.npz", **held_out)
    text = BEGINS.replace("rounds = 1", "rounds = 3")
    order = {
        "text": text,
        "file": str(tmp_path / "exp.toml"),
        "set": ["solver.steps=2"],
        "seeds": [5],
        "out": str(tmp_path / "out"),
    }
    first, second = DeployedJob(tmp_path / "a.json"), DeployedJob(tmp_path / "b.json")
    first.file.write_text(json.dumps(order))

    def stop(client: int, reply: NodeMessage) -> NodeMessage:
        if "steps" in reply.facts:
            first.file.with_suffix(".stop").touch()
        return reply

    transport = Transport(nodes(forge=stop), {c: 100 + c for c in range(N)}, "run")
    (path,) = first.run(transport)
    stopped = poise.open_run(path)
    assert (path.name, stopped.rounds, stopped.meta["status"]) == (
        "seed-5",
        1,
        "stopped",
    )
    second.file.write_text(json.dumps({"resume": str(path)}))
    assert second.run(transport) == [path]
    whole = poise.open_run(path)
    assert (whole.rounds, whole.meta["status"]) == (3, "done")
    first.file.with_suffix(".stop").unlink()
    first.file.write_text(json.dumps({**order, "out": str(tmp_path / "again")}))
    (again,) = first.run(replace(transport, grid=nodes()))
    assert poise.open_run(again).model.tolist() == whole.model.tolist()
    said = [
        json.loads(line)
        for line in first.file.with_suffix(".log").read_text().splitlines()
    ]
    assert [line["round"] for line in said] == [0, 0, 1, 2]
