"""What attacks have in common: who takes part, what a client can infer, and noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.rng import torch_generator
from poise.core.types import AttackerView, Setting
from poise.core.vectors import Vector

FIRST_NOISE = 1e-3
"""Standard deviation of what is sent before a client has seen the model change."""

LAST = "last"
"""The name under which a client puts aside the model that it received last."""


def check_clients(name: str, clients: Sequence[int]) -> None:
    """Clients are whole numbers from 0, each named once."""
    whole = all(isinstance(c, int) and not isinstance(c, bool) and c >= 0 for c in clients)
    if not clients or not whole or len(set(clients)) < len(clients):
        raise InvalidOption(
            f"{name}: clients must be different client numbers, not {list(clients)}",
            where=("clients",),
        )


def fit_clients(name: str, clients: Sequence[int], setting: Setting) -> None:
    """The dishonest clients must exist."""
    if max(clients) >= setting.clients:
        raise IncompatibleParts(
            f"{name}: there is no client {max(clients)} in a federation of {setting.clients}",
            f"clients are 0 to {setting.clients - 1}",
            where=("clients",),
        )


def noise(seen: AttackerView, seed: int, scale: float) -> Vector:
    """``scale * N(0, I)`` on what gradients move, 0 elsewhere; one stream per (seed, version,
    client, occurrence).
    """
    source = torch_generator(seed, "attack", seen.version, seen.client, seen.occurrence)
    drawn = torch.randn(seen.trainable, generator=source, dtype=torch.float64) * scale
    update = torch.zeros_like(seen.received)
    update[: seen.trainable] = drawn.to(update)
    return update


def last_step(seen: AttackerView) -> Vector | None:
    """How the model changed since this client received it last; None where it never did."""
    last = seen.kept.get(LAST)
    return None if last is None else seen.received - last.to(seen.received)
