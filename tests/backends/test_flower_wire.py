"""Channels and personal layers on nodes: the same runs as in one process, and forged payloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.apps.deploy.policy import Policy
from poise.backends.flower import nodes as flower_nodes
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.channels import TopK
from poise.core.errors import LedgerError
from poise.personal import BatchNorm, Layers
from poise.samplers import Uniform

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from backends.test_flower_nodes import HOURS, SGD, TASK, federation, nodes, trained

NORM = {"model": "mlp", "hidden": 6, "norm": True}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flower_transport, flower_nodes):
        monkeypatch.setattr(module, "time", HOURS)


def same(there: Any, here: Any) -> None:
    assert there.refusals == []
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6
    columns = ("round", "client", "coefficient", "norm")
    for name in columns:
        assert np.allclose(
            there.contributions[name], here.contributions[name], rtol=1e-5
        )


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (TASK, {"channel": TopK(0.05)}),
        (TASK, {"channel": TopK(0.05, error_feedback=False), "sampler": Uniform(2)}),
        (TASK, {"channel": TopK(1.0)}),
        (NORM, {"channel": TopK(0.1)}),
        (NORM, {"personal": BatchNorm(), "sampler": Uniform(3)}),
        (NORM, {"personal": Layers("4.*")}),
        (
            NORM,
            {"personal": Layers("4.*"), "channel": TopK(0.1), "sampler": Uniform(3)},
        ),
    ],
    ids=["top-k", "forgetful", "whole", "buffers", "batch-norm", "head", "head-top-k"],
)
def test_the_same_run_as_in_one_process(
    task: dict[str, Any], options: dict[str, Any]
) -> None:
    more: dict[str, Any] = {"rounds": 4, "metrics": ["client_loss"], **options}
    there = trained(nodes(policy=Policy(metrics=True)), task=task, **more)
    here = poise.train(federation(), poise.task(**task), solver=SGD, **more)
    same(there, here)
    assert np.allclose(
        there.metric("client_loss"), here.metric("client_loss"), rtol=1e-4
    )
    traffic = "SELECT bytes_up, bytes_down FROM rounds WHERE n < ?"
    assert there._query(traffic) == here._query(traffic)


def test_what_travels_is_what_is_counted() -> None:
    """Logistic regression on digits: 650 parameters; 5 % are 33 entries of 4 + 4 bytes."""
    replies: list[NodeMessage] = []

    def keep(client: int, reply: NodeMessage) -> NodeMessage:
        replies.append(reply)
        return reply

    run = trained(nodes(forge=keep), channel=TopK(0.05), rounds=1)
    assert {reply.size for reply in replies} == {33 * 8}
    assert run._query("SELECT bytes_up FROM rounds WHERE n < ?")[0][0] == 4 * 33 * 8


def test_personal_entries_are_not_sent_again() -> None:
    grid = nodes(policy=Policy())
    trained(grid, task=NORM, personal=Layers("4.*"), rounds=3)
    models = [
        len(request.tensors[str(request.facts["versions"][0])].data) // 4
        for _, request in grid.sent
    ]
    whole, head = 64 * 6 + 6 + 6 * 4 + 1 + 6 * 10 + 10, 6 * 10 + 10
    assert models == [whole] * 4 + [whole - head] * 8, (
        "all entries once, then those that are shared"
    )


def test_a_node_keeps_its_personal_layers() -> None:
    run = trained(nodes(), task=NORM, personal=BatchNorm(), rounds=2)
    with pytest.raises(
        LedgerError, match="personal layers of client 1 are on its node"
    ):
        run.client_model(1)


def forged(
    change: Callable[[torch.Tensor], torch.Tensor], name: str
) -> Callable[[int, NodeMessage], NodeMessage]:
    def forge(client: int, reply: NodeMessage) -> NodeMessage:
        if client != 1:
            return reply
        tensor_bytes = TensorBytes.of(change(reply.tensors[f"0/{name}"].tensor()))
        return replace(reply, tensors={**reply.tensors, f"0/{name}": tensor_bytes})

    return forge


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("index", lambda i: i + 1000, "cannot be decoded"),
        ("index", lambda i: -i - 1, "cannot be decoded"),
        ("index", lambda i: i.long(), "an update of shape [33] 'int64'"),
        ("index", lambda i: i[:5], "an update of shape [5] 'int32'"),
        ("value", lambda v: torch.cat([v, v]), "an update of shape [66]"),
        ("value", lambda v: v * float("nan"), "not finite"),
        ("value", lambda v: v.double(), "'float64'"),
    ],
    ids=["beyond", "negative", "longer numbers", "fewer", "more", "nan", "double"],
)
def test_a_forged_payload_is_refused(name: str, change: Any, words: str) -> None:
    run = trained(nodes(forge=forged(change, name)), channel=TopK(0.05), rounds=2)
    assert [(n, client) for n, client, _ in run.refusals] == [(0, 1), (1, 1)]
    assert all(words in reason for *_, reason in run.refusals), run.refusals
    assert np.isfinite(run.model).all()


def test_a_payload_with_other_names_is_refused() -> None:
    def forge(client: int, reply: NodeMessage) -> NodeMessage:
        return (
            replace(reply, tensors={"0": TensorBytes.of(torch.zeros(650))})
            if client == 1
            else reply
        )

    run = trained(nodes(forge=forge), channel=TopK(0.05), rounds=1)
    assert run.refusals[0][:2] == (0, 1)
    assert "tensors [" in run.refusals[0][2]
    assert "instead of" in run.refusals[0][2]


def test_a_policy_that_clips_refuses_a_channel_that_encodes() -> None:
    run = trained(nodes(policy=Policy(clip=1.0)), channel=TopK(0.05), rounds=1)
    assert len(run.refusals) == 4
    assert (
        "does not allow the channel 'top-k', with clipped updates" in run.refusals[0][2]
    )
    assert trained(nodes(policy=Policy(clip=1.0)), rounds=1).refusals == []
