"""What server and clients remember between rounds, for solvers that have a memory and for personal
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

import torch

from poise.core.protocols import Memory, Remembers, Solver, Transform
from poise.core.round_updates import RoundUpdates
from poise.core.types import PERSONAL, Ints
from poise.core.vectors import Stack, Vector

NamedVectors = Mapping[str, Vector]


def memory_of(solver: Solver) -> Memory | None:
    """The memory of a solver, if it has one."""
    return cast(Remembers, solver).memory if _remembers(type(solver)) else None


@lru_cache
def _remembers(kind: type) -> bool:
    """Whether solvers of a class have a memory: what `Remembers` asks, once per class instead of in
    every round.
    """
    return hasattr(kind, "memory") or "memory" in vars(kind).get("__dataclass_fields__", ())


@dataclass(frozen=True)
class AlgorithmState:
    """The server's shared vectors, those that went out with versions still in flight, and the
    clients' own.
    """

    shared: NamedVectors = field(default_factory=dict)
    sent: Mapping[int, NamedVectors] = field(default_factory=dict)  # by version
    client_state: Mapping[int, NamedVectors] = field(default_factory=dict)  # by client

    def sending(self, version: int) -> AlgorithmState:
        """The shared vectors go out with this version of the model."""
        return replace(self, sent={**self.sent, version: self.shared}) if self.shared else self

    def landed(self, flying: Iterable[int]) -> AlgorithmState:
        """PersonalModels that nobody works on any more are let go."""
        still = set(flying)
        return replace(self, sent={v: named for v, named in self.sent.items() if v in still})

    def rows(
        self, names: Sequence[str], clients: Sequence[int], otherwise: Stack
    ) -> dict[str, Stack]:
        """What these clients keep, one row each; the row of ``otherwise`` for a client that keeps
        nothing yet.
        """
        found = {name: [self.client_state.get(c, {}).get(name) for c in clients] for name in names}
        return {
            name: torch.stack([otherwise[k] if v is None else v for k, v in enumerate(rows)])
            for name, rows in found.items()
        }

    def tensors(self) -> dict[str, Vector]:
        """The server's side, flat, as the ledger keeps it."""
        flat = {f"shared/{name}": v for name, v in self.shared.items()}
        return flat | {
            f"sent/{n}/{name}": v for n, named in self.sent.items() for name, v in named.items()
        }

    @classmethod
    def of(cls, tensors: NamedVectors, client_state: Mapping[int, NamedVectors]) -> AlgorithmState:
        """The inverse of `tensors`."""
        sent: dict[int, dict[str, Vector]] = {}
        for key in [k for k in tensors if k.startswith("sent/")]:
            _, version, name = key.split("/", 2)
            sent.setdefault(int(version), {})[name] = tensors[key]
        shared = {
            k.removeprefix("shared/"): v for k, v in tensors.items() if k.startswith("shared/")
        }
        return cls(shared, sent, client_state)


@dataclass(frozen=True)
class LocalState:
    """What some clients and the server remember when a piece of work on one version begins."""

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
        """Look it up; a server that has sent nothing yet has sent the first values."""
        memory = memory_of(solver)
        if memory is None:
            return cls(None, {}, {})
        shared = algorithm_state.sent.get(version) or memory.shared(start[0])
        nothing = start if memory.begins_at_start else torch.zeros_like(start)
        return cls(memory, shared, algorithm_state.rows(memory.keeps, clients, nothing))

    def point(self) -> Callable[[Stack], Stack] | None:
        """Where the clients' gradients are taken, if not at their own models."""
        return None if self.memory is None else self.memory.point(self.client_state)

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """What the memory adds to the clients' gradients."""
        return (
            () if self.memory is None else self.memory.terms(start, self.shared, self.client_state)
        )

    def after(self, deltas: Stack, steps: Ints, rate: float) -> Mapping[str, Stack]:
        """What each client keeps after its work."""
        if self.memory is None or not self.memory.keeps:
            return {}
        return self.memory.client_state_after(self.client_state, self.shared, deltas, steps, rate)


def absorb_updates(
    memory: Memory, algorithm_state: AlgorithmState, updates: RoundUpdates
) -> tuple[AlgorithmState, Vector | None]:
    """What the server learns from the updates that arrived, and the shift of the direction if there
    is one.
    """
    if not len(updates):
        return algorithm_state, None
    sent = {
        name: torch.stack(
            [algorithm_state.sent[version][name] for version in updates.versions.tolist()]
        )
        for name in algorithm_state.shared
    }
    shared, shift = memory.absorb(algorithm_state.shared, updates, sent)
    return replace(algorithm_state, shared=shared), shift


@dataclass(frozen=True)
class PersonalModels:
    """Each client's own version of a model."""

    positions: torch.Tensor
    algorithm_state: AlgorithmState

    def __call__(self, theta: Vector, client: int) -> Vector:
        """The model with the client's own values where it has some."""
        own = self.algorithm_state.client_state.get(client, {}).get(PERSONAL)
        if own is None:
            return theta
        mine = theta.clone()
        mine[self.positions] = own.to(theta)
        return mine
