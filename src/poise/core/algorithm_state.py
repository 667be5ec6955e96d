"""The vectors that server and clients keep between rounds.

Solvers with a `Memory` (SCAFFOLD, FedDyn, …), channels, attacks and personal layers
keep such vectors. `AlgorithmState` holds all of them; `LocalState` holds those of one
group of clients while they work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch

from poise.core.capabilities import declares
from poise.core.protocols import Memory, Remembers, Solver, Transform
from poise.core.round_updates import RoundUpdates
from poise.core.types import PERSONAL, Ints
from poise.core.vectors import Stack, Vector

NamedVectors = Mapping[str, Vector]


def memory_of(solver: Solver) -> Memory | None:
    """Return the solver's memory; None for a solver without one."""
    if not declares(type(solver), "memory"):
        return None
    return cast(Remembers, solver).memory


@dataclass(frozen=True)
class AlgorithmState:
    """The vectors that server and clients keep between rounds.

    Args:
        shared: the server's vectors, by name.
        sent: the shared vectors that went out with each model version still in flight,
            by version.
        client_state: each client's own vectors, by client.
    """

    shared: NamedVectors = field(default_factory=dict)
    sent: Mapping[int, NamedVectors] = field(default_factory=dict)
    client_state: Mapping[int, NamedVectors] = field(default_factory=dict)

    def sending(self, version: int) -> AlgorithmState:
        """Return the state after shared vectors went out with this model version."""
        if not self.shared:
            return self
        return replace(self, sent={**self.sent, version: self.shared})

    def landed(self, versions_in_flight: Iterable[int]) -> AlgorithmState:
        """Return the state without sent vectors of versions that nobody works on."""
        if not self.sent:
            return self
        still_in_flight = set(versions_in_flight)
        sent = {v: vectors for v, vectors in self.sent.items() if v in still_in_flight}
        return replace(self, sent=sent)

    def rows(
        self, names: Sequence[str], clients: Sequence[int], otherwise: Stack
    ) -> dict[str, Stack]:
        """Stack the named vectors of these clients, one row per client.

        A client that keeps no vector of a name gets its row of ``otherwise``.
        """
        stacks: dict[str, Stack] = {}
        for name in names:
            rows = []
            for row, client in enumerate(clients):
                vector = self.client_state.get(client, {}).get(name)
                if vector is None:
                    vector = otherwise[row]
                rows.append(vector)
            stacks[name] = torch.stack(rows)
        return stacks

    def tensors(self) -> dict[str, Vector]:
        """Return the server's vectors under flat names, as the ledger stores them."""
        flat = {f"shared/{name}": vector for name, vector in self.shared.items()}
        for version, vectors in self.sent.items():
            for name, vector in vectors.items():
                flat[f"sent/{version}/{name}"] = vector
        return flat

    @classmethod
    def of(
        cls, tensors: NamedVectors, client_state: Mapping[int, NamedVectors]
    ) -> AlgorithmState:
        """Rebuild the state from tensors in the ledger; the inverse of `tensors`."""
        shared: dict[str, Vector] = {}
        sent: dict[int, dict[str, Vector]] = {}
        for key, vector in tensors.items():
            if key.startswith("shared/"):
                shared[key.removeprefix("shared/")] = vector
            elif key.startswith("sent/"):
                _, version, name = key.split("/", 2)
                sent.setdefault(int(version), {})[name] = vector
        return cls(shared, sent, client_state)


@dataclass(frozen=True)
class LocalState:
    """The vectors of a group of clients when it starts to work on one model version."""

    memory: Memory | None
    shared: NamedVectors
    client_state: Mapping[str, Stack]

    @classmethod
    def of(
        cls,
        solver: Solver,
        algorithm_state: AlgorithmState,
        clients: Sequence[int],
        version: int,
        start: Stack,
    ) -> LocalState:
        """Look up the vectors of these clients.

        Before the server has sent shared vectors, clients use the memory's initial
        ones.
        """
        memory = memory_of(solver)
        if memory is None:
            return cls(None, {}, {})
        shared = algorithm_state.sent.get(version) or memory.shared(start[0])
        client_state: dict[str, Stack] = {}
        for name in memory.keeps:
            initial = memory.begins(name, start)
            client_state |= algorithm_state.rows([name], clients, otherwise=initial)
        return cls(memory, shared, client_state)

    def point(self) -> Callable[[Stack], Stack] | None:
        """Return the map to the points of the gradients; None for the own models."""
        if self.memory is None:
            return None
        return self.memory.point(self.client_state)

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """Return the transforms that the memory adds to the clients' gradients."""
        if self.memory is None:
            return ()
        return self.memory.terms(start, self.shared, self.client_state)

    def directions(self, start: Stack) -> tuple[Transform, ...]:
        """Return the transforms of the memory that follow those of the step rule."""
        if self.memory is None:
            return ()
        return self.memory.directions(start, self.client_state)

    def after(self, deltas: Stack, steps: Ints, rate: float) -> Mapping[str, Stack]:
        """Return the vectors that each client keeps after its work."""
        if self.memory is None or not self.memory.keeps:
            return {}
        return self.memory.client_state_after(
            self.client_state, self.shared, deltas, steps, rate
        )


def absorb_updates(
    memory: Memory, algorithm_state: AlgorithmState, updates: RoundUpdates
) -> tuple[AlgorithmState, Vector | None]:
    """Update the server's vectors; return the state and any shift of the direction."""
    if not len(updates):
        return algorithm_state, None
    versions = updates.versions.tolist()
    sent = {
        name: torch.stack([algorithm_state.sent[version][name] for version in versions])
        for name in algorithm_state.shared
    }
    shared, shift = memory.absorb(algorithm_state.shared, updates, sent)
    return replace(algorithm_state, shared=shared), shift


@dataclass(frozen=True)
class PersonalModels:
    """Turns the global model into a client's own version of it."""

    positions: torch.Tensor
    algorithm_state: AlgorithmState

    def __call__(self, theta: Vector, client: int) -> Vector:
        """Return the model with the client's personal values, if it has any."""
        personal = self.algorithm_state.client_state.get(client, {}).get(PERSONAL)
        if personal is None:
            return theta
        model = theta.clone()
        model[self.positions] = personal.to(theta)
        return model
