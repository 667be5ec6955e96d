"""Helpers of attacks: checks of the client list, the last model change, and noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.rng import torch_generator
from poise.core.types import AttackerView, Setting
from poise.core.vectors import Vector

FIRST_NOISE = 1e-3
"""Standard deviation of the noise from a client that has not seen a model change."""

LAST = "last"
"""The name under which a client keeps the model that it received last."""


def check_clients(name: str, clients: Sequence[int]) -> None:
    """Raise `InvalidOption` unless the clients are distinct whole numbers >= 0."""
    whole = all(
        isinstance(c, int) and not isinstance(c, bool) and c >= 0 for c in clients
    )
    if not clients or not whole or len(set(clients)) < len(clients):
        raise InvalidOption(
            f"{name}: clients must be different client numbers, not {list(clients)}",
            where=("clients",),
        )


def fit_clients(name: str, clients: Sequence[int], setting: Setting) -> None:
    """Raise `IncompatibleParts` if the federation lacks a dishonest client."""
    if max(clients) >= setting.clients:
        raise IncompatibleParts(
            (
                f"{name}: there is no client {max(clients)} in a federation of "
                f"{setting.clients}"
            ),
            f"clients are 0 to {setting.clients - 1}",
            where=("clients",),
        )


def noise(view: AttackerView, seed: int, scale: float) -> Vector:
    """Draw ``scale * N(0, I)`` for the trainable entries, and 0 for the others.

    Each (seed, version, client, occurrence) has its own stream.
    """
    source = torch_generator(seed, "attack", view.version, view.client, view.occurrence)
    drawn = torch.randn(view.trainable, generator=source, dtype=torch.float64) * scale
    update = torch.zeros_like(view.received)
    update[: view.trainable] = drawn.to(update)
    return update


def last_step(view: AttackerView) -> Vector | None:
    """Return the model change since this client last received it; None if never."""
    last = view.kept.get(LAST)
    if last is None:
        return None
    return view.received - last.to(view.received)
