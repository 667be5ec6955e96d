"""The federation for the server of a deployment: registered facts, but no samples."""

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

from poise.apps.deploy.node_curvature import CurvatureRequest
from poise.apps.deploy.node_data import MORE_FORM, placeholder_samples, valid_form
from poise.core.curvature import Curvature
from poise.core.errors import IncompatibleParts, InvalidOption, require
from poise.core.protocols import Oracle
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.tasks.oracle import SampleOracle

RequestBounds = Callable[[CurvatureRequest, Ints], Curvature | None]

NO_DATA = "use parts that need only updates"
# keys of [data] that do not affect a node's samples
SERVER_KEYS = (
    "importance",
    "without",
)


@dataclass(frozen=True, eq=False)
class Remote:
    """Clients whose data are on their nodes.

    Args:
        registered: the registration of each node, in the order of the clients.
        weighing: ``size``, ``equal``, or the importance of each client.
        test_shard: the server's held-out samples.
        spec: the experiment's ``[data]``.
        graph: requests the nodes' directions for the similarity graph, (N, D); None if
            the graph is not available.
        bounds: requests L and mu of these clients' losses (numbers in the deployment);
            None if nodes cannot be asked.
        chosen: each client's number in the deployment, if clients have left; None:
            client i is node i.
        names: of the clients, or None.
    """

    registered: Sequence[Mapping[str, Any]]
    weighing: Any = "size"
    test_shard: Shards | None = None
    spec: Mapping[str, Any] | None = None
    graph: Callable[[int], Floats] | None = None
    chosen: Ints | None = None
    bounds: RequestBounds | None = None
    names: tuple[str, ...] | None = None

    on_demand = False
    measured = False  # metrics on the nodes' data only if the experiment requests them

    @property
    def clients(self) -> int:
        """Number of nodes that take part."""
        return len(self.registered)

    @property
    def members(self) -> Ints:
        """Each client's number in the deployment, (N,): 0 to N - 1 if none has left."""
        if self.chosen is None:
            return np.arange(self.clients)
        return self.chosen

    @cached_property
    def sizes(self) -> Ints:
        """Samples per client, as registered, (N,)."""
        return np.array([r["samples"] for r in self.registered], dtype=np.int64)

    @property
    def altered(self) -> tuple[int, ...]:
        """Clients that clip their updates or add noise to them, by number in the deployment."""
        return tuple(
            int(member)
            for member, facts in zip(self.members, self.registered, strict=True)
            if facts.get("alters")
        )

    @cached_property
    def importance(self) -> Floats:
        """p, (N,)."""
        if isinstance(self.weighing, str):
            require(
                self.weighing in ("size", "equal"),
                f"unknown importance {self.weighing!r}",
                "known: size, equal",
            )
            weights: Floats = np.ones(self.clients)
            if self.weighing == "size":
                weights = self.sizes.astype(np.float64)
        else:
            weights = np.asarray(self.weighing, dtype=np.float64)
            has_shape = weights.shape == (self.clients,)
            require(
                has_shape and bool((weights >= 0).all()) and weights.sum() > 0,
                f"importance must be {self.clients} numbers, 0 or more, not all 0",
            )
        importance: Floats = weights / weights.sum()
        return importance

    @property
    def _form(self) -> Samples:
        """Samples with the shape and classes of the clients', to build the model."""
        if self.test_shard is not None:
            return self.test_shard.samples
        first = self.registered[0]
        return placeholder_samples(first)

    def shards(self, clients: Ints) -> Shards:
        """Empty shards: the server knows the samples' form, but has no samples."""
        no_rows = torch.zeros(0, dtype=torch.int64)
        offsets = np.zeros(len(clients) + 1, dtype=np.int64)
        pool = self._form
        return Shards(pool, no_rows, labels=pool.labels[no_rows], offsets=offsets)

    def client(self, i: int) -> Any:
        """Raises: data do not leave the nodes."""
        raise IncompatibleParts(f"the data of client {i} are on its node", NO_DATA)

    def messages(self) -> Floats:
        """The clients' directions for the similarity graph, (N, D), requested once."""
        return self._messages

    @cached_property
    def _messages(self) -> Floats:
        if self.graph is None:
            raise IncompatibleParts(
                "the similarity graph needs data that are on the nodes", NO_DATA
            )
        pool = self._form
        if pool.tokens:
            return self.graph(pool.vocabulary)
        return self.graph(math.prod(pool.shape))

    def reported_curvature(
        self, oracle: Oracle, batch_size: int | None
    ) -> Curvature | None:
        """L and mu over all nodes, as they report them; None if a node does not."""
        kind = oracle.convex if isinstance(oracle, SampleOracle) else None
        if kind is None or self.bounds is None:
            return None
        return self.bounds(CurvatureRequest(kind, batch_size), self.members)

    def without(self, clients: Sequence[int] | Ints) -> Remote:
        """The federation without these clients; others keep their order (`members`)."""
        gone = sorted({int(c) for c in clients})
        require(
            all(0 <= c < self.clients for c in gone),
            f"without: there is no client {max(gone, default=0)}",
        )
        remaining = np.delete(np.arange(self.clients), gone)
        require(
            len(remaining) > 0, f"without: no client of {self.clients} would be left"
        )
        weighing = self.weighing
        if not isinstance(weighing, str):
            weighing = np.asarray(weighing)[remaining]
        spec = self.spec
        if spec is not None:
            left = {*spec.get("without", ()), *self.members[gone].tolist()}
            spec = {**spec, "without": sorted(left)}
        names = self.names
        if names is not None:
            names = tuple(names[int(c)] for c in remaining)
        return replace(
            self,
            registered=[self.registered[int(c)] for c in remaining],
            weighing=weighing,
            spec=spec,
            chosen=self.members[remaining],
            names=names,
        )

    def digest(self) -> str:
        """A hash of the registered data; a resumed run must have the same."""
        facts: list[Any] = [
            [{k: v for k, v in r.items() if k != "alters"} for r in self.registered],
            np.asarray(self.importance).tolist(),
        ]
        if self.chosen is not None:
            facts.append(self.chosen.tolist())
        text = json.dumps(facts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_registered(
    registrations: Sequence[Mapping[str, Any]],
    spec: Mapping[str, Any] | None,
    most: Sequence[int] | Ints | None = None,
    members: Sequence[int] | Ints | None = None,
) -> None:
    """Raise if registrations are invalid, or contradict each other or the experiment.

    Args:
        registrations: of all nodes, in the order of the clients.
        spec: the experiment's ``[data]``, if it names a data source; None otherwise.
        most: the largest number of samples that each client may register. A client with
            more samples has more weight, so an unlimited number would invite false
            claims.
        members: the clients' numbers in the deployment, if they differ from their
            order.
    """
    if members is None:
        members = range(len(registrations))
    numbers = [int(member) for member in members]
    first = registrations[0]
    for index, (client, facts) in enumerate(zip(numbers, registrations, strict=True)):
        samples = facts.get("samples")
        has_samples = type(samples) is int and samples >= 1
        has_shape = (
            isinstance(facts.get("shape"), list) and type(facts.get("classes")) is int
        )
        if any(name in facts for name in MORE_FORM):
            has_shape = has_shape and valid_form(facts)
        has_data = isinstance(facts.get("data"), Mapping | None)
        require(
            has_samples and has_shape and has_data,
            f"client {client} registered {samples!r} samples: its registration is "
            "invalid",
        )
        if most is not None and facts["samples"] > most[index]:
            raise InvalidOption(
                f"client {client} registered {samples} samples, and can have "
                f"{most[index]}",
                "ask its operator; if the number is right, raise [data] max_samples",
            )
        if (facts["shape"], facts["classes"]) != (first["shape"], first["classes"]):
            raise InvalidOption(
                f"client {client} has samples of shape {facts['shape']} and "
                f"{facts['classes']} classes, "
                f"client {numbers[0]} {first['shape']} and {first['classes']}",
                "all nodes need data of the same form",
            )
        for name in MORE_FORM:
            require(
                facts.get(name) == first.get(name),
                f"client {client} has other {name} than client {numbers[0]}: "
                f"{facts.get(name)} and {first.get(name)}",
                "all nodes need data of the same form",
            )
        source = facts.get("data")
        if spec is not None and source is not None:
            _check_source(client, source, spec)


def _check_source(
    client: int, node_source: Mapping[str, Any], spec: Mapping[str, Any]
) -> None:
    """Raise if a node's data source differs from the experiment's."""
    experiment_source = {**spec, "client": client}
    for key in sorted(experiment_source.keys() | node_source.keys()):
        if key in SERVER_KEYS:
            continue
        wanted = experiment_source.get(key)
        registered = node_source.get(key)
        if wanted != registered:
            raise InvalidOption(
                f"[data] {key} = {wanted!r}, but client {client}'s node holds "
                f"{key} = {registered!r}",
                "create the deployment for this experiment: poise deploy init DIR "
                "--like exp.toml",
            )
