"""Work on real nodes: whole pieces of it are asked for, and every reply is examined before it counts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from poise.backends.letters import Letter, Parcel
from poise.backends.post import Post, current
from poise.backends.replies import Asked, objection
from poise.core.errors import IncompatibleParts, UpdateRefused, require
from poise.core.memory import Memories, memory_of
from poise.core.parts import describe, part
from poise.core.protocols import Oracle, Solver
from poise.core.rng import keys
from poise.core.types import Flight, Ints, Updates
from poise.core.vectors import Stack, Vector

OF_CLIENTS = ("client_", "train_")


@part("backend", "flower")
class Flower:
    """Run on the nodes of a deployment (``poise deploy``), one client on each, with data that never leave them.

    Held-out metrics are measured by the server; ``client_*`` and ``train_*`` by nodes whose policy allows it.

    Args:
        patience: seconds that a node may take for one piece of work, times when it is away included.
        max_norm: longest update that is accepted; None for any length.
    """

    patience: float = 600.0
    max_norm: float | None = None

    @property
    def device(self) -> str:
        """Where the server's part of the work is done."""
        return "cpu"

    def __post_init__(self) -> None:
        require(self.patience > 0, f"Flower: patience must be above 0, not {self.patience}")
        require(self.max_norm is None or self.max_norm > 0, f"Flower: max_norm must be above 0, not {self.max_norm}")

    def open(
        self, oracle: Oracle, solver: Solver, sizes: Ints, seed: int, personal: torch.Tensor | None = None
    ) -> FlowerNodes:
        """Find the way to the nodes; refuse what would have to be kept between rounds."""
        post = current()
        if personal is not None or memory_of(solver) is not None:
            what = type(solver).__name__ if personal is None else "personal"
            raise IncompatibleParts(
                f"{what}: clients would keep state between rounds, which nodes do not do yet",
                "use a solver without client state",
            )
        return FlowerNodes(oracle, solver, sizes, seed, post, self.patience, self.max_norm or float("inf"))


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
    _answered: set[str] = field(default_factory=set, repr=False)

    def work(
        self, models: Mapping[int, Vector], flights: Sequence[Flight], reports: frozenset[str],
        spare: Stack | None = None, memories: Memories | None = None,
    ) -> Updates:  # fmt: skip
        """Ask each client for all its pieces in one letter; what fails the examination is a row with a reason."""
        rows = {c: [k for k, f in enumerate(flights) if f.client == c] for c in sorted({f.client for f in flights})}
        asked = {c: self._asked(c, [flights[k] for k in mine], models, reports) for c, mine in rows.items()}
        letters = {c: self._letter(c, a, models, len(rows)) for c, a in asked.items()}
        replies = self.post.ask(letters, self.patience)
        found = _Table.empty(len(flights), next(iter(models.values())), reports)
        for client, mine in rows.items():
            reply = replies[client]
            reason = reply if isinstance(reply, str) else objection(reply, asked[client], self._answered)
            self._answered.add(asked[client].nonce)
            if reason or isinstance(reply, str):
                found.refuse(mine, reason, asked[client])
            else:
                found.take(mine, reply, asked[client])
        return found.updates()

    def _asked(
        self, client: int, flights: Sequence[Flight], models: Mapping[int, Vector], reports: frozenset[str]
    ) -> Asked:
        model = models[flights[0].version]
        steps = int(self.solver.steps_for(self.sizes[[client]])[0])
        return Asked(
            self.post.number(client), self.post.nodes[client], secrets.token_hex(16), tuple(f.version for f in flights),
            tuple(f.occurrence for f in flights), len(model), model.dtype, int(self.sizes[client]), steps, reports,
            self.max_norm,
        )  # fmt: skip

    def _letter(self, client: int, asked: Asked, models: Mapping[int, Vector], cohort: int) -> Letter:
        streams = keys(self.seed, "work", np.array(asked.versions), client, np.array(asked.occurrences))
        facts = {
            **self.post.common("work", client), "nonce": asked.nonce, "cohort": cohort,
            "versions": asked.versions, "occurrences": asked.occurrences, "streams": [int(s) for s in streams],
            "solver": describe(self.solver), "reports": sorted(asked.reports),
        }  # fmt: skip
        return Letter(facts, {str(v): Parcel.of(models[v]) for v in sorted(set(asked.versions))})

    def measure(self, theta: Vector, names: frozenset[str], memories: Memories | None = None) -> dict[str, Any]:
        """Held-out metrics here; those of the clients' data on their nodes, where their policies allow it."""
        theirs = frozenset(n for n in names if n.startswith(OF_CLIENTS))
        result = self.oracle.measure(theta, names - theirs, _one_by_one) if names - theirs else {}
        if theirs:
            wanted = sorted({n.split("_", 1)[1] for n in theirs})
            values = self._of_clients(theta, wanted)
            weights = self.sizes / self.sizes.sum()
            importance = getattr(getattr(self.oracle, "federation", None), "importance", weights)
            every: dict[str, Any] = {f"client_{n}": v for n, v in values.items()}
            every |= {f"train_{n}": float(importance @ v) for n, v in values.items()}
            result |= {n: every[n] for n in theirs}
        return {name: result[name] for name in sorted(names)}

    def _of_clients(self, theta: Vector, wanted: list[str]) -> dict[str, np.ndarray]:
        """Each metric of each client's data, (N,); raises where a node does not tell."""
        letters = {
            c: Letter({**self.post.common("measure", c), "metrics": wanted}, {"0": Parcel.of(theta)})
            for c in range(len(self.sizes))
        }
        values = {name: np.empty(len(letters)) for name in wanted}
        for client, reply in self.post.ask(letters, self.patience).items():
            told = (
                reply if isinstance(reply, str) else self._told(reply, client, letters[client].facts["nonce"], wanted)
            )
            if isinstance(told, str):
                raise UpdateRefused(f"client {self.post.number(client)} was asked for metrics and sent {told}")
            for name in wanted:
                values[name][client] = told[name]
        return values

    def _told(self, reply: Letter, client: int, nonce: str, wanted: list[str]) -> dict[str, float] | str:
        """The metrics in a reply, or what is wrong with it."""
        facts = reply.facts
        if reply.sender != self.post.nodes[client] or facts.get("nonce") != nonce:
            return "a reply to another request"
        if "refused" in facts:
            return f"a refusal: {str(facts['refused'])[:500]}"
        found = facts.get("metrics")
        if not isinstance(found, dict) or set(found) != set(wanted):
            return "other metrics than those asked for"
        if not all(isinstance(v, float) and np.isfinite(v) for v in found.values()):
            return "metrics that are not finite"
        return found

    def close(self) -> None:
        """Nothing is held: the nodes stay up for the next run."""


@dataclass
class _Table:
    """Rows of updates, filled reply by reply."""

    deltas: Stack
    columns: dict[str, np.ndarray]
    reasons: list[str]

    @classmethod
    def empty(cls, rows: int, like: Vector, reports: frozenset[str]) -> _Table:
        whole = {"samples": np.zeros(rows, dtype=np.int64), "steps": np.zeros(rows, dtype=np.int64)}
        losses = {name: np.full(rows, np.nan) for name in sorted(reports)}
        return cls(like.new_zeros((rows, len(like))), {**whole, **losses}, [""] * rows)

    def refuse(self, rows: Sequence[int], reason: str, asked: Asked) -> None:
        """These rows hold nothing that may be used."""
        for row in rows:
            self.reasons[row] = reason
            self.columns["samples"][row], self.columns["steps"][row] = asked.samples, asked.steps

    def take(self, rows: Sequence[int], reply: Letter, asked: Asked) -> None:
        """Rows from a reply that was examined."""
        for k, row in enumerate(rows):
            self.deltas[row] = reply.parcels[str(k)].vector()
            self.columns["samples"][row], self.columns["steps"][row] = asked.samples, asked.steps
            for name in asked.reports:
                self.columns[name][row] = reply.facts[name][k]

    def updates(self) -> Updates:
        """All rows."""
        norms = torch.linalg.vector_norm(self.deltas, dim=1).double().numpy()
        columns: dict[str, Any] = {"loss_before": None, "loss_after": None, **self.columns}
        return Updates(self.deltas, norms, **columns, reasons=tuple(self.reasons) if any(self.reasons) else ())


def _one_by_one(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    torch.set_num_threads(1)
    return [function(item) for item in items]
