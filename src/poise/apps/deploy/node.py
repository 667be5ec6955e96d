"""The client app on a node: answers within the node's policy, on the node's data."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from poise._version import __version__
from poise.apps.deploy.client_state_store import ClientStateStore
from poise.apps.deploy.fault_injection import FaultInjection
from poise.apps.deploy.folder import BOOT, NODE, read_toml
from poise.apps.deploy.node_code import admit_code
from poise.apps.deploy.node_data import NOT_SET_UP, NodeData, open_node_data
from poise.apps.deploy.policy import (
    CURVATURE,
    GRAPH,
    Outgoing,
    Policy,
    PolicyRefused,
    outgoing,
)
from poise.backends.flower.messages import (
    FlowerMessage,
    NodeMessage,
    TensorBytes,
    printable,
)
from poise.backends.flower.reply_checks import tensor_name
from poise.core.algorithm_state import AlgorithmState, PersonalModels
from poise.core.arrivals import Arrivals
from poise.core.errors import DataError, InvalidOption, PoiseError, UpdateRefused
from poise.core.neighbours import MEAN
from poise.core.parts import build
from poise.core.protocols import Solver
from poise.core.types import LOSS_REPORTS, Assignment
from poise.core.vectors import Vector
from poise.engine.client_batches import ClientBatch
from poise.engine.local_work import LocalWork
from poise.engine.wire import Wire
from poise.evidence.countersign import SIGNATURE, sign, statement
from poise.tasks import task_of

if TYPE_CHECKING:
    from flwr.app import Context, Message

# facts of a request that go into the journal
JOURNALED = (
    "kind",
    "run",
    "versions",
    "cohort",
    "solver",
    "code",
    "reports",
    "metrics",
    "graph",
    "batch_size",
)


def client_app() -> Any:
    """The app that Flower starts on a node, once for every message."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    for kind in HANDLERS:
        app.query(kind)(receive)
    return app


def receive(flower_message: Message, context: Context) -> Message:
    """Answer a message of Flower."""
    from flwr.app import Message

    reply = reply_to(flower_message, Path(os.environ[NODE]))
    return Message(reply.content(), reply_to=flower_message)


def reply_to(flower_message: FlowerMessage, folder: Path) -> NodeMessage:
    """The reply to any message, valid or not.

    The reply states an error in one line; details stay in the journal of the node.
    """
    request = NodeMessage({})
    detail = ""
    try:
        request = NodeMessage.read(flower_message)
        reply = answer(request, load_context(folder))
    except DataError as error:  # its text may reveal the node's data
        reply = _refuse(
            request, "its node's data do not fit the request; its journal says why"
        )
        detail = str(error)
    except PoiseError as error:
        by_policy = isinstance(error, PolicyRefused)
        reply = _refuse(request, str(error), by_policy)
        detail = str(error.__cause__ or "")
    except Exception as error:
        kind = type(error).__name__
        reply = _refuse(request, f"its node failed ({kind}); its journal says why")
        detail = str(error)
    _write_journal(folder, request.facts, reply=reply, detail=detail)
    return reply


def _refuse(request: NodeMessage, reason: str, by_policy: bool = False) -> NodeMessage:
    """The reply that refuses a request, and whether the node's policy is the reason."""
    return NodeMessage(
        {
            "nonce": request.facts.get("nonce"),
            "refused": reason,
            "by policy": by_policy,
        }
    )


@dataclass(frozen=True)
class NodeContext:
    """A node's data, policy, stored client state and injected faults.

    ``boot`` identifies the process of the node; a restarted node has another one.
    ``key`` is the file of the key that signs the node's updates. ``folder`` is the
    node's, where allowed packages may lie.
    """

    node_data: NodeData
    policy: Policy
    client_state_store: ClientStateStore = field(default_factory=ClientStateStore)
    fault_injection: FaultInjection = FaultInjection()
    boot: str = ""
    key: Path | None = None
    folder: Path | None = None


def load_context(folder: Path) -> NodeContext:
    """Load a node's folder; errors do not reach the server, as they may reveal data."""
    try:
        config = read_toml(folder / "node.toml")
        policy = Policy.of(read_toml(folder / "policy.toml"))
        node_data = open_node_data(int(config["client"]), config["data"], folder)
        key = folder / "node.key"
        secret = b""
        if key.exists():
            secret = hashlib.blake2b(key.read_bytes()).digest()
        return NodeContext(
            node_data=replace(node_data, secret=secret),
            policy=policy,
            client_state_store=ClientStateStore(folder / "state"),
            fault_injection=FaultInjection.of(config, folder),
            boot=os.environ.get(BOOT, ""),
            key=key if key.exists() else None,
            folder=folder,
        )
    except Exception as error:
        raise UpdateRefused(NOT_SET_UP) from error


def answer(request: NodeMessage, context: NodeContext) -> NodeMessage:
    """The reply to a request; raises if the node refuses it."""
    torch.set_num_threads(1)
    facts = request.facts
    kind = str(facts.get("kind"))
    client = facts.get("client")
    if client != context.node_data.client:
        raise UpdateRefused(
            f"this node is client {context.node_data.client}, not {client}"
        )
    try:
        admit_code(facts, context.policy, context.folder)
        reply_facts, payloads = HANDLERS[kind](request, context)
    except UpdateRefused as error:
        cause = error.__cause__
        if not isinstance(cause, RuntimeError | ValueError | IndexError | TypeError):
            raise
        # PyTorch's text may describe samples, so it stays on the node
        refused = (
            f"its local work failed ({type(cause).__name__}); its journal says why"
        )
        raise UpdateRefused(refused, error.hint) from cause
    except (KeyError, TypeError, ValueError, IndexError) as error:
        # its text may describe data
        raise UpdateRefused(
            f"a request that cannot be read ({type(error).__name__})"
        ) from error
    tensors = {
        tensor_name(k, name): TensorBytes.of(value)
        for k, payload in enumerate(payloads)
        for name, value in payload.items()
    }
    reply_facts = {"nonce": facts["nonce"], **reply_facts}
    if kind == "work" and context.key is not None:
        sent = {name: tensor.data for name, tensor in tensors.items()}
        signed = statement(reply_facts, str(facts.get("run")), sent)
        reply_facts[SIGNATURE] = sign(signed, context.key)
    return NodeMessage(reply_facts, tensors)


def _register(request: NodeMessage, context: NodeContext) -> Outgoing:
    """Accept or refuse the server's plan, and describe the node's data.

    The node makes the task and the parts, so that one that it does not know is reported
    before the first round.
    """
    plan = request.facts
    node_data = context.node_data
    with _known_here(plan):
        solver = build("solver", plan["solver"])
        channel = build("channel", plan.get("channel", {"name": "plain"}))
    context.policy.check_request(
        solver,
        node_data.samples,
        cohort=plan["cohort"],
        reports=plan["reports"],
        metrics=plan["metrics"],
        graph=bool(plan.get("graph")),
    )
    context.policy.allow_channel(channel)
    if plan.get("task"):
        with _known_here(plan):
            _bind_task(plan["task"], node_data)
    facts = {
        **node_data.facts(),
        "boot": context.boot,
        "alters": context.policy.alters,
        "poise": __version__,
    }
    return outgoing(context.policy, "hello", facts)


@contextmanager
def _known_here(plan: Mapping[str, Any]) -> Iterator[None]:
    """Add the versions of poise to errors inside the block, if they differ."""
    try:
        yield
    except InvalidOption as error:
        sent = str(plan.get("poise", __version__))
        hint = error.hint
        if sent != __version__:
            hint = (
                f"the node has poise {__version__}, the server {printable(sent)}: "
                "install the same version on both"
            )
        raise UpdateRefused(
            f"its node cannot prepare the run: {error.message}", hint
        ) from error


def _work(request: NodeMessage, context: NodeContext) -> Outgoing:
    """Do the work of all assignments, one after the other."""
    facts = request.facts
    node_data = context.node_data
    solver = build("solver", facts["solver"])
    reports = frozenset(facts["reports"])
    context.policy.check_request(
        solver,
        node_data.samples,
        cohort=facts["cohort"],
        reports=facts["reports"],
        metrics=(),
    )
    local = _local_work(facts, solver, node_data)
    context.policy.allow_channel(local.wire.channel)
    start = _read_start(request, local.wire, context.client_state_store)
    context.fault_injection.wait()
    done = [
        _do_assignment(
            context,
            local,
            start=start,
            reports=reports,
            assignment=Assignment(0.0, node_data.client, int(version), int(occurrence)),
            stream=stream,
            run=str(facts.get("run")),
        )
        for version, occurrence, stream in zip(
            facts["versions"], facts["occurrences"], facts["streams"], strict=True
        )
    ]
    if "state" in facts:
        new_state = {name: rows[0] for name, rows in done[-1].client_state.items()}
        last_version = int(facts["versions"][-1])
        context.client_state_store.write(
            facts["state"], last_version, state=new_state, used=facts["held"]
        )
    reply_facts: dict[str, Any] = {
        "client": node_data.client,
        "versions": list(facts["versions"]),
        "occurrences": list(facts["occurrences"]),
        "samples": node_data.samples,
        "steps": int(done[0].steps[0]),
        "boot": context.boot,
        "alters": context.policy.alters,
    }
    for name in LOSS_REPORTS & reports:
        reply_facts[name] = [float(vars(arrivals)[name][0]) for arrivals in done]
    return outgoing(context.policy, "work", reply_facts, arrivals=done)


class _Start(NamedTuple):
    """What local work starts from; models and shared vectors are by version."""

    models: dict[int, Vector]
    shared: dict[int, dict[str, Vector]]
    client_state: Mapping[str, Vector]  # as the node stored it


def _do_assignment(
    context: NodeContext,
    local: LocalWork,
    start: _Start,
    reports: frozenset[str],
    assignment: Assignment,
    stream: int,
    run: str,
) -> Arrivals:
    """The result of one assignment, with the injected faults of the node."""
    client = assignment.client
    batch = ClientBatch(
        rows=np.zeros(1, dtype=np.int64),
        clients=np.array([client]),
        versions=np.array([assignment.version]),
        streams=np.array([stream], np.uint64),
    )
    client_state = dict(start.client_state)
    shared = start.shared.get(assignment.version, {})
    if MEAN in shared:  # the server sends each client the mean of its own neighbours
        client_state[MEAN] = shared[MEAN]
    algorithm_state = AlgorithmState(
        sent=start.shared, client_state={client: client_state}
    )
    honest = batch.work(local, start.models, reports, algorithm_state)
    return context.fault_injection.apply(
        honest, assignment, models=start.models, wire=local.wire, run=run
    )


def _local_work(
    facts: Mapping[str, Any], solver: Solver, node_data: NodeData
) -> LocalWork:
    """The local work of a request: the task on the node's data, solver, channel."""
    oracle = _bind_task(facts["task"], node_data)
    channel = build("channel", facts.get("channel", {"name": "plain"}))
    wire = Wire(oracle.layout, channel, tuple(facts.get("personal") or ()))
    return LocalWork(oracle, solver, wire)


def _read_start(request: NodeMessage, wire: Wire, store: ClientStateStore) -> _Start:
    """The models and shared vectors of a request, and the client state that it names.

    For a client with stored personal entries, the server sends the other entries only;
    the personal ones are filled with zeros here.
    """
    size = wire.layout.size
    models: dict[int, Vector] = {}
    shared: dict[int, dict[str, Vector]] = {}
    for key, tensor_bytes in request.tensors.items():
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
                f"the model has {len(model)} entries, but the task on these data has "
                f"{size}"
            )
    client_state: Mapping[str, Vector] = {}
    if "state" in request.facts:
        client_state = store.read(request.facts["state"], request.facts["held"])
    return _Start(models, shared, client_state)


def _measure(request: NodeMessage, context: NodeContext) -> Outgoing:
    """Metrics of a model on the node's data."""
    facts = request.facts
    node_data = context.node_data
    wanted = [str(name) for name in facts["metrics"]]
    if not context.policy.metrics:
        raise PolicyRefused(
            f"its policy does not allow metrics on its data: {', '.join(wanted)} "
            "(metrics = false)"
        )
    oracle = _bind_task(facts["task"], node_data)
    names = frozenset(f"client_{name}" for name in wanted)
    if not names <= oracle.metrics:
        raise UpdateRefused(
            f"unknown metrics: {', '.join(sorted(names - oracle.metrics))}"
        )
    theta = request.tensors["0"].vector()
    if facts.get("personal"):
        stored_state = context.client_state_store.read(facts["state"], facts["held"])
        algorithm_state = AlgorithmState(client_state={0: stored_state})
        theta = PersonalModels(
            oracle.layout.positions(facts["personal"]), algorithm_state
        )(theta, 0)
    values = oracle.measure(theta, names, lambda f, items: [f(item) for item in items])
    metrics = {name: float(values[f"client_{name}"][0]) for name in wanted}
    return outgoing(
        context.policy, "measure", {"client": node_data.client, "metrics": metrics}
    )


def _graph(request: NodeMessage, context: NodeContext) -> Outgoing:
    """The main direction of the node's data, for the server's similarity graph."""
    from poise.graph import message_of  # imported late: most requests do not need it

    node_data = context.node_data
    if not context.policy.graph:
        raise PolicyRefused(f"its policy does not allow {GRAPH}")
    pool = node_data.shard.samples
    vocabulary = 0
    if pool.tokens:
        vocabulary = pool.vocabulary
    direction = message_of(node_data.shard.arrays()[0], vocabulary)
    return outgoing(
        context.policy,
        "graph",
        {"client": node_data.client},
        direction=direction,
        secret=node_data.secret,
    )


def _curvature(request: NodeMessage, context: NodeContext) -> Outgoing:
    """L and mu of the task on the node's data, for batches of the requested size."""
    if not context.policy.curvature:
        raise PolicyRefused(f"its policy does not allow {CURVATURE}")
    facts = request.facts
    batch_size = facts["batch_size"]
    if batch_size is not None and not (type(batch_size) is int and batch_size >= 1):
        raise UpdateRefused("batch_size must be a whole number above 0, or none")
    bounds = _bind_task(facts["task"], context.node_data).curvature(batch_size)
    if bounds is None:
        raise UpdateRefused("the task is not known to be convex: L is unknown")
    reply_facts = {"client": context.node_data.client, **asdict(bounds)}
    return outgoing(context.policy, "curvature", reply_facts)


def _identify(request: NodeMessage, context: NodeContext) -> Outgoing:
    """The node's process, by which the server sees whether a silent node restarted."""
    facts = {"client": context.node_data.client, "boot": context.boot}
    return outgoing(context.policy, "call", facts)


HANDLERS = {
    "hello": _register,
    "work": _work,
    "measure": _measure,
    "graph": _graph,
    "curvature": _curvature,
    "call": _identify,
}


def _bind_task(table: Mapping[str, Any], node_data: NodeData) -> Any:
    """The task on the node's data."""
    return task_of(table).bind(node_data)


def _write_journal(
    folder: Path, request: Mapping[str, Any], reply: NodeMessage, detail: str
) -> None:
    """Add the request to the node's journal, and what left or why nothing did."""
    line: dict[str, Any] = {"time": time.time()}
    for name in JOURNALED:
        if request.get(name) is not None:
            line[name] = request[name]
    if "refused" in reply.facts:
        line["refused"] = reply.facts["refused"]
    else:
        line["left"] = sorted(reply.facts)
    line["bytes"] = reply.size
    if detail:
        line["detail"] = detail
    with (folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")
