"""Work on real nodes: whole pieces of it are asked for, and every reply is examined before it counts."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch

from poise.backends.letters import Letter, Parcel
from poise.backends.post import PAUSE, Mailbox, Post, current
from poise.backends.replies import Asked, astray, objection
from poise.backends.table import HELD, NOTHING, Answer, Table
from poise.core.errors import require
from poise.core.memory import Memories, memory_of
from poise.core.neighbours import MEAN
from poise.core.parts import describe, part
from poise.core.protocols import Oracle, Solver
from poise.core.realtime import Key
from poise.core.rng import keys
from poise.core.types import Flight, Ints, Updates
from poise.core.vectors import Stack, Vector

OF_CLIENTS = ("client_", "train_")


@part("backend", "flower")
class Flower:
    """Run on the nodes of a deployment (``poise deploy``), one client on each, with data that never leave them.

    Held-out metrics are measured by the server; ``client_*`` and ``train_*`` by nodes whose policy allows it. What
    clients remember between rounds (`Scaffold`, personal layers, …) stays on their nodes.

    Args:
        patience: seconds that a node may take for one piece of work, times when it is away included.
        max_norm: longest update that is accepted; None for any length.
        time: ``real``: the clock goes by the seconds in which nodes really answer, whatever durations it names;
            ``simulated``: by its durations, as it would without nodes.
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
        require(self.max_norm is None or self.max_norm > 0, f"Flower: max_norm must be above 0, not {self.max_norm}")
        require(self.time in ("real", "simulated"), f"Flower: time = {self.time!r}", "known: real, simulated")

    def open(
        self, oracle: Oracle, solver: Solver, sizes: Ints, seed: int, personal: torch.Tensor | None = None
    ) -> FlowerNodes:
        """Find the way to the nodes."""
        limit = self.max_norm or float("inf")
        return FlowerNodes(
            oracle, solver, sizes, seed, current(), self.patience, limit, self.time == "real", personal is not None
        )


@dataclass
class FlowerNodes:
    """The nodes of a deployment, as a backend."""

    oracle: Oracle
    solver: Solver
    sizes: Ints
    seed: int
    post: Post
    patience: float
    max_norm: float
    real_time: bool = False
    personal: bool = False
    _box: Mailbox = field(init=False, repr=False)
    _asked: dict[str, tuple[Asked, list[Key]]] = field(default_factory=dict, repr=False)  # by the name of the letter
    _answers: dict[Key, Answer] = field(default_factory=dict, repr=False)
    _answered: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self._box = Mailbox(self.post)

    @property
    def remembers(self) -> bool:
        """Whether clients keep something from one piece of work to the next."""
        return self.personal or memory_of(self.solver) is not None

    def hand_out(
        self, flights: Iterable[Flight], models: Mapping[int, Vector], memories: Memories | None, at_work: int,
        reports: frozenset[str],
    ) -> None:  # fmt: skip
        """Ask each client for all its pieces in one letter."""
        pieces = sorted(flights, key=lambda f: f.client)
        for client, own in groupby(pieces, key=lambda f: f.client):
            mine = list(own)
            asked = self._order(client, mine, models, reports)
            self._box.put(client, self._letter(client, asked, models, memories or Memories(), at_work), self.patience)
            self._asked[asked.nonce] = (asked, [f.key for f in mine])
        self._box.send()

    def answered(self, wait: float) -> list[Key]:
        """Look for answers, until there are some or the time is over; each is examined on the spot."""
        until = time.monotonic() + wait
        while True:
            came: list[Key] = []
            for name, reply in self._box.look().items():
                asked, pieces = self._asked.pop(name)
                reason = reply if isinstance(reply, str) else objection(reply, asked, self._answered)
                self._answered.add(name)
                self._answers |= {key: (k, asked, reply, reason) for k, key in enumerate(pieces)}
                came += pieces
            left = until - time.monotonic()
            if came or left <= 0:
                return came
            time.sleep(min(PAUSE, left))

    def call_off(self, flights: Iterable[Flight]) -> None:
        """Answers to these are not waited for, and refused if they come."""
        off = {f.key for f in flights}
        for name, (_, pieces) in list(self._asked.items()):
            if off.issuperset(pieces):
                self._box.drop(name)
                del self._asked[name]
        for key in off:
            self._answers.pop(key, None)

    def seconds(self) -> float:
        """A clock on the wall."""
        return time.monotonic()

    def work(
        self, models: Mapping[int, Vector], flights: Sequence[Flight], reports: frozenset[str],
        spare: Stack | None = None, memories: Memories | None = None,
    ) -> Updates:  # fmt: skip
        """The answers to these pieces of work; what fails the examination is a row with a reason."""
        out = {key for _, pieces in self._asked.values() for key in pieces} | self._answers.keys()
        new = [f for f in flights if f.key not in out]
        self.hand_out(new, models, memories, len({f.client for f in new}), reports)
        while any(f.key not in self._answers for f in flights):
            self.answered(self.patience)
        found = Table.empty(len(flights), next(iter(models.values())), reports)
        for row, f in enumerate(flights):
            found.enter(row, *self._answers.pop(f.key))
        return found.updates([f.version for f in flights] if self.remembers else None)

    def _order(
        self, client: int, flights: Sequence[Flight], models: Mapping[int, Vector], reports: frozenset[str]
    ) -> Asked:
        model = models[flights[0].version]
        steps = int(self.solver.steps_for(self.sizes[[client]])[0])
        return Asked(
            self.post.number(client), self.post.nodes[client], secrets.token_hex(16), tuple(f.version for f in flights),
            tuple(f.occurrence for f in flights), len(model), model.dtype, int(self.sizes[client]), steps, reports,
            self.max_norm,
        )  # fmt: skip

    def _letter(
        self, client: int, asked: Asked, models: Mapping[int, Vector], memories: Memories, at_work: int
    ) -> Letter:
        streams = keys(self.seed, "work", np.array(asked.versions), client, np.array(asked.occurrences))
        facts = {
            **self.post.common("work", client), "nonce": asked.nonce, "cohort": at_work,
            "versions": asked.versions, "occurrences": asked.occurrences, "streams": [int(s) for s in streams],
            "solver": describe(self.solver), "reports": sorted(asked.reports), **self._state(client, memories),
        }  # fmt: skip
        versions = sorted(set(asked.versions))
        parcels = {str(v): Parcel.of(models[v]) for v in versions}
        shared = {
            f"{v}/{name}": Parcel.of(vector) for v in versions for name, vector in memories.sent.get(v, {}).items()
        }
        mean = memories.own.get(client, {}).get(MEAN)  # by number in the run: others may have left
        beside = {} if mean is None else {f"{v}/{MEAN}": Parcel.of(mean) for v in versions}
        return Letter(facts, {**parcels, **shared, **beside})

    def _state(self, client: int, memories: Memories | None) -> dict[str, Any]:
        """Which of its states a client is to work from: the one it had after the last work that counted."""
        if not self.remembers:
            return {}
        held = ({} if memories is None else memories.own.get(client, {})).get(HELD)
        return {
            "state": self.post.state, "held": NOTHING if held is None else int(held[0]), "personal": self.personal,
        }  # fmt: skip

    def measure(self, theta: Vector, names: frozenset[str], memories: Memories | None = None) -> dict[str, Any]:
        """Held-out metrics here; those of the clients' data on their nodes, where their policies allow it."""
        theirs = frozenset(n for n in names if n.startswith(OF_CLIENTS))
        result = self.oracle.measure(theta, names - theirs, _one_by_one) if names - theirs else {}
        if theirs:
            wanted = sorted({n.split("_", 1)[1] for n in theirs})
            values = self._of_clients(theta, wanted, memories)
            weights = self.sizes / self.sizes.sum()
            importance = getattr(getattr(self.oracle, "federation", None), "importance", weights)
            every: dict[str, Any] = {f"client_{n}": v for n, v in values.items()}
            every |= {f"train_{n}": _mean(importance, v) for n, v in values.items()}
            result |= {n: every[n] for n in theirs}
        return {name: result[name] for name in sorted(names)}

    def _of_clients(self, theta: Vector, wanted: list[str], memories: Memories | None) -> dict[str, np.ndarray]:
        """Each metric of each client's data, (N,); nan where a node does not tell: nobody ends the run of all."""
        letters = {
            c: Letter(
                {**self.post.common("measure", c), "metrics": wanted, **self._state(c, memories)},
                {"0": Parcel.of(theta)},
            )
            for c in range(len(self.sizes))
        }
        values = {name: np.full(len(letters), np.nan) for name in wanted}
        for client, reply in self.post.ask(letters, self.patience).items():
            told = (
                reply if isinstance(reply, str) else self._told(reply, client, letters[client].facts["nonce"], wanted)
            )
            if isinstance(told, str):
                who = self.post.number(client)
                warnings.warn(f"client {who} was asked for metrics and sent {told}", stacklevel=2)
                continue
            for name in wanted:
                values[name][client] = told[name]
        return values

    def _told(self, reply: Letter, client: int, nonce: str, wanted: list[str]) -> dict[str, float] | str:
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
    return float(importance[there] @ values[there] / importance[there].sum()) if there.any() else float("nan")


def _one_by_one(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    torch.set_num_threads(1)
    return [function(item) for item in items]
