"""What travels between a server and a node: named facts, and tensors as plain bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import torch

from poise.core.errors import UpdateRefused
from poise.core.vectors import Vector

RAW = "poise.raw"  # how a vector is written: its bytes, little endian, and nothing else
MOST = 1 << 20  # bytes of facts in a letter; what is large travels in tensors
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.bool,
    )
}


def words(value: object, most: int = 500) -> str:
    r"""What a node says, fit for a ledger and a terminal: one line of printable characters, not too
    long.

    >>> words("no \ud800\x1b[2J")
    'no ??[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in str(value)[:most])


@dataclass(frozen=True)
class TensorBytes:
    """A tensor as it travels; its form is a claim until `tensor` or `vector` has been asked for."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorBytes:
        """Wrap a tensor."""
        values = tensor.detach().cpu().contiguous().numpy()
        return cls(
            str(values.dtype),
            tuple(values.shape),
            values.astype(values.dtype.newbyteorder("<")).tobytes(),
        )

    def fits(self, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
        """Whether this is a tensor of this shape and kind, to the byte."""
        known = DTYPES.get(self.dtype)
        return (
            known == dtype
            and self.shape == shape
            and len(self.data) == prod(shape) * known.itemsize
        )

    def tensor(self) -> torch.Tensor:
        """The tensor; the bytes must be as many as the form says."""
        if self.dtype not in DTYPES or not self.fits(self.shape, DTYPES[self.dtype]):
            raise UpdateRefused(
                f"{len(self.data)} bytes are not a tensor of {self.dtype} {self.shape}"
            )
        stored = np.dtype(self.dtype).newbyteorder("<")
        values = np.frombuffer(self.data, dtype=stored).astype(self.dtype).reshape(self.shape)
        return torch.from_numpy(values)

    def vector(self) -> Vector:
        """The vector of floating-point numbers; refused where the tensor is another one."""
        if len(self.shape) != 1 or not DTYPES.get(self.dtype, torch.int8).is_floating_point:
            raise UpdateRefused(
                f"{len(self.data)} bytes are not a vector of {self.dtype} {self.shape}"
            )
        return self.tensor()


class FlowerMessage(Protocol):
    """A message as Flower gives it, or a `poise.backends.flower.receiver.Reply`, which stands for
    one.
    """

    @property
    def metadata(self) -> Any:
        """Where it comes from, and what it answers."""

    @property
    def content(self) -> Any:
        """What was sent; raises where there is an error instead."""

    @property
    def error(self) -> Any:
        """Flower's error, with a code and a reason."""

    def has_error(self) -> bool:
        """Whether there is an error in place of a content."""


@dataclass(frozen=True)
class NodeMessage:
    """A request or a reply."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, TensorBytes] = field(default_factory=dict)
    # Flower's number of the node that it came from: the key's owner, whatever the letter says
    sender: int = 0

    @property
    def size(self) -> int:
        """Bytes of the vectors."""
        return sum(len(p.data) for p in self.tensors.values())

    @property
    def most_in_reply(self) -> int:
        """Bytes that a reply to this may have: facts, an update for each piece of work, a vector of
        ``entries``.
        """
        largest = max((len(p.data) for p in self.tensors.values()), default=0)
        largest = max(largest, int(self.facts.get("update_bytes", 0)))
        return (
            MOST
            + len(self.facts.get("versions", ())) * largest
            + int(self.facts.get("entries", 0)) * 8
        )

    def content(self) -> Any:
        """As Flower carries it."""
        from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

        arrays = {k: Array(p.dtype, p.shape, RAW, p.data) for k, p in self.tensors.items()}
        return RecordDict(
            {
                "facts": ConfigRecord({"json": json.dumps(dict(self.facts))}),
                "vectors": ArrayRecord(arrays),
            }
        )

    @classmethod
    def read(cls, message: FlowerMessage) -> NodeMessage:
        """From a message of Flower; raises `UpdateRefused` where it is not one of ours."""
        try:
            text = message.content["facts"]["json"]
            if len(text) > MOST:
                raise UpdateRefused(
                    f"a message with {len(text)} bytes of facts, where {MOST} are the most"
                )
            facts = json.loads(text)
            arrays = message.content["vectors"]
            tensors = {
                str(k): TensorBytes(str(a.dtype), tuple(int(n) for n in a.shape), a.data)
                for k, a in arrays.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UpdateRefused(
                f"a message that cannot be read ({type(error).__name__})"
            ) from error
        if not isinstance(facts, dict):
            raise UpdateRefused("a message that cannot be read (no facts)")
        return cls(facts, tensors, int(message.metadata.src_node_id))
