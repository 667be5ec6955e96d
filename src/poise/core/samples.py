"""Samples as they are stored, and the samples that some clients own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import require


@dataclass(frozen=True)
class Samples:
    """A pool of samples in its compact storage.

    ``raw`` (n, *shape) keeps the bytes of the source (uint8 for images: a quarter of the memory
    traffic of float32); `features` turns rows into what a model takes: ``raw * scale + shift`` as
    floats, or token numbers where ``tokens`` is true. ``raw`` may be a strided view (windows of a
    text share their characters). ``labels`` (n,) are int64 classes or floating targets.

    Args:
        raw: the stored values, (n, *shape).
        labels: (n,).
        scale: a number, or a tensor that broadcasts against ``shape``.
        shift: likewise.
        tokens: the values are token numbers, not quantities.
        classes: number of classes; 0 for regression.
        vocabulary: number of distinct tokens, for token data.
    """

    raw: torch.Tensor
    labels: torch.Tensor
    scale: torch.Tensor | float = 1.0
    shift: torch.Tensor | float = 0.0
    tokens: bool = False
    classes: int = 0
    vocabulary: int = 0

    def __post_init__(self) -> None:
        require(
            len(self.raw) == len(self.labels),
            f"{len(self.raw)} samples but {len(self.labels)} labels",
        )

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.raw.shape[1:])

    @property
    def plain(self) -> bool:
        """Whether `features` is a mere cast: no scale, no shift."""
        return (
            isinstance(self.scale, float)
            and self.scale == 1.0
            and isinstance(self.shift, float)
            and self.shift == 0.0
        )

    def features(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """The model's input for these rows, (*rows.shape, *shape): floats, or int64 tokens.

        ``out`` is memory to use again for floats, at least as large as the result.
        """
        taken = torch.index_select(
            self.raw, 0, rows.reshape(-1)
        )  # a copy; many times faster than indexing
        whole = (*rows.shape, *self.shape)
        if self.tokens:
            return taken.long().view(whole)
        if not taken.is_floating_point():
            usable = out is not None and out.numel() >= taken.numel()
            place = (
                out.view(-1)[: taken.numel()].view(taken.shape)
                if usable and out is not None
                else None
            )
            taken = taken.to(torch.float32) if place is None else place.copy_(taken)
        if not self.plain:
            taken = taken.mul_(self.scale)
            taken = (
                taken
                if isinstance(self.shift, float) and self.shift == 0.0
                else taken.add_(self.shift)
            )
        return taken.view(whole)

    def with_labels(self, labels: torch.Tensor) -> Samples:
        """The same features under other labels."""
        return replace(self, labels=labels)

    def to(self, device: torch.device) -> Samples:
        """The pool on another device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name in ("raw", "labels", "scale", "shift")
            if isinstance(value := vars(self)[name], torch.Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Shards:
    """The samples of some clients, one after the other.

    Client k of the m asked for owns positions ``offsets[k] … offsets[k+1]`` of ``rows`` (where its
    samples lie in the pool) and of ``labels`` (which may differ from the pool's: a corrupted client
    has its own).
    """

    samples: Samples
    rows: torch.Tensor  # (total,) int64
    labels: torch.Tensor  # (total,)
    offsets: NDArray[np.int64]  # (m + 1,)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per client, (m,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(
        self, positions: torch.Tensor, out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and labels at these positions; ``out`` is memory to use again."""
        rows, labels = self.at(positions)
        return self.samples.features(rows, out), labels

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the samples at these positions lie in the pool, and their labels."""
        return self.rows[positions], self.labels[positions]

    def arrays(self, k: int = 0) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Client k's ``(x, y)`` as NumPy arrays."""
        span = torch.arange(int(self.offsets[k]), int(self.offsets[k + 1]))
        x, y = self.take(span)
        return x.numpy(), y.numpy()
