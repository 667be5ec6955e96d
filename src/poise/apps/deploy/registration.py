"""Before a run begins every node is asked whether it takes part, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poise.apps.deploy.data_files import read_arrays
from poise.apps.deploy.node_graph import asked_messages
from poise.apps.deploy.remote_federation import Remote, check_registered
from poise.backends.flower.messages import NodeMessage, words
from poise.backends.flower.transport import Transport, current
from poise.config.experiment import Experiment
from poise.core.errors import InvalidOption, UpdateRefused, require
from poise.core.parts import describe
from poise.core.samples import Shards
from poise.core.types import Floats
from poise.data import federation as make_federation
from poise.training import NODES, OF_CLIENTS, federation_in, parts_in

MOST_SAMPLES = 1_000_000  # that a node may register where the experiment does not say max_samples


def registered_federation(
    experiment: Experiment,
    seed: int,
    post: Transport,
    patience: float,
    gone: Mapping[int, int] | None = None,
    score: str = "",
) -> Remote:
    """Ask every node whether it takes part, and what it holds; the held-out data are the server's.

    Clients that ``[data] without`` names are not asked, and are no clients. Nor are those of
    ``gone`` asked, whom a request to forget names with the samples that they had; they still count,
    until the request takes them out. ``score`` is what that request measures on the nodes that
    stay.
    """
    data = experiment.table("data")
    known = None if data.get("source") in (None, NODES) else federation_in(experiment, seed)
    away = [int(c) for c in data.get("without", ())]
    if known is not None and known.clients + len(away) != len(post.nodes):
        owners = known.clients + len(away)
        raise InvalidOption(
            f"[data] clients = {owners}, but the deployment has {len(post.nodes)} nodes"
        )
    members = _members(away, len(post.nodes))
    found = _greeted(experiment, post.among(members), patience, gone or {}, score)
    most = (
        known.sizes
        if known is not None
        else [int(data.get("max_samples", MOST_SAMPLES))] * len(found)
    )
    check_registered(found, None if known is None else known.spec, most, members)
    weighing = data.get("importance", "size")
    if not isinstance(weighing, str):
        require(
            len(weighing) == len(post.nodes), f"[data] importance must be {len(post.nodes)} numbers"
        )
        weighing = [weighing[m] for m in members]
    chosen = np.array(members) if away else None

    def graph(size: int) -> Floats:
        return asked_messages(
            current(), patience, size
        )  # of those who take part when it is asked for

    remote = Remote(found, weighing, graph=graph, chosen=chosen)
    if known is not None:
        return replace(remote, test_shard=known.test_shard, spec=known.spec)
    if "test" not in data:
        return replace(remote, spec=data or None)
    beside = experiment.path.parent if experiment.path is not None else Path()
    data["test"] = str(
        (beside / str(data["test"])).resolve()
    )  # a run that goes on finds it from its own folder
    return replace(remote, test_shard=_held_out(data, found[0]), spec=data)


def _members(away: list[int], nodes: int) -> list[int]:
    """Who takes part, by number in the deployment."""
    for client in away:
        require(
            0 <= client < nodes,
            f"[data] without: there is no client {client}",
            f"clients are 0 to {nodes - 1}",
        )
    members = [c for c in range(nodes) if c not in set(away)]
    require(len(members) > 0, f"[data] without: no client of {nodes} would be left")
    return members


def _greeted(
    experiment: Experiment, post: Transport, patience: float, gone: Mapping[int, int], score: str
) -> list[Mapping[str, Any]]:
    """What each node holds, in the order of the clients; a node that refuses the plan ends it
    before it begins.
    """
    parts = parts_in(experiment)
    asked = [c for c in sorted(post.nodes) if c not in gone]
    metrics = {
        m for m in (*experiment.table("run").get("metrics", ()), score) if m.startswith(OF_CLIENTS)
    }
    plan = {
        "solver": describe(parts.solver),
        "channel": describe(parts.channel),
        "reports": sorted(parts.reports),
        "metrics": sorted(metrics),
        "cohort": len(asked),
        "graph": "adjacency" in parts.weighting.needs or parts.perturbs,
    }
    letters = {c: NodeMessage({**post.common("hello", c), **plan}) for c in asked}
    replies = post.ask(letters, patience)
    hint = "lower the request, or ask the node's operator to raise the limit"
    if score:
        hint += "; --held-out asks nodes for no metrics"
    found = {c: _registration(letters[c], replies[c], post.nodes[c], hint) for c in asked}
    form = {name: found[asked[0]][name] for name in ("shape", "classes")}
    return [
        found[c] if c in found else {**form, "samples": gone[c], "data": None}
        for c in sorted(post.nodes)
    ]


def _registration(
    letter: NodeMessage, reply: NodeMessage | str, node: int, hint: str
) -> Mapping[str, Any]:
    """What a node told about itself; raises where it did not."""
    client = letter.facts["client"]
    if isinstance(reply, str):
        raise UpdateRefused(
            f"client {client} does not take part: {reply}", "poise deploy status DIR"
        )
    if "refused" in reply.facts:
        raise UpdateRefused(
            f"client {client} does not take part: {words(reply.facts['refused'])}", hint
        )
    if reply.sender != node or any(
        reply.facts.get(name) != letter.facts[name] for name in ("nonce", "client")
    ):
        raise UpdateRefused(f"client {client} sent a reply to another request")
    return {name: reply.facts.get(name) for name in ("samples", "shape", "classes", "data")}


def _held_out(data: Mapping[str, Any], form: Mapping[str, Any]) -> Shards:
    """The server's own test file."""
    x, y = read_arrays(Path(data["test"]), str(data.get("label", "y")), form["classes"])
    options = {"classes": form["classes"]} if form["classes"] else {}
    return make_federation((x, y), [np.arange(len(y))], 1, **options).shards([0])
