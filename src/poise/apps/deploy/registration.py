"""The server asks each node, before a run, to take part and to describe its data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poise._version import __version__
from poise.apps.deploy.data_files import COLUMNS, read_arrays
from poise.apps.deploy.node_curvature import CurvatureRequest
from poise.apps.deploy.node_data import MORE_FORM, NOT_SET_UP
from poise.apps.deploy.node_graph import request_directions
from poise.apps.deploy.remote_federation import Remote, check_registered
from poise.backends.flower.messages import NodeMessage, printable
from poise.backends.flower.transport import Transport, current
from poise.config.experiment import Experiment
from poise.core.curvature import Curvature
from poise.core.errors import InvalidOption, UpdateRefused, require
from poise.core.parts import describe
from poise.core.samples import Shards
from poise.core.types import Floats, Ints
from poise.data import federation as make_federation
from poise.training import NODES, OF_CLIENTS, federation_in, parts_in

# that a node may register if the experiment sets no max_samples
MAX_SAMPLES = 1_000_000


def registered_federation(
    experiment: Experiment,
    seed: int,
    transport: Transport,
    patience: float,
    gone: Mapping[int, int] | None = None,
    score: str = "",
    revoked: Collection[int] = (),
) -> Remote:
    """Register all nodes of an experiment; the held-out data are the server's.

    Args:
        experiment: the experiment; the server does not contact clients in
            ``[data] without``, which are not part of the federation.
        seed: the seed of the run.
        transport: the connection to the nodes.
        patience: seconds to wait for the registrations.
        gone: clients of an unlearning request with their numbers of samples. The server
            does not contact them, but they count until the request removes them.
        score: the metric that an unlearning request measures on the remaining nodes.
        revoked: clients whose nodes cannot connect any more.
    """
    data = experiment.table("data")
    if data.get("source") in (None, NODES):
        known = None
    else:
        known = federation_in(experiment, seed)
    excluded = [int(c) for c in data.get("without", ())]
    nodes = len(transport.nodes)
    if known is not None and known.clients + len(excluded) != nodes:
        clients = known.clients + len(excluded)
        raise InvalidOption(
            f"[data] clients = {clients}, but the deployment has {nodes} nodes"
        )
    members = _members(excluded, nodes)
    _refuse_revoked(revoked, [c for c in members if c not in (gone or {})])
    registrations = _register_nodes(
        experiment,
        transport.among(members),
        patience=patience,
        gone=gone or {},
        score=score,
    )
    if known is None:
        limits = [int(data.get("max_samples", MAX_SAMPLES))] * len(registrations)
        check_registered(registrations, None, most=limits, members=members)
    else:
        check_registered(registrations, known.spec, most=known.sizes, members=members)

    def request_graph(size: int) -> Floats:
        # `current` is the transport at the time of the request
        return request_directions(current(), patience, size)

    def request_bounds(request: CurvatureRequest, members: Ints) -> Curvature | None:
        return request.ask(current(), patience, members=members)

    chosen = None
    if excluded:
        chosen = np.array(members)
    remote = Remote(
        registrations,
        _importance_of(members, data.get("importance", "size"), nodes),
        graph=request_graph,
        chosen=chosen,
        bounds=request_bounds,
    )
    if known is not None:
        return replace(
            remote, test_shard=known.test_shard, spec=known.spec, names=known.names
        )
    if "test" not in data:
        return replace(remote, spec=data or None)
    beside = Path()
    if experiment.path is not None:
        beside = experiment.path.parent
    # an absolute path, so that a resumed run finds the file from its own folder
    data["test"] = str((beside / str(data["test"])).resolve())
    return replace(remote, test_shard=load_held_out(data, registrations[0]), spec=data)


def _importance_of(
    members: list[int], importance: str | Sequence[float], nodes: int
) -> str | list[float]:
    """``[data] importance`` of the members: a name as it is, or their numbers."""
    if isinstance(importance, str):
        return importance
    require(len(importance) == nodes, f"[data] importance must be {nodes} numbers")
    return [importance[member] for member in members]


def _members(excluded: list[int], nodes: int) -> list[int]:
    """The clients that take part, by number in the deployment."""
    for client in excluded:
        require(
            0 <= client < nodes,
            f"[data] without: there is no client {client}",
            f"clients are 0 to {nodes - 1}",
        )
    members = [c for c in range(nodes) if c not in set(excluded)]
    require(len(members) > 0, f"[data] without: no client of {nodes} would be left")
    return members


def _refuse_revoked(revoked: Collection[int], present: list[int]) -> None:
    """Raise if a client of the run has a node that cannot connect any more."""
    for client in sorted({*revoked} & {*present}):
        raise InvalidOption(
            f"client {client} cannot take part: its node was revoked",
            f"leave it out ([data] without = [{client}]), or give its node a new key: "
            f"poise deploy rotate DIR {client}",
        )


def _register_nodes(
    experiment: Experiment,
    transport: Transport,
    patience: float,
    gone: Mapping[int, int],
    score: str,
) -> list[Mapping[str, Any]]:
    """The nodes' registrations in the order of the clients; raises if one refuses."""
    present = [client for client in sorted(transport.nodes) if client not in gone]
    plan = _plan(experiment, cohort=len(present), score=score)
    requests = {}
    for client in present:
        requests[client] = NodeMessage(
            {**transport.common_facts("hello", client), **plan}
        )
    replies = transport.ask(requests, patience)
    hint = "change the request, or ask the node's operator to change policy.toml"
    if score:
        hint += "; --held-out requests no metrics from nodes"
    registrations: dict[int, Mapping[str, Any]] = {}
    refusals: dict[int, UpdateRefused] = {}
    for client, request in requests.items():
        node = transport.nodes[client]
        try:
            registrations[client] = _read_registration(
                request, replies[client], node=node, hint=hint
            )
        except UpdateRefused as error:
            refusals[client] = error
    if refusals:
        raise _refused_by(refusals)
    for client in present:
        release = str(registrations[client]["poise"])
        transport.releases[transport.nodes[client]] = release
    first = registrations[present[0]]
    for client in gone:
        if client in transport.nodes:
            registrations[client] = {
                "shape": first["shape"],
                "classes": first["classes"],
                "samples": gone[client],
                "data": None,
                "alters": False,
                **{name: first[name] for name in MORE_FORM if name in first},
            }
    return [registrations[client] for client in sorted(transport.nodes)]


def _refused_by(refusals: Mapping[int, UpdateRefused]) -> UpdateRefused:
    """One error about all clients that do not take part, grouped by reason."""
    clients: dict[str, list[str]] = {}
    for client, error in refusals.items():
        clients.setdefault(error.message, []).append(str(client))
    texts = []
    for reason, members in clients.items():
        if len(members) == 1:
            texts.append(f"client {members[0]} does not take part: {reason}")
        else:
            texts.append(f"clients {', '.join(members)} do not take part: {reason}")
    hints = dict.fromkeys(error.hint for error in refusals.values())
    return UpdateRefused("; ".join(texts), "; ".join(filter(None, hints)))


def _plan(experiment: Experiment, cohort: int, score: str) -> dict[str, Any]:
    """The plan of an experiment, for nodes to accept or refuse."""
    parts = parts_in(experiment)
    metrics = {*experiment.table("run").get("metrics", ()), score}
    return {
        "solver": describe(parts.solver),
        "channel": describe(parts.channel),
        "reports": sorted(parts.reports),
        "metrics": sorted(
            metric for metric in metrics if metric.startswith(OF_CLIENTS)
        ),
        "cohort": cohort,
        "poise": __version__,
        "graph": "adjacency" in parts.weighting.needs or parts.perturbs,
    }


def _read_registration(
    request: NodeMessage, reply: NodeMessage | str, node: int, hint: str
) -> Mapping[str, Any]:
    """The facts that a node registers; raises the reason if it does not take part."""
    if isinstance(reply, str):
        raise UpdateRefused(reply, "poise deploy status DIR")
    if "refused" in reply.facts:
        reason = printable(reply.facts["refused"])
        if reason == NOT_SET_UP:
            hint = "ask the node's operator to read journal.jsonl in the node's folder"
        elif reply.facts.get("by policy") is False:
            hint = "repair the node, or leave its client out: [data] without = [NUMBER]"
        raise UpdateRefused(reason, hint)
    answers_request = all(
        reply.facts.get(k) == request.facts[k] for k in ("nonce", "client")
    )
    if reply.sender != node or not answers_request:
        raise UpdateRefused("its node sent a reply to another request")
    registration = {
        name: reply.facts.get(name) for name in ("samples", "shape", "classes", "data")
    }
    registration |= {
        name: reply.facts[name] for name in MORE_FORM if name in reply.facts
    }
    registration["poise"] = printable(reply.facts.get("poise", "unknown"), 40)
    # a node that does not say that its updates are unaltered may alter them
    return {**registration, "alters": reply.facts.get("alters") is not False}


def load_held_out(data: Mapping[str, Any], form: Mapping[str, Any]) -> Shards:
    """Read the server's test file; its columns are encoded as on the nodes."""
    classes = form["classes"]
    labelled = form.get("labels") or {}
    if labelled:
        classes = labelled["classes"]
    columns = {name: data[name] for name in COLUMNS if name in data}
    label = str(data.get("label", "y"))
    x, y = read_arrays(Path(data["test"]), label, classes, columns)
    options: dict[str, Any] = {}
    if classes:
        options["classes"] = classes
    if labelled.get("multi_label"):
        options["target"] = "multi-label"
    return make_federation((x, y), [np.arange(len(y))], 1, **options).shards([0])
