"""From a reply of Flower to a row of the equation; what must not be averaged is refused by node and
key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message

from poise.core.errors import UpdateRefused
from poise.core.vectors import Layout, LayoutEntry, Vector

AVERAGES = ("running_mean", "running_var", "num_batches_tracked")
"""How PyTorch names what gradients do not move: it is averaged, and no server optimiser touches
it."""


@dataclass(frozen=True)
class Form:
    """Where the arrays of a model lie in one vector: what optimisers move comes first."""

    layout: Layout
    dtypes: Mapping[str, np.dtype[Any]]  # by name, in the order of the record
    dtype: torch.dtype

    @classmethod
    def of(cls, arrays: ArrayRecord, averages: Sequence[str]) -> Form:
        """The form of a model; arrays of whole numbers, and those whose names end in ``averages``,
        are averages.
        """
        values = {name: array.numpy() for name, array in arrays.items()}
        dtypes = {name: v.dtype for name, v in values.items()}
        resting = {
            name
            for name, kind in dtypes.items()
            if not np.issubdtype(kind, np.floating) or name.rpartition(".")[2] in averages
        }
        entries, at = [], 0
        for name in sorted(
            values, key=lambda name: name in resting
        ):  # stable: the record's order inside both
            size = prod(values[name].shape)
            entries.append(LayoutEntry(name, values[name].shape, at, at + size, torch.float64))
            at += size
        trainable = sum(e.stop - e.start for e in entries if e.name not in resting)
        wide = any(kind == np.float64 for kind in dtypes.values())
        return cls(
            Layout(tuple(entries), trainable, at), dtypes, torch.float64 if wide else torch.float32
        )

    def vector(self, arrays: ArrayRecord) -> Vector:
        """The arrays of a model as one vector; raises where they are not of this form."""
        if set(arrays) != set(self.dtypes):
            other = sorted(set(arrays) ^ set(self.dtypes))
            raise UpdateRefused(f"other arrays than it was sent: {', '.join(other[:3])}")
        tensors = {}
        for entry in self.layout.entries:
            try:
                found = arrays[entry.name].numpy()
            except (TypeError, ValueError, EOFError) as error:
                raise UpdateRefused(
                    f"an array {entry.name!r} that cannot be read ({type(error).__name__})"
                ) from error
            if found.shape != entry.shape or found.dtype != self.dtypes[entry.name]:
                have, wanted = (
                    f"{found.shape} {found.dtype}",
                    f"{entry.shape} {self.dtypes[entry.name]}",
                )
                raise UpdateRefused(f"an array {entry.name!r} of shape {have} instead of {wanted}")
            tensors[entry.name] = torch.from_numpy(found)
        return self.layout.flatten(tensors, self.dtype)

    def arrays(self, vector: Vector) -> ArrayRecord:
        """A vector as the arrays of a model, in the kinds and the order that they had."""
        views = self.layout.views(vector)
        return ArrayRecord(
            {name: Array(_as(views[name].numpy(), kind)) for name, kind in self.dtypes.items()}
        )


def _as(values: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """In this kind; whole numbers are rounded, not cut."""
    return np.asarray(values if np.issubdtype(kind, np.floating) else np.rint(values)).astype(kind)


@dataclass(frozen=True)
class Told:
    """What a node sent, examined."""

    node: int
    delta: Vector  # after - before
    norm: float
    samples: int
    losses: Mapping[str, float]  # of `LOSS_REPORTS`


def examined(
    reply: Message,
    form: Form,
    theta: Vector,
    size_key: str,
    loss_keys: Mapping[str, str],
    known: int | None,
) -> Told:
    """What a reply tells; raises `UpdateRefused` with words that complete "node 3 sent …".

    Args:
        reply: from a node, without an error.
        form: of the model that was sent.
        theta: that model.
        size_key: where the number of samples stands in the metrics.
        loss_keys: where each loss stands that is needed.
        known: the number of samples that it must be, where that is known beforehand.
    """
    arrays = _single(reply.content.array_records, "ArrayRecord")
    metrics = _single(reply.content.metric_records, "MetricRecord")
    samples = _number(metrics, size_key)
    if samples != int(samples) or samples < 1:
        raise UpdateRefused(f"{size_key!r} = {samples:g}, which is no number of samples")
    if known is not None and samples != known:
        raise UpdateRefused(f"{size_key!r} = {samples:g} instead of {known}")
    losses = {name: _number(metrics, key) for name, key in loss_keys.items()}
    delta = form.vector(arrays) - theta
    norm = float(torch.linalg.vector_norm(delta.double()))
    if not math.isfinite(norm):
        raise UpdateRefused(f"an update that is not finite ({norm})")
    return Told(reply.metadata.src_node_id, delta, norm, int(samples), losses)


def _single(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise UpdateRefused(f"{len(records)} {kind}s instead of one")
    return next(iter(records.values()))


def _number(metrics: Mapping[str, Any], key: str) -> float:
    """A finite number under this key of the metrics."""
    if key not in metrics:
        raise UpdateRefused(
            f"no {key!r} in its MetricRecord (it has: {', '.join(sorted(metrics)) or 'nothing'})",
            f"let the ClientApp report it: MetricRecord({{{key!r}: …}})",
        )
    value = metrics[key]
    if isinstance(value, bool | list) or not math.isfinite(value):
        raise UpdateRefused(f"{key!r} = {value}, which is not a finite number")
    return float(value)
