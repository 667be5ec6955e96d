"""What is read of every update for the audit, while the update is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.history import History
from poise.core.rng import generator
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats
from poise.core.vectors import Layout, Stack

SKETCH, COHORT, SPREAD, LAYERS = "audit/sketch", "audit/cohort", "audit/spread", "audit/layers"
RECEIVED = "audit/received"
READINGS = (SKETCH, COHORT, SPREAD, LAYERS, RECEIVED)

ENTRIES = 96
"""Coordinates that the sketch shows as they are."""

PROJECTIONS = 32
"""Random directions of the sketch."""

LOOKED_AT = 4096
"""Coordinates of an update that are looked at beside its cosine."""

SMALLEST_LAYER, MOST_LAYERS = 32, 16


class Places(NamedTuple):
    """Which coordinates are looked at, and what is made of them."""

    looked_at: torch.Tensor  # (s,) positions; the first k are shown as they are
    directions: torch.Tensor  # (s - k, p), orthonormal columns, for the others
    layers: torch.Tensor  # (s, L): 1/(number of entries looked at in the layer), or 0


@dataclass(frozen=True, eq=False)
class AuditProbe:
    """A sketch of every update and three numbers about its direction and its entries.

    - ``audit/sketch`` (m, k + p), linear in the update and, up to one factor, an isometry on
      average: k coordinates and p orthonormal combinations of others. Of noise ``phi N(0, I)`` it
          is ``phi N(0, I)`` again.
    - ``audit/cohort`` (m,): the exact cosine to what the others sent, ``cos(Delta_i, D - omega_i
      Delta_i)``.
    - ``audit/spread`` (m,): Geary's ratio ``mean|x| / sqrt(mean x^2)`` of the entries looked at:
      sqrt(2/pi) = 0.798 for noise, less where a few entries are large, as in updates that were
      learned.
    - ``audit/layers`` (m, L): the root mean square of the entries of each layer.
    - ``audit/received`` (m, k + p): the same sketch of the model that the client received, in
      double precision. It is read where the model moves otherwise than by the weighted sum of the
      updates; else the sum tells.

    Args:
        layout: where each tensor lies in the vector.
        seed: names the coordinates and directions: a client cannot know them.
        received: whether ``audit/received`` is read.

    Source: [Geary 1935] for the ratio; [Johnson 1984] for the sketch.
    """

    layout: Layout
    seed: int = 0
    received: bool = False

    @cached_property
    def places(self) -> Places:
        """Drawn once; the same in every round and after a resume."""
        size, rng = self.layout.trainable, generator(self.seed, "audit")
        drawn = rng.permutation(size)[:LOOKED_AT]
        shown, mixed = np.sort(drawn[:ENTRIES]), np.sort(drawn[ENTRIES:])
        count = min(PROJECTIONS, len(mixed))
        directions = (
            np.linalg.qr(rng.standard_normal((len(mixed), count)))[0] if count else np.zeros((0, 0))
        )
        looked_at = np.concatenate([shown, mixed])
        inside = [(looked_at >= e.start) & (looked_at < e.stop) for e in self.layout.parameters]
        large = sorted(
            (i for i in inside if i.sum() >= SMALLEST_LAYER), key=lambda i: -int(i.sum())
        )[:MOST_LAYERS]
        layers = (
            np.array([i / i.sum() for i in large]).T if large else np.zeros((len(looked_at), 0))
        )
        return Places(
            *(
                torch.from_numpy(a)
                for a in (looked_at, directions.astype("f4"), layers.astype("f4"))
            )
        )

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """The measurements of every row."""
        at = self.places
        seen = updates.map_row_blocks(self._look)
        found: dict[str, Floats] = {
            name: np.concatenate([piece[name] for piece in seen]) for name in seen[0]
        }
        found[COHORT] = others(updates).astype(np.float32)
        if self.received:
            models = {
                v: self._sketch(updates.models[v][at.looked_at][None].double())[0]
                for v in set(updates.versions)
            }
            found[RECEIVED] = np.stack([models[v] for v in updates.versions])
        return found

    def _look(self, deltas: Stack) -> dict[str, NDArray[Any]]:
        """What is read of some rows by themselves."""
        at = self.places
        some = deltas.index_select(1, at.looked_at.to(deltas.device)).float()
        squares = some * some
        size = squares.mean(dim=1).sqrt().clamp_min(torch.finfo(squares.dtype).tiny)
        found = {SKETCH: self._sketch(some), SPREAD: (some.abs().mean(dim=1) / size).cpu().numpy()}
        if at.layers.shape[1]:
            found[LAYERS] = (squares @ at.layers.to(squares)).sqrt().cpu().numpy()
        return found

    def _sketch(self, some: Stack) -> NDArray[Any]:
        """The sketch of rows of which the entries looked at are given."""
        shown = len(self.places.looked_at) - len(self.places.directions)
        mixed = some[:, shown:] @ self.places.directions.to(some)
        return np.asarray(torch.cat([some[:, :shown], mixed], dim=1).cpu().numpy())


def others(updates: RoundUpdates) -> Floats:
    """``cos(Delta_i, D - omega_i Delta_i)`` of every row, nan where one of the two is zero.

    With one product of the stack: ``Delta_i . (D - omega_i Delta_i) = Delta_i . D - omega_i
    |Delta_i|^2``.
    """
    product, lengths = updates.products
    omega, squares = updates.weights, lengths**2
    whole = float(torch.linalg.vector_norm(updates.weighted_sum).double()) ** 2
    rest = np.sqrt(np.maximum(whole - 2 * omega * product + omega**2 * squares, 0.0))
    length = lengths * rest
    usable = length > 1e-6 * max(whole, 1e-300)
    return np.where(usable, (product - omega * squares) / np.where(usable, length, 1.0), np.nan)
