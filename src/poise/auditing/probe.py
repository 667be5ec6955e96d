"""`AuditProbe`: the measurements of every update that the audit needs."""

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

SKETCH = "audit/sketch"
COHORT = "audit/cohort"
SPREAD = "audit/spread"
LAYERS = "audit/layers"
RECEIVED = "audit/received"
MEASUREMENTS = (SKETCH, COHORT, SPREAD, LAYERS, RECEIVED)

ENTRIES = 96
"""Number of coordinates that the sketch copies."""

PROJECTIONS = 32
"""Number of random directions of the sketch."""

INSPECTED = 4096
"""Number of inspected coordinates of an update; only the cosine uses all."""

SMALLEST_LAYER = 32
"""A layer with fewer inspected entries is left out."""

MOST_LAYERS = 16
"""Number of layers, the largest ones, that the probe measures."""


class SketchPlan(NamedTuple):
    """The inspected coordinates, and how the sketch combines them.

    Args:
        positions: (s,) the inspected coordinates; the sketch copies the first k.
        directions: (s - k, p) orthonormal columns that combine the others.
        layers: (s, L) 1/(number of inspected entries of the layer), or 0.
    """

    positions: torch.Tensor
    directions: torch.Tensor
    layers: torch.Tensor


@dataclass(frozen=True, eq=False)
class AuditProbe:
    """Measures each update: a sketch, its direction, the distribution of its entries.

    - ``audit/sketch`` (m, k + p), linear in the update and, up to one factor, an
      isometry on average: k coordinates and p orthonormal combinations of others. The
      sketch of noise ``phi N(0, I)`` is ``phi N(0, I)`` again.
    - ``audit/cohort`` (m,): the exact cosine to the sum of the others' updates,
      ``cos(Delta_i, D - omega_i Delta_i)``.
    - ``audit/spread`` (m,): Geary's ratio ``mean|x| / sqrt(mean x^2)`` of the inspected
      entries: sqrt(2/pi) = 0.798 for noise, less where a few entries are large, as in
      learned updates.
    - ``audit/layers`` (m, L): the root mean square of the entries of each layer.
    - ``audit/received`` (m, k + p): the same sketch of the model that the client
      received, in double precision. The probe measures it where the model does not move
      by the weighted sum of the updates; otherwise the audit derives it from that sum.

    Args:
        layout: where each tensor lies in the vector.
        seed: determines the coordinates and directions; clients do not know it.
        received: whether to measure ``audit/received``.

    Source: [Geary 1935] for the ratio; [Johnson 1984] for the sketch.
    """

    layout: Layout
    seed: int = 0
    received: bool = False

    @cached_property
    def plan(self) -> SketchPlan:
        """The inspected coordinates; the same in every round and after a resume."""
        rng = generator(self.seed, "audit")
        drawn = rng.permutation(self.layout.trainable)[:INSPECTED]
        copied = np.sort(drawn[:ENTRIES])
        mixed = np.sort(drawn[ENTRIES:])
        count = min(PROJECTIONS, len(mixed))
        directions = np.zeros((0, 0))
        if count:
            directions = np.linalg.qr(rng.standard_normal((len(mixed), count)))[0]
        positions = np.concatenate([copied, mixed])
        return SketchPlan(
            positions=torch.from_numpy(positions),
            directions=torch.from_numpy(directions.astype("f4")),
            layers=torch.from_numpy(self._layer_means(positions).astype("f4")),
        )

    def _layer_means(self, positions: NDArray[Any]) -> NDArray[Any]:
        """Return the matrix (s, L) that averages inspected entries per large layer."""
        inside = [
            (positions >= e.start) & (positions < e.stop)
            for e in self.layout.parameters
        ]
        large = [layer for layer in inside if layer.sum() >= SMALLEST_LAYER]
        large.sort(key=lambda layer: -int(layer.sum()))
        if not large:
            return np.zeros((len(positions), 0))
        return np.array([layer / layer.sum() for layer in large[:MOST_LAYERS]]).T

    def read(self, updates: RoundUpdates, past: History) -> Mapping[str, Floats]:
        """Return the measurements of every row."""
        blocks = updates.map_row_blocks(self._measure_block)
        measurements: dict[str, Floats] = {}
        for name in blocks[0]:
            measurements[name] = np.concatenate([block[name] for block in blocks])
        measurements[COHORT] = cohort_cosines(updates).astype(np.float32)
        if self.received:
            sketches = {}
            for version in set(updates.versions):
                entries = updates.models[version][self.plan.positions]
                sketches[version] = self._sketch(entries[None].double())[0]
            measurements[RECEIVED] = np.stack([sketches[v] for v in updates.versions])
        return measurements

    def _measure_block(self, deltas: Stack) -> dict[str, NDArray[Any]]:
        """Return the measurements that need one row at a time, for a block of rows."""
        positions = self.plan.positions.to(deltas.device)
        entries = deltas.index_select(1, positions).float()
        squares = entries * entries
        rms = squares.mean(dim=1).sqrt().clamp_min(torch.finfo(squares.dtype).tiny)
        measurements = {
            SKETCH: self._sketch(entries),
            SPREAD: (entries.abs().mean(dim=1) / rms).cpu().numpy(),
        }
        layers = self.plan.layers
        if layers.shape[1]:
            measurements[LAYERS] = (squares @ layers.to(squares)).sqrt().cpu().numpy()
        return measurements

    def _sketch(self, entries: Stack) -> NDArray[Any]:
        """Return the sketch of rows, given their inspected entries."""
        copied = len(self.plan.positions) - len(self.plan.directions)
        mixed = entries[:, copied:] @ self.plan.directions.to(entries)
        return np.asarray(torch.cat([entries[:, :copied], mixed], dim=1).cpu().numpy())


def cohort_cosines(updates: RoundUpdates) -> Floats:
    """``cos(Delta_i, D - omega_i Delta_i)`` of every row, nan where either is zero.

    One product of the stack is enough:
    ``Delta_i . (D - omega_i Delta_i) = Delta_i . D - omega_i |Delta_i|^2``.
    """
    product, lengths = updates.products
    omega = updates.weights
    squares = lengths**2
    whole = float(torch.linalg.vector_norm(updates.weighted_sum).double()) ** 2
    rest = np.sqrt(np.maximum(whole - 2 * omega * product + omega**2 * squares, 0.0))
    length = lengths * rest
    usable = length > 1e-6 * max(whole, 1e-300)
    return np.where(
        usable, (product - omega * squares) / np.where(usable, length, 1.0), np.nan
    )
