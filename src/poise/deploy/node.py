"""What runs on a node: a request comes in, the policy is asked, the work is done on the node's own data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise import solvers as _solvers  # noqa: F401 - parts are known by name once their module is loaded
from poise.backends.letters import Letter, Parcel
from poise.core.chunks import Piece
from poise.core.errors import PoiseError, UpdateRefused
from poise.core.memory import Memories, Versions
from poise.core.parts import build
from poise.core.types import Updates
from poise.core.vectors import Vector
from poise.deploy.folder import NODE, read_toml
from poise.deploy.holding import Holding, open_holding
from poise.deploy.policy import Policy, PolicyRefused, outgoing
from poise.deploy.shelf import Shelf
from poise.tasks import task as make_task


def client_app() -> Any:
    """The app that Flower starts on a node, once for every message."""
    from flwr.clientapp import ClientApp

    app = ClientApp()
    for kind in ("hello", "work", "measure"):
        app.query(kind)(receive)
    return app


def receive(message: Any, context: Any) -> Any:
    """Answer a message of Flower; what went wrong here is told in one line, the details stay in this node's journal."""
    from flwr.app import Message

    return Message(replied(message, Path(os.environ[NODE])).content(), reply_to=message)


def replied(message: Any, folder: Path) -> Letter:
    """The reply to a message, whatever it is; noted in the node's journal."""
    request, detail = Letter({}), ""
    try:
        request = Letter.read(message)
        reply = answer(request, *_own(folder))
    except PoiseError as error:
        reply = Letter({"nonce": request.facts.get("nonce"), "refused": str(error)})
        detail = str(error.__cause__ or "")
    except Exception as error:
        words = f"its node failed ({type(error).__name__}); its journal says why"
        reply, detail = Letter({"nonce": request.facts.get("nonce"), "refused": words}), str(error)
    _note(folder, request.facts, reply, detail)
    return reply


def _own(folder: Path) -> tuple[Holding, Policy, Shelf]:
    """What the node holds and allows; an error here may speak of its data, and so it is not told to others."""
    try:
        config = read_toml(folder / "node.toml")
        policy = Policy.of(read_toml(folder / "policy.toml"))
        return open_holding(int(config["client"]), config["data"], folder), policy, Shelf(folder / "state")
    except Exception as error:
        raise UpdateRefused("its node is not set up right; its journal says why") from error


def answer(letter: Letter, holding: Holding, policy: Policy, shelf: Shelf | None = None) -> Letter:
    """The reply to a request; raises where it is not to be done. Without a shelf, what clients remember is lost."""
    torch.set_num_threads(1)
    facts = letter.facts
    kind, client = str(facts.get("kind")), facts.get("client")
    if client != holding.client:
        raise UpdateRefused(f"this node is client {holding.client}, not {client}")
    try:
        told, deltas = {"hello": _hello, "work": _work, "measure": _measure}[kind](
            letter, holding, policy, shelf or Shelf()
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UpdateRefused(f"a request that cannot be read ({type(error).__name__}: {error})") from error
    return Letter({"nonce": facts["nonce"], **told}, {str(k): Parcel.of(d) for k, d in enumerate(deltas)})


Told = tuple[dict[str, Any], list[torch.Tensor]]


def _hello(letter: Letter, holding: Holding, policy: Policy, shelf: Shelf) -> Told:
    """Whether the node takes part in what the server plans, and what it holds."""
    plan = letter.facts
    solver = build("solver", plan["solver"])
    policy.allow(solver, holding.samples, plan["cohort"], plan["reports"], plan["metrics"])
    return outgoing(policy, "hello", holding.facts())


def _work(letter: Letter, holding: Holding, policy: Policy, shelf: Shelf) -> Told:
    """Pieces of local work, one after the other."""
    facts, me = letter.facts, holding.client
    solver, reports = build("solver", facts["solver"]), frozenset(facts["reports"])
    policy.allow(solver, holding.samples, facts["cohort"], facts["reports"], ())
    oracle = _bound(facts["task"], holding)
    models, shared = _received(letter, oracle.layout.size)
    kept = shelf.read(facts["state"], facts["held"]) if "state" in facts else {}
    memories = Memories(sent=shared, own={me: kept})
    personal = oracle.norms() if facts.get("personal") else None
    done: list[Updates] = []
    for version, stream in zip(facts["versions"], facts["streams"], strict=True):
        piece = Piece(np.zeros(1, dtype=np.int64), np.array([me]), np.array([version]), np.array([stream], np.uint64))
        done.append(piece.work(oracle, solver, models, reports, None, memories, personal))
    if "state" in facts:
        state = {name: rows[0] for name, rows in done[-1].own.items()}
        shelf.write(facts["state"], int(facts["versions"][-1]), state, facts["held"])
    losses = {
        name: [float(getattr(u, name)[0]) for u in done] for name in ("loss_before", "loss_after") if name in reports
    }
    told = {
        "client": holding.client, "versions": list(facts["versions"]), "occurrences": list(facts["occurrences"]),
        "samples": holding.samples, "steps": int(done[0].steps[0]), **losses,
    }  # fmt: skip
    return outgoing(policy, "work", told, done)


def _received(letter: Letter, size: int) -> tuple[dict[int, Vector], dict[int, dict[str, Vector]]]:
    """The models of a request, and what the server shares with them; by version."""
    models: dict[int, Vector] = {}
    shared: dict[int, dict[str, Vector]] = {}
    for key, parcel in letter.parcels.items():
        version, _, name = key.partition("/")
        if name:
            shared.setdefault(int(version), {})[name] = parcel.vector()
        else:
            models[int(version)] = parcel.vector()
    for model in models.values():
        if len(model) != size:
            raise UpdateRefused(f"the model has {len(model)} entries, the task's {size} on these data")
    return models, shared


def _measure(letter: Letter, holding: Holding, policy: Policy, shelf: Shelf) -> Told:
    """Metrics of a model on the node's data."""
    wanted = [str(name) for name in letter.facts["metrics"]]
    if not policy.metrics:
        raise PolicyRefused(f"its policy does not allow metrics on its data: {', '.join(wanted)} (metrics = false)")
    oracle = _bound(letter.facts["task"], holding)
    names = frozenset(f"client_{name}" for name in wanted)
    if not names <= oracle.metrics:
        raise UpdateRefused(f"unknown metrics: {', '.join(sorted(names - oracle.metrics))}")
    theta, facts = letter.parcels["0"].vector(), letter.facts
    if facts.get("personal"):
        theta = Versions(oracle.norms(), Memories(own={0: shelf.read(facts["state"], facts["held"])}))(theta, 0)
    found = oracle.measure(theta, names, lambda f, items: [f(item) for item in items])
    metrics = {name: float(found[f"client_{name}"][0]) for name in wanted}
    return outgoing(policy, "measure", {"client": holding.client, "metrics": metrics})


def _bound(table: Mapping[str, Any], holding: Holding) -> Any:
    """The task on the node's data."""
    options = dict(table)
    return make_task(options.pop("model"), **options).bind(holding)


def _note(folder: Path, request: Mapping[str, Any], reply: Letter, detail: str) -> None:
    """One line in the node's own journal: what was asked, and what left or why nothing did."""
    asked = {name: request.get(name) for name in ("kind", "run", "versions", "cohort", "solver", "reports", "metrics")}
    left = {"refused": reply.facts["refused"]} if "refused" in reply.facts else {"left": sorted(reply.facts)}
    line = {"time": time.time(), **{k: v for k, v in asked.items() if v is not None}, **left, "bytes": reply.size}
    if detail:
        line["detail"] = detail
    with (folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")
