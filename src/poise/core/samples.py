"""`Samples`: a pool of samples in compact storage. `Shards`: those of clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import require


@dataclass(frozen=True)
class Samples:
    """A pool of samples in compact storage.

    ``raw`` (n, *shape) keeps the bytes of the source (uint8 for images: a quarter of
    the memory traffic of float32). `features` converts rows to the input of a model:
    ``raw * scale + shift`` as floats, or token numbers if ``tokens`` is true. ``raw``
    may be a strided view (windows of a text share their characters). ``labels`` (n,)
    are int64 classes or floating targets.

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
        """Whether `features` only casts: no scale, no shift."""
        return isinstance(self.scale, float) and self.scale == 1.0 and self._unshifted

    @property
    def _unshifted(self) -> bool:
        return isinstance(self.shift, float) and self.shift == 0.0

    def features(
        self, rows: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the input for these rows, (*rows.shape, *shape): floats or tokens.

        ``out`` is memory to reuse for floats; it must be at least as large as the
        result.
        """
        # index_select copies, many times faster than indexing
        selected = torch.index_select(self.raw, 0, rows.reshape(-1))
        shape = (*rows.shape, *self.shape)
        if self.tokens:
            return selected.long().view(shape)
        if not selected.is_floating_point():
            if out is not None and out.numel() >= selected.numel():
                reused = out.view(-1)[: selected.numel()].view(selected.shape)
                selected = reused.copy_(selected)
            else:
                selected = selected.to(torch.float32)
        if not self.plain:
            selected = selected.mul_(self.scale)
            if not self._unshifted:
                selected = selected.add_(self.shift)
        return selected.view(shape)

    def with_labels(self, labels: torch.Tensor) -> Samples:
        """Return the same features with other labels."""
        return replace(self, labels=labels)

    def to(self, device: torch.device) -> Samples:
        """Return the pool on another device."""
        moved: dict[str, Any] = {}
        for name in ("raw", "labels", "scale", "shift"):
            value = vars(self)[name]
            if isinstance(value, torch.Tensor):
                moved[name] = value.to(device)
        return replace(self, **moved)


@dataclass(frozen=True)
class Shards:
    """The samples of m clients, one client after the other.

    Client k owns positions ``offsets[k] … offsets[k+1]`` of ``rows`` (the places of its
    samples in the pool) and of ``labels`` (which may differ from the pool's: a
    corrupted client has its own).
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
        """Return features and labels at these positions; ``out`` is memory to reuse."""
        rows, labels = self.at(positions)
        return self.samples.features(rows, out), labels

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places in the pool and the labels at these positions."""
        return self.rows[positions], self.labels[positions]

    def arrays(self, k: int = 0) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Return client k's ``(x, y)`` as NumPy arrays."""
        span = torch.arange(int(self.offsets[k]), int(self.offsets[k + 1]))
        x, y = self.take(span)
        return x.numpy(), y.numpy()
