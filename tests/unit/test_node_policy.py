"""What a node does for a server, and what leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.apps.deploy.node import NodeContext, answer, reply_to
from poise.apps.deploy.node_data import NodeData, open_node_data
from poise.apps.deploy.policy import LEAVES, Policy, PolicyRefused, outgoing
from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.errors import DataError, InvalidOption, UpdateRefused
from poise.core.parts import describe
from poise.solvers import FedDyn, Prox

SGD = poise.solvers.SGD(lr=0.1, epochs=2, batch_size=10)


def updates(*values: float) -> Arrivals:
    one = np.ones(1, dtype=np.int64)
    return Arrivals({UPDATE: torch.tensor([values])}, one, one)


@pytest.mark.parametrize(
    ("policy", "request_", "words"),
    [
        (Policy(solvers=("prox",)), {}, "the solver 'sgd' (allowed: prox)"),
        (
            Policy(),
            {"solver": FedDyn(alpha=0.1, lr=0.1, steps=1)},
            "the solver 'feddyn' (allowed: adagrad, adam, adamw, prox, rmsprop, sgd)",
        ),
        (Policy(max_steps=19), {}, "20 local steps (at most 19)"),
        (Policy(max_epochs=1), {}, "2 epochs (at most 1)"),
        (Policy(min_cohort=5), {}, "a cohort of 4 (at least 5)"),
        (
            Policy(losses=False),
            {"reports": ["loss_before"]},
            "reports of loss_before (losses = false)",
        ),
        (
            Policy(),
            {"metrics": ["client_loss"]},
            "metrics on its data: client_loss (metrics = false)",
        ),
        (
            Policy(),
            {"graph": True},
            "messages for the similarity graph (graph = false)",
        ),
    ],
)
def test_what_is_not_allowed_is_named(
    policy: Policy, request_: dict[str, Any], words: str
) -> None:
    asked: dict[str, Any] = {
        "solver": SGD,
        "samples": 100,
        "cohort": 4,
        "reports": [],
        "metrics": [],
        **request_,
    }
    with pytest.raises(PolicyRefused) as refused:
        policy.check_request(**asked)
    assert words in refused.value.message


def test_what_is_allowed_passes() -> None:
    Policy().check_request(SGD, 100, 4, ["loss_before", "loss_after"], [])
    Policy(metrics=True, graph=True).check_request(
        Prox(mu=0.1, lr=0.1, steps=5), 100, 2, [], ["client_loss"], True
    )


@pytest.mark.parametrize(
    "table",
    [
        {"max_stpes": 3},
        {"max_steps": 0},
        {"max_steps": 2.5},
        {"max_steps": True},
        {"losses": 1},
        {"clip": -1.0},
        {"noise": 1.0},
        {"solvers": []},
        {"solvers": "sgd"},
        {"clip": float("inf")},
        {"min_cohort": "2"},
        {"graph": 1},
        {"graph_noise": -1.0},
        {"graph_noise": "a"},
    ],
)
def test_a_policy_that_is_not_understood_is_an_error(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="policy"):
        Policy.of(table)


def test_a_policy_survives_its_file() -> None:
    policy = Policy(solvers=("sgd",), clip=1.5, noise=0.5, metrics=True)
    assert Policy.of(policy.table()) == policy


def test_only_what_is_listed_leaves() -> None:
    facts = {name: 1 for kind in LEAVES.values() for name in kind} | {
        "rows": [1, 2, 3],
        "path": "/data",
    }
    for kind, names in LEAVES.items():
        told, vectors = outgoing(
            Policy(metrics=True, graph=True, curvature=True),
            kind,
            facts,
            [updates(2.0)],
            np.ones(1),
        )
        assert set(told) == set(names)
        assert [v[UPDATE].tolist() for v in vectors] == {
            "work": [[2.0]],
            "graph": [[1.0]],
        }.get(kind, [])
    told, _ = outgoing(Policy(losses=False), "work", facts)
    assert not {"loss_before", "loss_after"} & set(told)
    assert "metrics" not in outgoing(Policy(), "measure", facts)[0]
    told, _ = outgoing(Policy(), "curvature", facts)
    assert not {"smoothness", "convexity"} & set(told)
    assert outgoing(Policy(), "graph", facts, direction=np.ones(1))[1] == []


def test_updates_leave_clipped_and_noisy() -> None:
    long, short = updates(3.0, 4.0), updates(0.3, 0.4)
    _, (a, b) = outgoing(Policy(clip=1.0), "work", {}, [long, short])
    assert torch.allclose(a[UPDATE], torch.tensor([0.6, 0.8]))
    assert torch.equal(b[UPDATE], short.payload[UPDATE][0])
    assert torch.equal(long.payload[UPDATE][0], torch.tensor([3.0, 4.0]))
    many = updates(*[0.0] * 20_000)
    _, (first,) = outgoing(Policy(clip=2.0, noise=0.5), "work", {}, [many])
    _, (second,) = outgoing(Policy(clip=2.0, noise=0.5), "work", {}, [many])
    assert not torch.equal(first[UPDATE], second[UPDATE])
    assert float(first[UPDATE].std()) == pytest.approx(1.0, rel=0.05)


def holding(client: int = 2) -> NodeData:
    table = {
        "source": "digits",
        "partition": "iid",
        "clients": 5,
        "seed": 1,
        "client": 3,
    }
    return open_node_data(client, table, Path())


def request(kind: str, **more: Any) -> NodeMessage:
    facts = {
        "kind": kind,
        "nonce": "n",
        "client": 2,
        "cohort": 4,
        "task": {"model": "logistic"},
        "solver": describe(SGD),
        "reports": [],
        "metrics": [],
        "versions": [0],
        "occurrences": [0],
        "streams": [2**63 + 5],
    }
    return NodeMessage({**facts, **more}, {"0": TensorBytes.of(torch.zeros(650))})


def test_a_node_answers_with_its_own_data() -> None:
    mine = holding()
    hello = answer(request("hello"), NodeContext(mine, Policy())).facts
    fed = poise.federation("digits", "iid", clients=5, seed=1)
    assert hello["samples"] == fed.sizes[3]
    assert (hello["shape"], hello["classes"], hello["data"]["client"]) == (
        [1, 8, 8],
        10,
        3,
    )
    done = answer(request("work", reports=["loss_after"]), NodeContext(mine, Policy()))
    assert set(done.facts) == {
        "alters",
        "boot",
        "client",
        "loss_after",
        "nonce",
        "occurrences",
        "samples",
        "steps",
        "versions",
    }
    assert done.tensors["0"].vector().norm() > 0
    told = answer(
        request("measure", metrics=["loss"]), NodeContext(mine, Policy(metrics=True))
    ).facts["metrics"]
    assert told["loss"] == pytest.approx(np.log(10), rel=1e-5)


@pytest.mark.parametrize(
    ("sent_request", "kind", "words"),
    [
        (request("work", client=1), UpdateRefused, "this node is client 2, not 1"),
        (
            request(
                "work", solver={"name": "feddyn", "lr": 0.1, "steps": 1, "alpha": 0.1}
            ),
            PolicyRefused,
            "feddyn",
        ),
        (request("hello", metrics=["client_loss"]), PolicyRefused, "metrics = false"),
        (request("measure", metrics=["loss"]), PolicyRefused, "metrics = false"),
        (request("hello", graph=True), PolicyRefused, "graph = false"),
        (request("curvature", batch_size=8), PolicyRefused, "curvature = false"),
        (
            request("graph"),
            PolicyRefused,
            "its policy does not allow messages for the similarity graph",
        ),
        (
            request("work", task={"model": "mlp"}),
            UpdateRefused,
            "the model has 650 entries",
        ),
        (request("read"), UpdateRefused, "cannot be read"),
        (request("work", cohort=None), UpdateRefused, "cannot be read"),
        (request("work", streams=[]), UpdateRefused, "cannot be read"),
        (
            request("work", solver={"name": "sgd", "lr": 0.1, "stpes": 1}),
            InvalidOption,
            "stpes",
        ),
    ],
)
def test_a_node_refuses_in_words(
    sent_request: NodeMessage, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        answer(sent_request, NodeContext(holding(), Policy()))


def test_data_from_files(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    np.savez(tmp_path / "a.npz", x=x, y=y)
    lines = [
        "a,b,c,d,sick",
        *(",".join(map(str, [*row, label])) for row, label in zip(x, y, strict=True)),
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    made = [
        open_node_data(0, {"file": "a.npz", "classes": 3}, tmp_path),
        open_node_data(0, {"file": "a.csv", "label": "sick", "classes": 3}, tmp_path),
    ]
    for found in made:
        assert found.facts() == {
            "client": 0,
            "samples": 30,
            "shape": [4],
            "classes": 3,
            "data": None,
        }
        assert np.allclose(found.shard.arrays()[0], x, atol=1e-6)
        assert found.shard.arrays()[1].tolist() == y.tolist()
    assert (
        open_node_data(0, {"file": "a.npz"}, tmp_path).facts()["classes"] == 0
    )  # quantities, where nobody says
    with pytest.raises(DataError, match="no column 'y'"):
        open_node_data(0, {"file": "a.csv"}, tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        open_node_data(0, {"file": "b.npz"}, tmp_path)
    with pytest.raises(InvalidOption, match="neither a source nor a file"):
        open_node_data(0, {}, tmp_path)


def test_errors_about_a_nodes_own_files_stay_there(tmp_path: Path) -> None:
    facts = json.dumps(dict(request("work").facts))
    content: dict[str, Any] = {"facts": {"json": facts}, "vectors": {}}
    message = SimpleNamespace(metadata=SimpleNamespace(src_node_id=0), content=content)
    np.savez(tmp_path / "secret-name.npz", x=np.full((3, 2), np.nan), y=np.zeros(3))
    (tmp_path / "node.toml").write_text(
        'client = 2\n[data]\nfile = "secret-name.npz"\nclasses = 2\n'
    )
    (tmp_path / "policy.toml").write_text("")
    told = reply_to(message, tmp_path)
    assert told.facts == {
        "nonce": "n",
        "refused": "its node is not set up correctly; its journal says why",
        "by policy": False,
    }
    line = json.loads((tmp_path / "journal.jsonl").read_text())
    assert "not finite in row 0" in line["detail"]
    message.content = {}
    assert "cannot be read" in reply_to(message, tmp_path).facts["refused"]


def test_the_words_of_an_error_stay_on_the_node(tmp_path: Path) -> None:
    np.savez(tmp_path / "zero.npz", x=np.zeros((3, 2)), y=np.zeros(3))
    (tmp_path / "node.toml").write_text(
        'client = 2\n[data]\nfile = "zero.npz"\nclasses = 2\n'
    )
    (tmp_path / "policy.toml").write_text("graph = true\n")
    for sent_request, told in (
        (
            request("graph"),
            "its node's data do not fit the request; its journal says why",
        ),
        (request("work", cohort="four"), "a request that cannot be read (TypeError)"),
    ):
        facts = {"facts": {"json": json.dumps(dict(sent_request.facts))}, "vectors": {}}
        message = SimpleNamespace(
            metadata=SimpleNamespace(src_node_id=0), content=facts
        )
        assert reply_to(message, tmp_path).facts == {
            "nonce": "n",
            "refused": told,
            "by policy": False,
        }
    details = [
        json.loads(line)["detail"]
        for line in (tmp_path / "journal.jsonl").read_text().splitlines()
    ]
    assert details[0] == "all samples are zero: they have no direction"
    assert "'<' not supported between instances of 'str' and 'int'" in details[1]
