"""Replies of a Flower app: conversion to updates, and checks before averaging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message

from poise.core.errors import UpdateRefused
from poise.core.vectors import Layout, LayoutEntry, Vector
from poise.engine.validation import is_finite_number, length_error

AVERAGES = ("running_mean", "running_var", "num_batches_tracked")
"""PyTorch's names of arrays without gradients: averaged, not moved by optimisers."""

MOST_SAMPLES = 2**53
"""No node has more samples: the largest whole number up to which floats are exact."""


@dataclass(frozen=True)
class ArrayForm:
    """The positions of a model's arrays in one vector, those with gradients first."""

    layout: Layout
    dtypes: Mapping[str, np.dtype[Any]]  # by name, in the order of the record
    dtype: torch.dtype

    @classmethod
    def of(cls, arrays: ArrayRecord, averages: Sequence[str]) -> ArrayForm:
        """The form of a model.

        Integer arrays, and arrays whose last name is in ``averages``, are averaged
        only.
        """
        values = {name: array.numpy() for name, array in arrays.items()}
        dtypes = {name: array.dtype for name, array in values.items()}
        averaged = {
            name
            for name, dtype in dtypes.items()
            if not np.issubdtype(dtype, np.floating)
            or name.rpartition(".")[2] in averages
        }
        entries = []
        position = 0
        # the sort is stable: both groups keep the order of the record
        for name in sorted(values, key=lambda name: name in averaged):
            shape = values[name].shape
            end = position + prod(shape)
            entries.append(LayoutEntry(name, shape, position, end, torch.float64))
            position = end
        trainable = sum(
            entry.stop - entry.start for entry in entries if entry.name not in averaged
        )
        dtype = torch.float32
        if np.float64 in dtypes.values():
            dtype = torch.float64
        return cls(Layout(tuple(entries), trainable, position), dtypes, dtype=dtype)

    def vector(self, arrays: ArrayRecord) -> Vector:
        """A model's arrays as one vector; raises `UpdateRefused` for another form."""
        if set(arrays) != set(self.dtypes):
            other = sorted(set(arrays) ^ set(self.dtypes))
            raise UpdateRefused(
                f"other arrays than it received: {', '.join(other[:3])}"
            )
        tensors = {}
        for entry in self.layout.entries:
            try:
                values = arrays[entry.name].numpy()
            except (TypeError, ValueError, EOFError) as error:
                raise UpdateRefused(
                    f"an array {entry.name!r} that cannot be read "
                    f"({type(error).__name__})"
                ) from error
            dtype = self.dtypes[entry.name]
            if values.shape != entry.shape or values.dtype != dtype:
                raise UpdateRefused(
                    f"an array {entry.name!r} of shape {values.shape} {values.dtype} "
                    f"instead of {entry.shape} {dtype}"
                )
            tensors[entry.name] = torch.from_numpy(values)
        return self.layout.flatten(tensors, self.dtype)

    def arrays(self, vector: Vector) -> ArrayRecord:
        """A vector as the arrays of a model, with the original dtypes and order."""
        views = self.layout.views(vector)
        arrays = {}
        for name, dtype in self.dtypes.items():
            arrays[name] = Array(_cast(views[name].numpy(), dtype))
        return ArrayRecord(arrays)


def _cast(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The values in a dtype; rounded, not truncated, to integers."""
    if not np.issubdtype(dtype, np.floating):
        values = np.rint(values)
    return np.asarray(values).astype(dtype)


@dataclass(frozen=True)
class CheckedUpdate:
    """The update of a node, checked."""

    node: int
    delta: Vector  # model after minus model before the work
    norm: float
    samples: int
    losses: Mapping[str, float]  # of `LOSS_REPORTS`


def check_reply(
    reply: Message,
    form: ArrayForm,
    theta: Vector,
    size_key: str,
    loss_keys: Mapping[str, str],
    known_size: int | None,
) -> CheckedUpdate:
    """The update in a reply; raises `UpdateRefused` with the end of "node 3 sent …".

    Args:
        reply: a reply without an error.
        form: the form of the model that the node received.
        theta: that model.
        size_key: the key of the number of samples in the metrics.
        loss_keys: the keys of the needed losses in the metrics.
        known_size: the node's number of samples, if the server knows it beforehand.
    """
    arrays = _single(reply.content.array_records, "ArrayRecord")
    metrics = _single(reply.content.metric_records, "MetricRecord")
    samples = _number(metrics, size_key)
    if samples != int(samples) or not 1 <= samples <= MOST_SAMPLES:
        raise UpdateRefused(
            f"{size_key!r} = {samples:g}, which is not a number of samples"
        )
    if known_size is not None and samples != known_size:
        raise UpdateRefused(f"{size_key!r} = {samples:g} instead of {known_size}")
    losses = {name: _number(metrics, key) for name, key in loss_keys.items()}
    delta = form.vector(arrays) - theta
    norm = float(torch.linalg.vector_norm(delta.double()))
    error = length_error(norm)
    if error:
        raise UpdateRefused(error)
    return CheckedUpdate(
        node=reply.metadata.src_node_id,
        delta=delta,
        norm=norm,
        samples=int(samples),
        losses=losses,
    )


def _single(records: Mapping[str, Any], kind: str) -> Any:
    """The only record of its kind in a reply."""
    if len(records) != 1:
        raise UpdateRefused(f"{len(records)} {kind}s instead of one")
    return next(iter(records.values()))


def _number(metrics: Mapping[str, Any], key: str) -> float:
    """The finite number under a key of the metrics."""
    if key not in metrics:
        raise UpdateRefused(
            (
                f"no {key!r} in its MetricRecord (keys: "
                f"{', '.join(sorted(metrics)) or 'none'})"
            ),
            f"report it in the ClientApp: MetricRecord({{{key!r}: …}})",
        )
    value = metrics[key]
    if not is_finite_number(value):
        raise UpdateRefused(f"{key!r} = {value}, which is not a finite number")
    return float(value)
