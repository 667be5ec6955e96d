"""`Samples`: a pool of samples in compact storage. `Shards`: those of clients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import require
from poise.core.trees import Inputs, leaves, mapped


@dataclass(frozen=True)
class Samples:
    """A pool of samples in compact storage.

    ``raw`` (n, *shape) keeps the bytes of the source (uint8 for images: a quarter of
    the memory traffic of float32). `features` converts rows to the input of a model:
    ``raw * scale + shift`` as floats, or token numbers if ``tokens`` is true. ``raw``
    may be a strided view (windows of a text share their characters). ``labels`` (n, …)
    are int64 classes or floating targets.

    Args:
        raw: the stored values, (n, *shape).
        labels: (n,), or (n, …) for several labels per sample.
        scale: a number, or a tensor that broadcasts against ``shape``.
        shift: likewise.
        tokens: the values are token numbers, not quantities.
        classes: number of classes; 0 unless every sample has one class.
        vocabulary: number of distinct tokens, for token data.
        element_classes: number of classes of each entry of labels (n, …), such as the
            tokens of a text or the pixels of a mask; 0 if the entries are numbers.
        multi_label: the labels (n, K) are truth values between 0 and 1.
    """

    raw: torch.Tensor
    labels: torch.Tensor
    scale: torch.Tensor | float = 1.0
    shift: torch.Tensor | float = 0.0
    tokens: bool = False
    classes: int = 0
    vocabulary: int = 0
    element_classes: int = 0
    multi_label: bool = False

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
    def target_shape(self) -> tuple[int, ...]:
        """Shape of the labels of one sample; () for one number or class."""
        return tuple(self.labels.shape[1:])

    @property
    def outputs(self) -> int:
        """Number of outputs of a model: the classes, or the targets of a sample."""
        return self.classes or self.element_classes or math.prod(self.target_shape)

    @property
    def pools(self) -> tuple[Samples, ...]:
        """One pool per input of the model."""
        return (self,)

    @property
    def form(self) -> str:
        """The shape of one sample as words."""
        return f"shape {self.shape}"

    @property
    def plain(self) -> bool:
        """Whether `features` only casts: no scale, no shift."""
        return isinstance(self.scale, float) and self.scale == 1.0 and self._unshifted

    @property
    def _unshifted(self) -> bool:
        return isinstance(self.shift, float) and self.shift == 0.0

    def features(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> Inputs:
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
class SeveralInputs(Samples):
    """A pool for a model with several inputs: ``module(*x)`` or ``module(**x)``.

    ``raw`` is the stored first input. The fields that convert values are those of the
    parts.

    Args:
        parts: one pool per input, each with the labels of this one.
        names: of the inputs, for ``module(**x)``; empty for ``module(*x)``.

    >>> labels = torch.zeros(3)
    >>> parts = (Samples(torch.ones(3, 2), labels), Samples(torch.ones(3, 4), labels))
    >>> several = SeveralInputs.of(parts, ("image", "age"))
    >>> {k: tuple(v.shape) for k, v in several.features(torch.arange(2)).items()}
    {'image': (2, 2), 'age': (2, 4)}
    """

    parts: tuple[Samples, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, parts: tuple[Samples, ...], names: tuple[str, ...] = ()
    ) -> SeveralInputs:
        """Return the pool of these inputs."""
        chief = parts[0]
        return cls(
            chief.raw,
            chief.labels,
            classes=chief.classes,
            element_classes=chief.element_classes,
            multi_label=chief.multi_label,
            parts=parts,
            names=names,
        )

    @property
    def pools(self) -> tuple[Samples, ...]:
        """One pool per input of the model."""
        return self.parts

    @property
    def form(self) -> str:
        """The shapes of the inputs of one sample as words."""
        shapes = [str(part.shape) for part in self.parts]
        if self.names:
            pairs = zip(self.names, shapes, strict=True)
            shapes = [f"{name} {shape}" for name, shape in pairs]
        return f"shapes {', '.join(shapes)}"

    def features(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> Inputs:
        """Return the inputs for these rows as a tuple or a dict; ``out`` is not used."""
        values = tuple(leaves(part.features(rows))[0] for part in self.parts)
        if not self.names:
            return values
        return dict(zip(self.names, values, strict=True))

    def with_labels(self, labels: torch.Tensor) -> Samples:
        """Return the same inputs with other labels."""
        parts = tuple(part.with_labels(labels) for part in self.parts)
        return replace(self, labels=labels, parts=parts)

    def to(self, device: torch.device) -> Samples:
        """Return the pool on another device."""
        parts = tuple(part.to(device) for part in self.parts)
        return SeveralInputs.of(parts, self.names)


@dataclass(frozen=True)
class Shards:
    """The samples of m clients, one client after the other.

    Client k owns positions ``offsets[k] … offsets[k+1]`` of ``rows`` (the places of its
    samples in the pool) and of ``labels`` (which may differ from the pool's: a
    corrupted client has its own).
    """

    samples: Samples
    rows: torch.Tensor  # (total,) int64
    labels: torch.Tensor  # (total, …)
    offsets: NDArray[np.int64]  # (m + 1,)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples per client, (m,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(
        self, positions: torch.Tensor, out: torch.Tensor | None = None
    ) -> tuple[Inputs, torch.Tensor]:
        """Return features and labels at these positions; ``out`` is memory to reuse."""
        rows, labels = self.at(positions)
        return self.samples.features(rows, out), labels

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places in the pool and the labels at these positions."""
        return self.rows[positions], self.labels[positions]

    def arrays(self, k: int = 0) -> tuple[Any, NDArray[np.generic]]:
        """Return client k's ``(x, y)`` as NumPy arrays; x may be a tuple or a dict."""
        span = torch.arange(int(self.offsets[k]), int(self.offsets[k + 1]))
        x, y = self.take(span)
        return mapped(lambda part: part.numpy(), x), y.numpy()


__all__ = ["Inputs", "Samples", "SeveralInputs", "Shards"]
