"""The similarity graph on nodes: each node computes its message, and the server checks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from backends.test_flower_nodes import SGD, TASK, N, Nodes, federation, nodes
from poise.apps.deploy.node import reply_to
from poise.apps.deploy.node_data import NodeData
from poise.apps.deploy.node_graph import request_directions
from poise.apps.deploy.policy import Policy
from poise.apps.deploy.registration import registered_federation
from poise.apps.deploy.remote_federation import Remote
from poise.backends import Flower
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.transport import Transport, connected
from poise.config.experiment import parse
from poise.core.errors import UpdateRefused
from poise.graph import SimilarityGraph, similarity

OPEN = Policy(graph=True)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_transport, "PAUSE", 0.0)


def transport_to(grid: Any, clients: int = N) -> Transport:
    return Transport(grid, {c: 100 + c for c in range(clients)}, "run", TASK)


def remote(grid: Nodes) -> Remote:
    fed = federation()
    asked = lambda size: request_directions(transport_to(grid), 5.0, size)
    return Remote(
        [h.facts() for h in grid.node_data], "size", fed.test_shard, fed.spec, asked
    )


def test_the_graph_is_that_of_the_same_federation_in_one_process() -> None:
    grid = nodes(policy=OPEN)
    found = remote(grid)
    there, here = SimilarityGraph(found.messages()), similarity(federation())
    assert np.allclose(there.adjacency, here.adjacency, rtol=1e-12, atol=0)
    assert np.allclose(there.weights, here.weights, rtol=1e-12, atol=0)
    found.messages()
    assert [request.facts["kind"] for _, request in grid.sent] == [
        "graph"
    ] * N  # each was asked once


def test_texts() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 7, size=(40, 5)), rng.integers(0, 2, size=40)
    x[20:] %= 4  # the second client does not know the last characters
    parts = [np.arange(20), np.arange(20, 40)]
    fed = poise.federation((x, y), parts, 2, vocabulary=7, test=(x, y))
    grid = Nodes([NodeData(c, fed.shards([c])) for c in range(2)], OPEN)
    directions = request_directions(transport_to(grid, 2), 5.0, 7)
    assert np.allclose(
        SimilarityGraph(directions).adjacency,
        similarity(fed).adjacency,
        rtol=1e-9,
        atol=0,
    )
    facts = [h.facts() for h in grid.node_data]
    found = Remote(
        facts,
        "size",
        fed.test_shard,
        None,
        lambda size: request_directions(transport_to(grid, 2), 5.0, size),
    )
    assert found.messages().shape == (2, 7)


@pytest.mark.parametrize("time", ["real", "simulated"])
@pytest.mark.parametrize(
    "solver",
    [SGD, poise.solvers.Perturbed(0.6, lr=0.1, steps=4, batch_size=16)],
    ids=["sgd", "perturbed"],
)
def test_the_weighting_and_the_neighbours_are_those_of_one_process(
    solver: Any, time: Any
) -> None:
    """Perturbed needs what the others did: were the mean not sent, the second round would
    differ."""
    grid = nodes(policy=Policy(graph=True, solvers=("sgd", "perturbed")))
    options: dict[str, Any] = {
        "solver": solver,
        "rounds": 3,
        "weighting": poise.weightings.Adjacency(),
    }
    with connected(transport_to(grid)):
        there = poise.train(
            remote(grid), poise.task(**TASK), backend=Flower(60.0, time=time), **options
        )
    here = poise.train(federation(), poise.task(**TASK), **options)
    assert np.allclose(there.weights, here.weights, rtol=1e-6)
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


def forged(
    make: Callable[[NodeMessage], NodeMessage],
) -> Callable[[int, NodeMessage], NodeMessage]:
    return lambda client, reply: make(reply) if client == 2 else reply


def sending(*vectors: torch.Tensor) -> Callable[[int, NodeMessage], NodeMessage]:
    return forged(
        lambda r: replace(
            r, tensors={str(k): TensorBytes.of(v) for k, v in enumerate(vectors)}
        )
    )


LONG, UNIT = torch.full((64,), 1.0).double(), torch.full((64,), 0.125).double()


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (sending(LONG), "a message of length 8 instead of 1"),
        (sending(LONG * torch.nan), "a message of length nan instead of 1"),
        (sending(LONG * torch.inf), "a message of length inf instead of 1"),
        (sending(LONG * 0), "a message of length 0 instead of 1"),
        (sending(UNIT[:63]), r"\[63\] float64 instead of \[64\] float64"),
        (sending(UNIT.float()), r"\[64\] float32 instead of"),
        (sending(UNIT.reshape(8, 8)), r"\[8, 8\] float64 instead of"),
        (sending(), "nothing instead of"),
        (sending(UNIT, UNIT), r"\[64\] float64, \[64\] float64 instead of"),
        (
            sending(torch.zeros(100_000)),
            "a reply of 400000 bytes, more than the limit of 4608",
        ),
        (
            forged(
                lambda r: replace(
                    r, tensors={"0": TensorBytes("float64", (64,), b"1234")}
                )
            ),
            r"\[64\] float64 instead of",
        ),
        (
            forged(lambda r: replace(r, facts={**r.facts, "client": 1})),
            "that of client 1",
        ),
        (
            forged(lambda r: replace(r, facts={**r.facts, "nonce": "old"})),
            "a reply to another request",
        ),
        (
            forged(lambda r: NodeMessage({"nonce": r.facts["nonce"], "refused": "no"})),
            "a refusal: no",
        ),
    ],
)
def test_a_message_is_examined_and_its_sender_named(forge: Any, words: str) -> None:
    with pytest.raises(
        UpdateRefused,
        match=f"client 2 was asked for its message of the similarity graph and sent {words}",
    ):
        remote(nodes(policy=OPEN, forge=forge)).messages()


def test_noise_covers_a_message_and_does_not_wear_off() -> None:
    quiet = request_directions(transport_to(nodes(policy=OPEN)), 5.0, 64)
    noisy = nodes(policy=Policy(graph=True, graph_noise=0.1))
    noisy.node_data = [
        replace(h, secret=bytes([h.client + 1] * 64)) for h in noisy.node_data
    ]
    first, second = (request_directions(transport_to(noisy), 5.0, 64) for _ in range(2))
    assert np.array_equal(
        first, second
    )  # otherwise the mean of many would be the message
    assert np.allclose(np.linalg.norm(first, axis=1), 1)
    products = (first * quiet).sum(axis=1)
    expected = 1 / np.sqrt(
        1 + 0.1**2 * 64
    )  # |m + g| and m·(m + g), for g at right angles to m
    assert products == pytest.approx(np.full(N, expected), abs=4 * 0.1 * expected)
    noisy.policy = Policy(graph=True, graph_noise=0.2)
    drawn = [
        m / (m @ q) - q
        for m, q in zip(
            (first[0], request_directions(transport_to(noisy), 5.0, 64)[0]),
            [quiet[0]] * 2,
            strict=True,
        )
    ]
    cosine = drawn[0] @ drawn[1] / np.linalg.norm(drawn[0]) / np.linalg.norm(drawn[1])
    assert (
        abs(cosine) < 0.9
    )  # more noise is other noise: two amounts of the same would give the message away


ADJACENCY = """
[data]
source = "nodes"
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 3
[weighting]
name = "adjacency"
[run]
rounds = 1
"""


def test_a_run_that_needs_a_graph_says_so_before_it_begins() -> None:
    experiment = parse(ADJACENCY)
    with pytest.raises(
        UpdateRefused,
        match=r"client.* not take part: .* messages for the similarity graph \(graph",
    ):
        registered_federation(experiment, 0, transport_to(nodes()), 5.0)
    grid = nodes(policy=OPEN)
    found = registered_federation(experiment, 0, transport_to(grid), 5.0)
    assert len(grid.sent) == N  # the plan was agreed; nothing of the data has left yet
    with connected(transport_to(grid)):
        assert found.messages().shape == (N, 64)
    without = parse(ADJACENCY.replace("adjacency", "proportional"))
    assert registered_federation(without, 0, transport_to(nodes()), 5.0).clients == N
    perturbed = parse(
        ADJACENCY.replace('"sgd"', '"perturbed"\nbeta = 0.5').replace(
            "adjacency", "proportional"
        )
    )
    with pytest.raises(
        UpdateRefused, match=r"messages for the similarity graph \(graph"
    ):
        registered_federation(
            perturbed,
            0,
            transport_to(nodes(policy=Policy(solvers=("perturbed",)))),
            5.0,
        )


def test_a_refusal_is_recorded_on_both_sides(tmp_path: Path) -> None:
    """The node's journal has what was asked and why it was refused; the server's error or ledger
    has the same words."""
    (tmp_path / "node.toml").write_text(
        'client = 1\n[data]\nsource = "digits"\nclients = 4\nsamples = 400\n'
    )
    (tmp_path / "policy.toml").write_text("max_steps = 1\n")
    plain = nodes()

    class Real(Nodes):
        def _reply(self, name: str, client: int, request: NodeMessage) -> Any:
            if client != 1:
                return super()._reply(name, client, request)
            message = SimpleNamespace(
                metadata=SimpleNamespace(src_node_id=0), content=request.content()
            )
            metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=101)
            return SimpleNamespace(
                metadata=metadata,
                has_error=lambda: False,
                content=reply_to(message, tmp_path).content(),
            )

    grid = Real(plain.node_data, OPEN)
    with pytest.raises(UpdateRefused) as refused:
        registered_federation(parse(ADJACENCY), 0, transport_to(grid), 5.0)
    with pytest.raises(UpdateRefused) as kept:
        request_directions(transport_to(grid), 5.0, 64)
    with connected(transport_to(grid)):
        run = poise.train(
            replace(remote(plain), graph=None),
            poise.task(**TASK),
            solver=SGD,
            rounds=1,
            backend=Flower(patience=5.0),
            bad_updates="drop",
        )
    refusals = [refused.value.message, kept.value.message, run.refusals[0][2]]
    lines = [
        json.loads(line)
        for line in (tmp_path / "journal.jsonl").read_text().splitlines()
    ]
    assert [(line["kind"], line["bytes"]) for line in lines] == [
        ("hello", 0),
        ("graph", 0),
        ("work", 0),
    ]
    for line, words in zip(lines, refusals, strict=True):
        assert line["refused"] in words
        assert "its policy does not allow" in words
    assert lines[0]["graph"] is True


def test_neighbours_are_those_of_the_run_where_a_client_has_left() -> None:
    """Client k of the run is then node k + 1, and must be sent the mean that is its own."""
    grid, fed = (
        nodes(policy=Policy(graph=True, solvers=("perturbed",))),
        federation().without([0]),
    )
    left = transport_to(grid).among(fed.members.tolist())
    facts = [grid.node_data[c].facts() for c in fed.members]
    found = Remote(
        facts,
        "size",
        fed.test_shard,
        None,
        lambda size: request_directions(left, 5.0, size),
        fed.members,
    )
    options: dict[str, Any] = {
        "solver": poise.solvers.Perturbed(0.6, lr=0.1, steps=4, batch_size=16),
        "rounds": 3,
    }
    with connected(left):
        there = poise.train(found, poise.task(**TASK), backend=Flower(60.0), **options)
    here = poise.train(fed, poise.task(**TASK), **options)
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
