"""What runs on a node: a request comes in, the policy is asked, the work is done on the node's own
data.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from poise import channels as _channels  # noqa: F401 - parts are known by name once their module is loaded
from poise import solvers as _solvers  # noqa: F401
from poise.apps.deploy.client_state_store import ClientStateStore
from poise.apps.deploy.fault_injection import FaultInjection
from poise.apps.deploy.folder import BOOT, NODE, read_toml
from poise.apps.deploy.node_data import NodeData, open_node_data
from poise.apps.deploy.policy import GRAPH, Policy, PolicyRefused, outgoing
from poise.backends.flower.messages import FlowerMessage, NodeMessage, TensorBytes
from poise.backends.flower.reply_checks import tensor_name
from poise.core.algorithm_state import AlgorithmState, NamedVectors, PersonalModels
from poise.core.arrivals import Arrivals
from poise.core.errors import DataError, PoiseError, UpdateRefused
from poise.core.neighbours import MEAN
from poise.core.parts import build
from poise.core.protocols import Solver
from poise.core.types import LOSS_REPORTS, Assignment
from poise.core.vectors import Vector
from poise.engine.client_batches import ClientBatch
from poise.engine.local_work import LocalWork
from poise.engine.wire import Wire
from poise.tasks import task as make_task

if TYPE_CHECKING:
    from flwr.app import Context, Message

NOTED = (
    "kind",
    "run",
    "versions",
    "cohort",
    "solver",
    "reports",
    "metrics",
    "graph",
)  # of a request, in the journal


def client_app() -> Any:
    """The app that Flower starts on a node, once for every message."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    for kind in ANSWERS:
        app.query(kind)(receive)
    return app


def receive(message: Message, context: Context) -> Message:
    """Answer a message of Flower; what went wrong here is told in one line, the details stay in
    this node's journal.
    """
    from flwr.app import Message

    return Message(replied(message, Path(os.environ[NODE])).content(), reply_to=message)


def replied(message: FlowerMessage, folder: Path) -> NodeMessage:
    """The reply to a message, whatever it is; noted in the node's journal."""
    request, detail = NodeMessage({}), ""
    try:
        request = NodeMessage.read(message)
        reply = answer(request, _own(folder))
    except DataError as error:  # speaks of the node's own data
        words = "its node's data do not fit what was asked; its journal says why"
        reply, detail = (
            NodeMessage({"nonce": request.facts.get("nonce"), "refused": words}),
            str(error),
        )
    except PoiseError as error:
        reply = NodeMessage({"nonce": request.facts.get("nonce"), "refused": str(error)})
        detail = str(error.__cause__ or "")
    except Exception as error:
        words = f"its node failed ({type(error).__name__}); its journal says why"
        reply, detail = (
            NodeMessage({"nonce": request.facts.get("nonce"), "refused": words}),
            str(error),
        )
    _note(folder, request.facts, reply, detail)
    return reply


@dataclass(frozen=True)
class NodeContext:
    """What a node holds, allows and remembers, and how it misbehaves in a trial."""

    holding: NodeData
    policy: Policy
    shelf: ClientStateStore = field(default_factory=ClientStateStore)
    trial: FaultInjection = FaultInjection()
    boot: str = ""  # names the process of the node: whoever starts it anew gives it another


def _own(folder: Path) -> NodeContext:
    """All that is the node's own; an error here may speak of its data, and so it is not told to
    others.
    """
    try:
        config = read_toml(folder / "node.toml")
        policy = Policy.of(read_toml(folder / "policy.toml"))
        holding = open_node_data(int(config["client"]), config["data"], folder)
        key = folder / "node.key"
        secret = hashlib.blake2b(key.read_bytes()).digest() if key.exists() else b""
        trial, boot = FaultInjection.of(config, folder), os.environ.get(BOOT, "")
        return NodeContext(
            replace(holding, secret=secret), policy, ClientStateStore(folder / "state"), trial, boot
        )
    except Exception as error:
        raise UpdateRefused("its node is not set up right; its journal says why") from error


def answer(letter: NodeMessage, here: NodeContext) -> NodeMessage:
    """The reply to a request; raises where it is not to be done."""
    torch.set_num_threads(1)
    facts = letter.facts
    kind, client = str(facts.get("kind")), facts.get("client")
    if client != here.holding.client:
        raise UpdateRefused(f"this node is client {here.holding.client}, not {client}")
    try:
        told, payloads = ANSWERS[kind](letter, here)
    except UpdateRefused as error:
        if not isinstance(
            cause := error.__cause__, RuntimeError | ValueError | IndexError | TypeError
        ):
            raise
        # in the middle of the work: what PyTorch says may speak of the samples it was at
        words = f"its local work failed ({type(cause).__name__}); its journal says why"
        raise UpdateRefused(words, error.hint) from cause
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
    ) as error:  # its words may speak of data: they stay here
        raise UpdateRefused(f"a request that cannot be read ({type(error).__name__})") from error
    tensors = {
        tensor_name(k, name): TensorBytes.of(value)
        for k, named in enumerate(payloads)
        for name, value in named.items()
    }
    return NodeMessage({"nonce": facts["nonce"], **told}, tensors)


Told = tuple[dict[str, Any], list[NamedVectors]]


def _hello(letter: NodeMessage, here: NodeContext) -> Told:
    """Whether the node takes part in what the server plans, and what it holds."""
    plan, holding, policy = letter.facts, here.holding, here.policy
    solver = build("solver", plan["solver"])
    policy.allow(
        solver,
        holding.samples,
        cohort=plan["cohort"],
        reports=plan["reports"],
        metrics=plan["metrics"],
        graph=bool(plan.get("graph")),
    )
    policy.allow_channel(build("channel", plan.get("channel", {"name": "plain"})))
    return outgoing(policy, "hello", {**holding.facts(), "boot": here.boot})


def _work(letter: NodeMessage, here: NodeContext) -> Told:
    """Pieces of local work, one after the other."""
    facts, holding, policy = letter.facts, here.holding, here.policy
    me = holding.client
    solver, reports = build("solver", facts["solver"]), frozenset(facts["reports"])
    policy.allow(solver, holding.samples, facts["cohort"], facts["reports"], ())
    local = _local_work(facts, solver, holding)
    policy.allow_channel(local.wire.channel)
    models, shared = _received(letter, local.wire)
    kept = here.shelf.read(facts["state"], facts["held"]) if "state" in facts else {}
    here.trial.wait()
    done: list[Arrivals] = []
    for version, occurrence, stream in zip(
        facts["versions"], facts["occurrences"], facts["streams"], strict=True
    ):
        alone = ClientBatch(
            rows=np.zeros(1, dtype=np.int64),
            clients=np.array([me]),
            versions=np.array([version]),
            streams=np.array([stream], np.uint64),
        )
        beside = shared.get(
            version, {}
        )  # the mean of the neighbours is the client's own: nobody else is sent it
        own = {**kept, **{name: beside[name] for name in (MEAN,) if name in beside}}
        mine = alone.work(
            local, models, reports, AlgorithmState(sent=shared, client_state={me: own})
        )
        assignment = Assignment(0.0, me, int(version), int(occurrence))
        done.append(here.trial.sent(mine, assignment, models, local.wire, str(facts.get("run"))))
    if "state" in facts:
        state = {name: rows[0] for name, rows in done[-1].client_state.items()}
        here.shelf.write(facts["state"], int(facts["versions"][-1]), state, facts["held"])
    losses = {name: [float(vars(one)[name][0]) for one in done] for name in LOSS_REPORTS & reports}
    told = {
        "client": me,
        "versions": list(facts["versions"]),
        "occurrences": list(facts["occurrences"]),
        "samples": holding.samples,
        "steps": int(done[0].steps[0]),
        "boot": here.boot,
        **losses,
    }
    return outgoing(policy, "work", told, done)


def _local_work(facts: Mapping[str, Any], solver: Solver, holding: NodeData) -> LocalWork:
    """What this client does with a model: its task, the solver, and the way of its updates."""
    oracle = _bound(facts["task"], holding)
    channel = build("channel", facts.get("channel", {"name": "plain"}))
    return LocalWork(
        oracle, solver, Wire(oracle.layout, channel, tuple(facts.get("personal") or ()))
    )


def _received(
    letter: NodeMessage, wire: Wire
) -> tuple[dict[int, Vector], dict[int, dict[str, Vector]]]:
    """The models of a request, and what the server shares with them; by version.

    A client that has personal entries of its own is sent the other entries only.
    """
    size = wire.layout.size
    models: dict[int, Vector] = {}
    shared: dict[int, dict[str, Vector]] = {}
    for key, tensor_bytes in letter.tensors.items():
        version, _, name = key.partition("/")
        if name:
            shared.setdefault(int(version), {})[name] = tensor_bytes.vector()
        else:
            models[int(version)] = tensor_bytes.vector()
    for number, model in models.items():
        if wire.personal is not None and len(model) == len(wire.travelling):
            whole = model.new_zeros(size)
            whole[wire.travelling] = model
            models[number] = whole
        elif len(model) != size:
            raise UpdateRefused(
                f"the model has {len(model)} entries, the task's {size} on these data"
            )
    return models, shared


def _measure(letter: NodeMessage, here: NodeContext) -> Told:
    """Metrics of a model on the node's data."""
    holding, policy = here.holding, here.policy
    wanted = [str(name) for name in letter.facts["metrics"]]
    if not policy.metrics:
        raise PolicyRefused(
            f"its policy does not allow metrics on its data: {', '.join(wanted)} (metrics = false)"
        )
    oracle = _bound(letter.facts["task"], holding)
    names = frozenset(f"client_{name}" for name in wanted)
    if not names <= oracle.metrics:
        raise UpdateRefused(f"unknown metrics: {', '.join(sorted(names - oracle.metrics))}")
    theta, facts = letter.tensors["0"].vector(), letter.facts
    if facts.get("personal"):
        own = AlgorithmState(client_state={0: here.shelf.read(facts["state"], facts["held"])})
        theta = PersonalModels(oracle.layout.positions(facts["personal"]), own)(theta, 0)
    found = oracle.measure(theta, names, lambda f, items: [f(item) for item in items])
    metrics = {name: float(found[f"client_{name}"][0]) for name in wanted}
    return outgoing(policy, "measure", {"client": holding.client, "metrics": metrics})


def _graph(letter: NodeMessage, here: NodeContext) -> Told:
    """The main direction of the node's data: all that the similarity graph needs to know of a
    client.
    """
    from poise.graph import message_of  # here: most requests have no use for what it imports

    holding, policy = here.holding, here.policy
    if not policy.graph:
        raise PolicyRefused(f"its policy does not allow {GRAPH}")
    pool = holding.own.samples
    mine = message_of(holding.own.arrays()[0], pool.vocabulary if pool.tokens else 0)
    return outgoing(
        policy, "graph", {"client": holding.client}, message=mine, secret=holding.secret
    )


def _call(letter: NodeMessage, here: NodeContext) -> Told:
    """Which process this node is: after a silence, the server asks whether what it sent is lost."""
    return outgoing(here.policy, "call", {"client": here.holding.client, "boot": here.boot})


ANSWERS = {"hello": _hello, "work": _work, "measure": _measure, "graph": _graph, "call": _call}


def _bound(table: Mapping[str, Any], holding: NodeData) -> Any:
    """The task on the node's data."""
    options = dict(table)
    return make_task(options.pop("model"), **options).bind(holding)


def _note(folder: Path, request: Mapping[str, Any], reply: NodeMessage, detail: str) -> None:
    """One line in the node's own journal: what was asked, and what left or why nothing did."""
    asked = {name: request.get(name) for name in NOTED}
    left = (
        {"refused": reply.facts["refused"]}
        if "refused" in reply.facts
        else {"left": sorted(reply.facts)}
    )
    line = {
        "time": time.time(),
        **{k: v for k, v in asked.items() if v is not None},
        **left,
        "bytes": reply.size,
    }
    if detail:
        line["detail"] = detail
    with (folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")
