"""Work on real nodes: whole pieces of it are asked for, and every reply is examined before it
counts.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.reply_checks import Asked, PayloadForm, astray, objection
from poise.backends.flower.reply_table import NOTHING, Answer, Table
from poise.backends.flower.transport import PAUSE, Outbox, Transport, current
from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.arrivals import Arrivals
from poise.core.errors import require
from poise.core.neighbours import MEAN
from poise.core.parts import describe, part
from poise.core.protocols import Owners, WorkOrder
from poise.core.rng import keys
from poise.core.types import HELD, Assignment
from poise.core.vectors import Stack, Vector
from poise.engine.local_work import LocalWork
from poise.engine.realtime import Key

OF_CLIENTS = ("client_", "train_")


@part("backend", "flower")
class Flower:
    """Run on the nodes of a deployment (``poise deploy``), one client on each, with data that never
    leave them.

    Held-out metrics are measured by the server; ``client_*`` and ``train_*`` by nodes whose policy
    allows it. What clients remember between rounds (`Scaffold`, personal layers, …) stays on their
    nodes.

    Args:
        patience: seconds that a node may take for one piece of work, times when it is away
            included.
        max_norm: longest update that is accepted; None for any length.
        time: ``real``: the clock goes by the seconds in which nodes really answer, whatever
            durations it names; ``simulated``: by its durations, as it would without nodes.
    """

    patience: float = 600.0
    max_norm: float | None = None
    time: Literal["real", "simulated"] = "real"

    @property
    def device(self) -> str:
        """Where the server's part of the work is done."""
        return "cpu"

    def __post_init__(self) -> None:
        require(self.patience > 0, f"Flower: patience must be above 0, not {self.patience}")
        require(
            self.max_norm is None or self.max_norm > 0,
            f"Flower: max_norm must be above 0, not {self.max_norm}",
        )
        require(
            self.time in ("real", "simulated"),
            f"Flower: time = {self.time!r}",
            "known: real, simulated",
        )

    def open(self, local: LocalWork, clients: Owners, seed: int) -> FlowerNodes:
        """Find the way to the nodes."""
        return FlowerNodes(local, clients, seed, post=current(), options=self)


@dataclass
class FlowerNodes:
    """The nodes of a deployment, as a backend."""

    local: LocalWork
    clients: Owners
    seed: int
    post: Transport
    options: Flower
    _box: Outbox = field(init=False, repr=False)
    _asked: dict[str, tuple[Asked, list[Key]]] = field(
        default_factory=dict, repr=False
    )  # by the name of the letter
    _answers: dict[Key, Answer] = field(default_factory=dict, repr=False)
    _payload: PayloadForm | None = field(default=None, repr=False)
    _answered: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self._box = Outbox(self.post)

    @property
    def real_time(self) -> bool:
        """Whether the clock goes by the seconds in which nodes really answer."""
        return self.options.time == "real"

    @property
    def remembers(self) -> bool:
        """Whether clients keep something from one piece of work to the next."""
        wire = self.local.wire
        remembering = memory_of(self.local.solver) is not None
        return wire.personal is not None or bool(wire.keeps) or remembering

    def hand_out(self, order: WorkOrder, at_work: int) -> None:
        """Ask each client for all its pieces in one letter."""
        pieces = sorted(order.assignments, key=lambda f: f.client)
        for client, own in groupby(pieces, key=lambda f: f.client):
            mine = list(own)
            asked = self._asked_of(client, mine, order)
            self._box.put(
                client, self._letter(client, asked, order, at_work), self.options.patience
            )
            self._asked[asked.nonce] = (asked, [f.key for f in mine])
        self._box.send()

    def answered(self, wait: float) -> list[Key]:
        """Look for answers, until there are some or the time is over; each is examined on the
        spot.
        """
        until = time.monotonic() + wait
        while True:
            came: list[Key] = []
            for name, reply in self._box.look().items():
                asked, pieces = self._asked.pop(name)
                reason = (
                    reply if isinstance(reply, str) else objection(reply, asked, self._answered)
                )
                self._answered.add(name)
                self._answers |= {key: (k, asked, reply, reason) for k, key in enumerate(pieces)}
                came += pieces
            left = until - time.monotonic()
            if came or left <= 0:
                return came
            time.sleep(min(PAUSE, left))

    def call_off(self, assignments: Iterable[Assignment]) -> None:
        """Answers to these are not waited for, and refused if they come."""
        off = {f.key for f in assignments}
        for name, (_, pieces) in list(self._asked.items()):
            if off.issuperset(pieces):
                self._box.drop(name)
                del self._asked[name]
        for key in off:
            self._answers.pop(key, None)

    def seconds(self) -> float:
        """A clock on the wall."""
        return time.monotonic()

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """The answers to these pieces of work; what fails the examination is a row with a
        reason.
        """
        out = {key for _, pieces in self._asked.values() for key in pieces} | self._answers.keys()
        new = [f for f in order.assignments if f.key not in out]
        self.hand_out(replace(order, assignments=new), at_work=len({f.client for f in new}))
        while any(f.key not in self._answers for f in order.assignments):
            self.answered(self.options.patience)
        table = Table.empty(len(order.assignments), self._form(order), order.reports)
        for row, f in enumerate(order.assignments):
            table.enter(row, self._answers.pop(f.key))
        return table.arrivals([f.version for f in order.assignments] if self.remembers else None)

    def map_workers(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """One item after the other: the server of a deployment has no workers of its own."""
        torch.set_num_threads(1)
        return [function(item) for item in items]

    def _form(self, order: WorkOrder) -> PayloadForm:
        """The form of all payloads of the run."""
        if self._payload is None:
            self._payload = PayloadForm(self.local.wire, next(iter(order.models.values())))
        return self._payload

    def _asked_of(self, client: int, assignments: Sequence[Assignment], order: WorkOrder) -> Asked:
        """What a client is asked for, to compare its reply with."""
        steps = int(self.local.solver.steps_for(self.clients.sizes[[client]])[0])
        return Asked(
            client=self.post.number(client),
            node=self.post.nodes[client],
            nonce=secrets.token_hex(16),
            versions=tuple(f.version for f in assignments),
            occurrences=tuple(f.occurrence for f in assignments),
            form=self._form(order),
            samples=int(self.clients.sizes[client]),
            steps=steps,
            reports=order.reports,
            max_norm=self.options.max_norm or float("inf"),
        )

    def _letter(self, client: int, asked: Asked, order: WorkOrder, at_work: int) -> NodeMessage:
        """The request: what to do, from which models, with what the server shares."""
        streams = keys(
            self.seed, "work", np.array(asked.versions), client, np.array(asked.occurrences)
        )
        facts = {
            **self.post.common("work", client),
            "nonce": asked.nonce,
            "cohort": at_work,
            "versions": asked.versions,
            "occurrences": asked.occurrences,
            "streams": [int(s) for s in streams],
            "solver": describe(self.local.solver),
            **self._channel(),
            "update_bytes": asked.form.bytes,
            "reports": sorted(asked.reports),
            **self._state(client, order.algorithm_state),
        }
        tensors: dict[str, TensorBytes] = {}
        mean = order.algorithm_state.client_state.get(client, {}).get(
            MEAN
        )  # by number in the run: others may have left
        for version in sorted(set(asked.versions)):
            tensors[str(version)] = TensorBytes.of(self._model(order.models[version], facts))
            for name, vector in order.algorithm_state.sent.get(version, {}).items():
                tensors[f"{version}/{name}"] = TensorBytes.of(vector)
            if mean is not None:
                tensors[f"{version}/{MEAN}"] = TensorBytes.of(mean)
        return NodeMessage(facts, tensors)

    def _channel(self) -> dict[str, Any]:
        channel = self.local.wire.channel
        return {} if channel is None else {"channel": describe(channel)}

    def _model(self, model: Vector, facts: Mapping[str, Any]) -> Vector:
        """A model as it is sent: a client that has personal entries is sent the others only."""
        wire = self.local.wire
        if wire.personal is None or facts["held"] == NOTHING:
            return model
        return model[wire.travelling]

    def _state(self, client: int, algorithm_state: AlgorithmState) -> dict[str, Any]:
        """Which of its states a client is to work from: the one it had after the last work that
        counted.
        """
        if not self.remembers:
            return {}
        held = algorithm_state.client_state.get(client, {}).get(HELD)
        return {
            "state": self.post.state,
            "held": NOTHING if held is None else int(held[0]),
            "personal": list(self.local.wire.stays),
        }

    def measure(
        self, theta: Vector, names: frozenset[str], algorithm_state: AlgorithmState
    ) -> dict[str, Any]:
        """Held-out metrics here; those of the clients' data on their nodes, where their policies
        allow it.
        """
        theirs = frozenset(n for n in names if n.startswith(OF_CLIENTS))
        result = (
            self.local.oracle.measure(theta, names - theirs, self.map_workers)
            if names - theirs
            else {}
        )
        if theirs:
            wanted = sorted({n.split("_", 1)[1] for n in theirs})
            values = self._of_clients(theta, wanted, algorithm_state)
            importance = self.clients.importance
            every: dict[str, Any] = {f"client_{n}": v for n, v in values.items()}
            every |= {f"train_{n}": _mean(importance, v) for n, v in values.items()}
            result |= {n: every[n] for n in theirs}
        return {name: result[name] for name in sorted(names)}

    def _of_clients(
        self, theta: Vector, wanted: list[str], algorithm_state: AlgorithmState
    ) -> dict[str, np.ndarray]:
        """Each metric of each client's data, (N,); nan where a node does not tell: nobody ends the
        run of all.
        """
        letters = {
            c: NodeMessage(
                {
                    **self.post.common("measure", c),
                    "metrics": wanted,
                    **self._state(c, algorithm_state),
                },
                {"0": TensorBytes.of(theta)},
            )
            for c in range(len(self.clients.sizes))
        }
        values = {name: np.full(len(letters), np.nan) for name in wanted}
        for client, reply in self.post.ask(letters, self.options.patience).items():
            told = (
                reply
                if isinstance(reply, str)
                else self._told(reply, client, letters[client].facts["nonce"], wanted)
            )
            if isinstance(told, str):
                who = self.post.number(client)
                warnings.warn(f"client {who} was asked for metrics and sent {told}", stacklevel=2)
                continue
            for name in wanted:
                values[name][client] = told[name]
        return values

    def _told(
        self, reply: NodeMessage, client: int, nonce: str, wanted: list[str]
    ) -> dict[str, float] | str:
        """The metrics in a reply, or what is wrong with it."""
        if wrong := astray(reply, self.post.nodes[client], nonce):
            return wrong
        found = reply.facts.get("metrics")
        if not isinstance(found, dict) or set(found) != set(wanted):
            return "other metrics than those asked for"
        if not all(isinstance(v, float) and np.isfinite(v) for v in found.values()):
            return "metrics that are not finite"
        return found

    def close(self) -> None:
        """Nothing is held: the nodes stay up for the next run."""


def _mean(importance: np.ndarray, values: np.ndarray) -> float:
    """By importance, over those who told; nan where nobody did."""
    there = ~np.isnan(values)
    return (
        float(importance[there] @ values[there] / importance[there].sum())
        if there.any()
        else float("nan")
    )
