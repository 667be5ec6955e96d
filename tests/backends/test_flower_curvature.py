"""Certificates of deployments: nodes report the curvature of their losses, and altered updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from backends.test_flower_forgetting import (
    GONE,
    OPTIONS,
    TEXT,
    Bureau,
    N,
    Trying,
    asked,
)
from backends.test_flower_nodes import federation
from poise.apps.deploy.node import NodeContext, answer
from poise.apps.deploy.node_curvature import CurvatureRequest
from poise.apps.deploy.node_data import NodeData
from poise.apps.deploy.policy import Policy
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.transport import Transport
from poise.core.curvature import Curvature
from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.unlearning.cost_preview import preview
from poise.unlearning.fulfilment import outcome
from poise.unlearning.proof import TRUTHFUL

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

OPEN = Policy(metrics=True, curvature=True)
NO_L = "the task is not convex, or a node did not report it"
ALTERED = "nodes clip updates or add noise to them"
LAST = TEXT.replace('keep = "all"', 'keep = "last"')


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_transport, "PAUSE", 0.0)


@dataclass
class Different(Trying):
    """Nodes of which some have a policy of their own."""

    policies: dict[int, Policy] = field(default_factory=dict)

    def _answered(self, client: int, request: NodeMessage) -> NodeMessage:
        policy = self.policies.get(client, self.policy)
        return answer(request, NodeContext(self.node_data[client], policy))

    def kinds(self) -> set[str]:
        """The kinds of all requests since the last look."""
        found = {request.facts["kind"] for _, request in self.sent}
        self.sent.clear()
        return found


@pytest.fixture
def grid() -> Different:
    fed = poise.federation(
        "digits", "dirichlet", clients=N, alpha=0.5, samples=400, seed=0
    )
    spec = fed.spec or {}
    held = [NodeData(c, fed.shards([c]), {**spec, "client": c}) for c in range(N)]
    return Different(held, OPEN)


@pytest.fixture
def bureau(grid: Different, tmp_path: Path) -> Bureau:
    return Bureau(tmp_path, grid)


def transport_to(grid: Different) -> Transport:
    nodes = {h.client: 100 + h.client for h in grid.node_data}
    return Transport(grid, nodes, "run", {"model": "logistic"})


def ask(grid: Different, batch_size: int | None = None) -> Curvature | None:
    request = CurvatureRequest("logistic", batch_size)
    return request.ask(transport_to(grid), 1.0, members=np.arange(len(grid.node_data)))


def with_ones(samples: Any) -> np.ndarray:
    """Samples as rows, with a column of ones for the bias."""
    rows = np.asarray(samples, dtype=np.float64).reshape(len(samples), -1)
    return np.hstack([rows, np.ones((len(rows), 1))])


# what nodes report -----------------------------------------------------------------


def test_the_curvature_is_that_of_all_nodes(grid: Different) -> None:
    """``1/2 X'X/n`` bounds the Hessian of softmax; with batches, one sample can be a batch."""
    matrices = [with_ones(h.shard.arrays()[0]) for h in grid.node_data]
    largest = max(np.linalg.norm(x, 2) ** 2 / len(x) for x in matrices)
    whole = ask(grid)
    assert whole is not None
    assert whole.smoothness == pytest.approx(largest / 2, rel=1e-9)
    assert (whole.kind, whole.convexity, whole.exact) == ("logistic", 0.0, False)
    longest = max(float((x**2).sum(axis=1).max()) for x in matrices)
    batches = ask(grid, 16)
    assert batches is not None
    assert batches.smoothness == pytest.approx(longest / 2, rel=1e-9)


def test_least_squares_report_mu_too() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = x @ np.ones(3, dtype=np.float32)
    fed = poise.federation((x, y), [np.arange(20), np.arange(20, 60)], 2, test=(x, y))
    grid = Different([NodeData(c, fed.shards([c])) for c in range(2)], OPEN)
    transport = transport_to(grid)
    found = CurvatureRequest("least-squares", None).ask(
        transport, 1.0, members=np.arange(2)
    )
    held = [with_ones(h.shard.arrays()[0]) for h in grid.node_data]
    spectra = [np.linalg.eigvalsh(2 * rows.T @ rows / len(rows)) for rows in held]
    assert found is not None
    assert found.smoothness == pytest.approx(max(s[-1] for s in spectra), rel=1e-6)
    assert found.convexity == pytest.approx(min(s[0] for s in spectra), rel=1e-6)
    assert found.exact


def test_a_node_refuses_what_it_cannot_bound(grid: Different) -> None:
    context = NodeContext(grid.node_data[0], OPEN)
    facts = {"kind": "curvature", "client": 0, "nonce": "n", "batch_size": None}
    deep = {"model": "mlp", "hidden": 4}
    with pytest.raises(UpdateRefused, match="not known to be convex"):
        answer(NodeMessage({**facts, "task": deep}), context)
    for wrong in (0, -1, 2.5, True, "8"):
        request = {**facts, "task": {"model": "logistic"}, "batch_size": wrong}
        with pytest.raises(UpdateRefused, match="batch_size must be"):
            answer(NodeMessage(request), context)


# what the server checks ------------------------------------------------------------


def stating(**facts: Any) -> Callable[[NodeMessage], NodeMessage]:
    return lambda reply: replace(reply, facts={**reply.facts, **facts})


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (stating(smoothness=0.0), r"L = 0\.0, which is not a finite number above 0"),
        (stating(smoothness=-3.0), r"L = -3\.0, which"),
        (stating(smoothness=float("nan")), "L = nan, which"),
        (stating(smoothness=float("inf")), "L = inf, which"),
        (stating(smoothness=10**400), "L = 1000"),
        (stating(smoothness="7"), "L = 7, which"),
        (stating(smoothness=True), "L = True, which"),
        (stating(smoothness=None), "L = None, which"),
        (stating(convexity=-1.0), r"mu = -1\.0, which is not between 0 and its L"),
        (stating(convexity=1e9), "mu = 1000000000"),
        (stating(convexity=[0]), r"mu = \[0\], which"),
        (stating(exact="yes"), "exact = yes instead of true or false"),
        (stating(kind="quadratic"), "curvature of a quadratic loss, not of a logistic"),
        (stating(client=1), "that of client 1"),
        (stating(nonce="old"), "a reply to another request"),
        (stating(refused="no"), "a refusal: no"),
        (
            lambda r: replace(
                r, tensors={"0": TensorBytes("int8", (9999,), b"0" * 9999)}
            ),
            "a reply of 9999 bytes, more than the limit of 4096",
        ),
    ],
)
def test_a_reply_is_checked_and_its_sender_named(
    grid: Different, forge: Callable[[NodeMessage], NodeMessage], words: str
) -> None:
    grid.forge = lambda client, reply: forge(reply) if client == 2 else reply
    with pytest.warns(
        UserWarning, match=f"client 2 was asked for it and sent .*{words}"
    ):
        assert ask(grid) is None


def test_a_node_that_does_not_answer_is_named(grid: Different) -> None:
    grid.away.append(1)
    request = CurvatureRequest("logistic", None)
    with pytest.warns(UserWarning, match="client 1 was asked for it and sent nothing"):
        assert request.ask(transport_to(grid), 0.05, members=np.arange(N)) is None


# certificates ----------------------------------------------------------------------


def unlearn(bureau: Bureau, run: Path, clients: list[int], **more: Any) -> Any:
    request = asked(clients, {**OPTIONS, **more})
    return outcome(poise.open_run(bureau.do(unlearn=str(run), request=request)))


def verified(made: Any) -> dict[str, Any]:
    """The grounds of a certificate that holds."""
    assert len(poise.unlearning.verify(made.path)) > 10
    grounds: dict[str, Any] = made.certificate["grounds"]
    return grounds


def test_a_certificate_without_gaps(bureau: Bureau, grid: Different) -> None:
    there = bureau.run("there")
    assert grid.kinds() == {"hello", "curvature", "work"}
    recorded = Curvature.recorded(poise.open_run(there).meta)
    local = poise.task("logistic").bind(federation())
    made = unlearn(bureau, there, [GONE])
    assert grid.kinds() == {"hello", "work", "measure"}  # the ledger has L
    grounds = verified(made)
    assert grounds["not proved"] == []
    assert TRUTHFUL in grounds["assumed"]
    assert made.certificate["guarantee"]["promised"] is True
    assert recorded == local.curvature(16)
    assert grounds["checked"]["L"] == recorded.smoothness
    assert grounds["checked"]["eta L"] == pytest.approx(0.05 * recorded.smoothness)
    assert not any("L is unknown" in str(line) for line in bureau.said())


def test_a_rate_above_1_over_l_is_refused(bureau: Bureau) -> None:
    there = bureau.run("fast", TEXT.replace("lr = 0.05", "lr = 0.2"))
    with pytest.raises(IncompatibleParts, match=r"eta = 0\.2 is above 1/L = 0\.0898"):
        unlearn(bureau, there, [GONE])
    assert not (there / "unlearning" / "001").exists()
    grounds = verified(unlearn(bureau, there, [GONE], heuristic=True))
    assert len(grounds["not proved"]) == 1


def test_one_node_that_refuses_takes_the_guarantee(
    bureau: Bureau, grid: Different
) -> None:
    grid.policies[1] = Policy(metrics=True)
    there = bureau.run("there")
    warned = [line["warning"] for line in bureau.said() if "warning" in line]
    assert len(warned) == 1
    assert "client 1 was asked for it and sent a refusal: its policy" in warned[0]
    assert Curvature.recorded(poise.open_run(there).meta) is None
    with pytest.raises(IncompatibleParts, match=NO_L):
        unlearn(bureau, there, [GONE])
    made = unlearn(bureau, there, [GONE], heuristic=True)
    grounds = verified(made)
    assert NO_L in grounds["not proved"][0]
    assert (grounds["checked"], TRUTHFUL in grounds["assumed"]) == (None, False)
    assert made.certificate["guarantee"]["promised"] is False


def test_l_may_be_reported_at_the_first_request(
    bureau: Bureau, grid: Different
) -> None:
    """The proof for one client needs the curvature of the others only; for two, of each."""
    there = bureau.run("there", LAST)
    assert grid.kinds() == {"hello", "work"}
    grid.away.append(GONE)
    grounds = verified(unlearn(bureau, there, [GONE], method="last"))
    assert (grounds["not proved"], TRUTHFUL in grounds["assumed"]) == ([], True)
    others = [with_ones(grid.node_data[c].shard.arrays()[0]) for c in (0, 1, 3)]
    longest = max(float((x**2).sum(axis=1).max()) for x in others)
    assert grounds["checked"]["L"] == pytest.approx(longest / 2, rel=1e-9)
    with pytest.raises(IncompatibleParts, match=NO_L):
        unlearn(bureau, there, [0], method="last")
    warned = [line["warning"] for line in bureau.said() if "warning" in line]
    assert any("clients 0, 2 have left" in text for text in warned)


def test_a_preview_reads_what_the_training_recorded(bureau: Bureau) -> None:
    """A preview does not contact nodes, whose data may have no name."""
    seen = preview(bureau.run("there"), [GONE])
    assert seen.not_proved == ()
    (gap,) = preview(bureau.run("last", LAST), [GONE]).not_proved
    assert NO_L in gap


# altered updates -------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_node_that_alters_updates_takes_the_guarantee(
    bureau: Bureau, grid: Different, noise: float
) -> None:
    grid.policies[3] = replace(OPEN, clip=0.5, noise=noise)
    there = bureau.run("there")
    assert json.loads(poise.open_run(there).meta["altered"]) == [3]
    warned = [line["warning"] for line in bureau.said() if "warning" in line]
    assert any("the policies of clients 3 clip updates" in text for text in warned)
    with pytest.raises(IncompatibleParts, match=ALTERED):
        unlearn(bureau, there, [GONE])
    (gap,) = verified(unlearn(bureau, there, [GONE], heuristic=True))["not proved"]
    assert ALTERED in gap
    # a training without the client is exact, whatever the nodes send
    scratch = str(bureau.folder / "scratch")
    made = unlearn(bureau, there, [GONE], method="scratch", out=scratch)
    assert made.certificate["guarantee"]["promised"] is True


def test_retraining_with_altered_updates_counts_for_the_next_request(
    bureau: Bureau, grid: Different
) -> None:
    there = bureau.run("there")
    grid.policies[3] = replace(OPEN, clip=0.5)
    made = unlearn(bureau, there, [GONE])
    assert verified(made)["not proved"] == []  # the training had plain updates
    assert json.loads(made.run.meta["altered"]) == [3]
    with pytest.raises(IncompatibleParts, match=ALTERED):
        unlearn(bureau, there, [0])


def test_a_node_that_begins_to_clip_is_refused_until_it_registers(
    bureau: Bureau, grid: Different
) -> None:
    registered: set[int] = set()

    def clipping(client: int, reply: NodeMessage) -> NodeMessage:
        registered.add(client)
        if len(registered) == N:
            grid.policies[3] = replace(OPEN, clip=0.5)
        return reply

    grid.forge = clipping
    there = bureau.run("there", TEXT.replace("rounds = 6", "rounds = 2"))
    run = poise.open_run(there)
    assert [(n, client) for n, client, _ in run.refusals] == [(0, 3), (1, 3)]
    assert "its registration does not say so" in run.refusals[0][2]
    assert "altered" not in run.meta


def test_a_resumed_run_records_new_policies(bureau: Bureau, grid: Different) -> None:
    def stopping(client: int, reply: NodeMessage) -> NodeMessage:
        if "steps" in reply.facts:
            (bureau.folder / "1.stop").touch()
        return reply

    grid.forge = stopping
    there = bureau.run("there", TEXT.replace("rounds = 6", "rounds = 3"))
    grid.forge = lambda client, reply: reply
    grid.policies[3] = replace(OPEN, clip=0.5)
    bureau.do(resume=str(there))
    run = poise.open_run(there)
    assert (run.rounds, run.refusals) == (3, [])
    assert json.loads(run.meta["altered"]) == [3]
    run.close()
    with pytest.raises(IncompatibleParts, match=ALTERED):
        unlearn(bureau, there, [GONE])


def test_a_node_that_does_not_say_may_alter(bureau: Bureau, grid: Different) -> None:
    def silent(client: int, reply: NodeMessage) -> NodeMessage:
        facts = {k: v for k, v in reply.facts.items() if k != "alters" or client != 0}
        return replace(reply, facts=facts)

    grid.forge = silent
    run = poise.open_run(bureau.run("there"))
    assert json.loads(run.meta["altered"]) == [0]
