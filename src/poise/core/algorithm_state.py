"""What server and clients remember between rounds, for solvers that have a memory and for personal layers."""

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

Named = Mapping[str, Vector]


def memory_of(solver: Solver) -> Memory | None:
    """The memory of a solver, if it has one."""
    return cast(Remembers, solver).memory if _remembers(type(solver)) else None


@lru_cache
def _remembers(kind: type) -> bool:
    """Whether solvers of a class have a memory: what `Remembers` asks, once per class instead of in every round."""
    return hasattr(kind, "memory") or "memory" in vars(kind).get("__dataclass_fields__", ())


@dataclass(frozen=True)
class Memories:
    """The server's shared vectors, those that went out with versions still in flight, and the clients' own."""

    shared: Named = field(default_factory=dict)
    sent: Mapping[int, Named] = field(default_factory=dict)  # by version
    own: Mapping[int, Named] = field(default_factory=dict)  # by client

    def sending(self, version: int) -> Memories:
        """The shared vectors go out with this version of the model."""
        return replace(self, sent={**self.sent, version: self.shared}) if self.shared else self

    def landed(self, flying: Iterable[int]) -> Memories:
        """Versions that nobody works on any more are let go."""
        still = set(flying)
        return replace(self, sent={v: named for v, named in self.sent.items() if v in still})

    def rows(self, names: Sequence[str], clients: Sequence[int], otherwise: Stack) -> dict[str, Stack]:
        """What these clients keep, one row each; the row of ``otherwise`` for a client that keeps nothing yet."""
        found = {name: [self.own.get(c, {}).get(name) for c in clients] for name in names}
        return {
            name: torch.stack([otherwise[k] if v is None else v for k, v in enumerate(rows)])
            for name, rows in found.items()
        }

    def tensors(self) -> dict[str, Vector]:
        """The server's side, flat, as the ledger keeps it."""
        flat = {f"shared/{name}": v for name, v in self.shared.items()}
        return flat | {f"sent/{n}/{name}": v for n, named in self.sent.items() for name, v in named.items()}

    @classmethod
    def of(cls, tensors: Named, own: Mapping[int, Named]) -> Memories:
        """The inverse of `tensors`."""
        sent: dict[int, dict[str, Vector]] = {}
        for key in [k for k in tensors if k.startswith("sent/")]:
            _, version, name = key.split("/", 2)
            sent.setdefault(int(version), {})[name] = tensors[key]
        shared = {k.removeprefix("shared/"): v for k, v in tensors.items() if k.startswith("shared/")}
        return cls(shared, sent, own)


@dataclass(frozen=True)
class Recall:
    """What some clients and the server remember when a piece of work on one version begins."""

    memory: Memory | None
    shared: Named
    own: Mapping[str, Stack]

    @classmethod
    def of(cls, solver: Solver, memories: Memories, clients: Sequence[int], version: int, start: Stack) -> Recall:
        """Look it up; a server that has sent nothing yet has sent the first values."""
        memory = memory_of(solver)
        if memory is None:
            return cls(None, {}, {})
        shared = memories.sent.get(version) or memory.shared(start[0])
        nothing = start if memory.begins_at_start else torch.zeros_like(start)
        return cls(memory, shared, memories.rows(memory.keeps, clients, nothing))

    def point(self) -> Callable[[Stack], Stack] | None:
        """Where the clients' gradients are taken, if not at their own models."""
        return None if self.memory is None else self.memory.point(self.own)

    def terms(self, start: Stack) -> tuple[Transform, ...]:
        """What the memory adds to the clients' gradients."""
        return () if self.memory is None else self.memory.terms(start, self.shared, self.own)

    def after(self, deltas: Stack, steps: Ints, rate: float) -> Mapping[str, Stack]:
        """What each client keeps after its work."""
        if self.memory is None or not self.memory.keeps:
            return {}
        return self.memory.own_after(self.own, self.shared, deltas, steps, rate)


def absorbed(memory: Memory, memories: Memories, updates: RoundUpdates) -> tuple[Memories, Vector | None]:
    """What the server learns from the updates that arrived, and the shift of the direction if there is one."""
    if not len(updates):
        return memories, None
    sent = {
        name: torch.stack([memories.sent[version][name] for version in updates.versions.tolist()])
        for name in memories.shared
    }
    shared, shift = memory.absorb(memories.shared, updates, sent)
    return replace(memories, shared=shared), shift


@dataclass(frozen=True)
class Versions:
    """Each client's own version of a model."""

    positions: torch.Tensor
    memories: Memories

    def __call__(self, theta: Vector, client: int) -> Vector:
        """The model with the client's own values where it has some."""
        own = self.memories.own.get(client, {}).get(PERSONAL)
        if own is None:
            return theta
        mine = theta.clone()
        mine[self.positions] = own.to(theta)
        return mine
