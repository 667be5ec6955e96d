"""The federation as its server knows it: how much everyone holds, and nothing of what."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from poise.apps.deploy.node_data import like
from poise.core.errors import IncompatibleParts, InvalidOption, require
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints

NO_DATA = "use parts that need updates only"
OURS = ("importance", "without")  # keys of [data] that do not change what a node holds


@dataclass(frozen=True, eq=False)
class Remote:
    """Clients whose data are on their nodes.

    Args:
        registered: what each node told when the run began, in the order of the clients.
        weighing: ``size``, ``equal``, or the importance of each client.
        test_shard: held-out samples that the server has.
        spec: the experiment's ``[data]``.
        graph: asks the nodes for their messages of the similarity graph, (N, D); None where nobody
            is to ask.
        chosen: each client's number in the deployment, where some have left; None: client i is node
            i.
    """

    registered: Sequence[Mapping[str, Any]]
    weighing: Any = "size"
    test_shard: Shards | None = None
    spec: Mapping[str, Any] | None = None
    graph: Callable[[int], Floats] | None = None
    chosen: Ints | None = None

    on_demand = False
    measured = False  # nothing is measured on the nodes' data unless the experiment says so

    @property
    def clients(self) -> int:
        """Number of nodes that take part."""
        return len(self.registered)

    @property
    def members(self) -> Ints:
        """Each client's number in the deployment, (N,): 0 to N - 1 unless clients have left
        (`without`).
        """
        return np.arange(self.clients) if self.chosen is None else self.chosen

    @cached_property
    def sizes(self) -> Ints:
        """Samples per client, as registered, (N,)."""
        return np.array([r["samples"] for r in self.registered], dtype=np.int64)

    @cached_property
    def importance(self) -> Floats:
        """p, (N,)."""
        if isinstance(self.weighing, str):
            require(
                self.weighing in ("size", "equal"),
                f"importance = {self.weighing!r} is not known",
                "size, equal",
            )
            given: Floats = (
                self.sizes.astype(np.float64) if self.weighing == "size" else np.ones(self.clients)
            )
        else:
            given = np.asarray(self.weighing, dtype=np.float64)
            fits = given.shape == (self.clients,) and bool((given >= 0).all()) and given.sum() > 0
            require(fits, f"importance must be {self.clients} numbers, 0 or more, not all 0")
        found: Floats = given / given.sum()
        return found

    @property
    def _form(self) -> Samples:
        """Samples of the clients' form, for building the model."""
        if self.test_shard is not None:
            return self.test_shard.samples
        first = self.registered[0]
        return like(tuple(first["shape"]), first["classes"])

    def shards(self, clients: Ints) -> Shards:
        """Nothing: the server holds none of the clients' samples; only their form is known."""
        none = torch.zeros(0, dtype=torch.int64)
        pool = self._form
        return Shards(pool, none, pool.labels[none], np.zeros(len(clients) + 1, dtype=np.int64))

    def client(self, i: int) -> Any:
        """Refused: data do not leave nodes."""
        raise IncompatibleParts(f"the data of client {i} are on its node", NO_DATA)

    def messages(self) -> Floats:
        """The clients' messages for the similarity graph, (N, D), each made on its node; asked for
        once.
        """
        return self._messages

    @cached_property
    def _messages(self) -> Floats:
        if self.graph is None:
            raise IncompatibleParts(
                "the data that a similarity graph is made of are on the nodes", NO_DATA
            )
        pool = self._form
        return self.graph(pool.vocabulary if pool.tokens else math.prod(pool.shape))

    def without(self, clients: Sequence[int] | Ints) -> Remote:
        """The federation that is left when these clients are gone; the others move up, in order
        (`members`).
        """
        gone = sorted({int(c) for c in clients})
        require(
            all(0 <= c < self.clients for c in gone),
            f"without: there is no client {max(gone, default=0)}",
        )
        stay = np.delete(np.arange(self.clients), gone)
        require(len(stay) > 0, f"without: no client of {self.clients} would be left")
        weighing = (
            self.weighing if isinstance(self.weighing, str) else np.asarray(self.weighing)[stay]
        )
        spec = self.spec
        if spec is not None:
            spec = {
                **spec,
                "without": sorted({*spec.get("without", ()), *self.members[gone].tolist()}),
            }
        left = [self.registered[int(c)] for c in stay]
        return replace(
            self, registered=left, weighing=weighing, spec=spec, chosen=self.members[stay]
        )

    def digest(self) -> str:
        """A hash of what was registered: a run goes on with the nodes that it began with."""
        facts: list[Any] = [
            [dict(r) for r in self.registered],
            np.asarray(self.importance).tolist(),
        ]
        if self.chosen is not None:
            facts.append(self.chosen.tolist())
        return hashlib.blake2b(
            json.dumps(facts, sort_keys=True).encode(), digest_size=16
        ).hexdigest()


def check_registered(
    found: Sequence[Mapping[str, Any]],
    spec: Mapping[str, Any] | None,
    most: Sequence[int] | Ints | None = None,
    members: Sequence[int] | Ints | None = None,
) -> None:
    """Refuse nodes that do not fit each other, or a trial whose nodes hold other data than the
    experiment names.

    ``most`` is the largest number of samples that each may register: who claims more would count
    for more. ``members`` are their numbers in the deployment, where that is not their order.
    """
    numbers = list(range(len(found)) if members is None else map(int, members))
    for place, (client, facts) in enumerate(zip(numbers, found, strict=True)):
        whole = type(facts.get("samples")) is int and facts["samples"] >= 1
        form = isinstance(facts.get("shape"), list) and type(facts.get("classes")) is int
        form = form and isinstance(facts.get("data"), Mapping | None)
        require(
            whole and form,
            f"client {client} registered {facts.get('samples')!r} samples: it does not fit",
        )
        if most is not None and facts["samples"] > most[place]:
            raise InvalidOption(
                f"client {client} registered {facts['samples']} samples, and can have {most[place]}",
                "ask its operator; if the number is right, raise [data] max_samples",
            )
        first = found[0]
        if (facts["shape"], facts["classes"]) != (first["shape"], first["classes"]):
            raise InvalidOption(
                f"client {client} has samples of shape {facts['shape']} and {facts['classes']} classes, "
                f"client {numbers[0]} {first['shape']} and {first['classes']}",
                "all nodes need data of one form",
            )
        told = facts.get("data")
        if spec is not None and told is not None:
            mine = {k: v for k, v in {**spec, "client": client}.items() if k not in OURS}
            theirs = {k: v for k, v in told.items() if k not in OURS}
            other = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
            if other:
                key = other[0]
                raise InvalidOption(
                    f"[data] {key} = {mine.get(key)!r}, but client {client}'s node holds {key} = {theirs.get(key)!r}",
                    "make the deployment for this experiment: poise deploy init DIR --like exp.toml",
                )
