"""Messages between the server and a node: JSON facts, and tensors as plain bytes."""

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

RAW = "poise.raw"  # how an array is stored: its bytes, little endian, without a header
# limit for the JSON facts of a message; tensors have their own limits
MAX_FACT_BYTES = 1 << 20
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


def printable(value: object, max_length: int = 500) -> str:
    r"""Text from a node, made safe for ledgers and terminals: short and printable.

    >>> printable("no \ud800\x1b[2J")
    'no ??[2J'
    """
    text = str(value)[:max_length]
    return "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True)
class TensorBytes:
    """A tensor in a message; `tensor` and `vector` check bytes, dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorBytes:
        """Serialise a tensor."""
        values = tensor.detach().cpu().contiguous().numpy()
        little_endian = values.astype(values.dtype.newbyteorder("<"))
        return cls(str(values.dtype), tuple(values.shape), data=little_endian.tobytes())

    def fits(self, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
        """Whether the tensor has this shape, this dtype and the bytes they need."""
        own_dtype = DTYPES.get(self.dtype)
        return (
            own_dtype == dtype
            and self.shape == shape
            and len(self.data) == prod(shape) * own_dtype.itemsize
        )

    def tensor(self) -> torch.Tensor:
        """The tensor; raises `UpdateRefused` if bytes, dtype and shape do not match."""
        if self.dtype not in DTYPES or not self.fits(self.shape, DTYPES[self.dtype]):
            raise UpdateRefused(
                f"{len(self.data)} bytes are not a tensor of {self.dtype} {self.shape}"
            )
        stored = np.dtype(self.dtype).newbyteorder("<")
        values = (
            np.frombuffer(self.data, dtype=stored)
            .astype(self.dtype)
            .reshape(self.shape)
        )
        return torch.from_numpy(values)

    def vector(self) -> Vector:
        """The tensor as a float vector; raises `UpdateRefused` for other tensors."""
        if (
            len(self.shape) != 1
            or not DTYPES.get(self.dtype, torch.int8).is_floating_point
        ):
            raise UpdateRefused(
                f"{len(self.data)} bytes are not a vector of {self.dtype} {self.shape}"
            )
        return self.tensor()


class FlowerMessage(Protocol):
    """A Flower message, or a `ReceivedReply` (see `receiver`) in its place."""

    @property
    def metadata(self) -> Any:
        """The sender, and the message that this one answers."""

    @property
    def content(self) -> Any:
        """The content; raises if the message carries an error instead."""

    @property
    def error(self) -> Any:
        """Flower's error, with a code and a reason."""

    def has_error(self) -> bool:
        """Whether the message carries an error instead of a content."""


@dataclass(frozen=True)
class NodeMessage:
    """A request to a node, or a node's reply.

    Args:
        facts: values that travel as JSON.
        tensors: models or updates, by name.
        sender: Flower's id of the sending node. Flower derives it from the node's key,
            whatever the facts claim.
    """

    facts: Mapping[str, Any]
    tensors: Mapping[str, TensorBytes] = field(default_factory=dict)
    sender: int = 0

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(len(tensor.data) for tensor in self.tensors.values())

    @property
    def max_reply_bytes(self) -> int:
        """Size limit of replies: facts, one update per version, ``entries`` floats."""
        largest_tensor = max(
            (len(tensor.data) for tensor in self.tensors.values()), default=0
        )
        update_bytes = max(largest_tensor, int(self.facts.get("update_bytes", 0)))
        updates = len(self.facts.get("versions", ()))
        entries = int(self.facts.get("entries", 0))
        return MAX_FACT_BYTES + updates * update_bytes + entries * 8

    def content(self) -> Any:
        """The content of the Flower message that carries this message."""
        from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

        arrays = {
            name: Array(tensor.dtype, tensor.shape, RAW, tensor.data)
            for name, tensor in self.tensors.items()
        }
        return RecordDict(
            {
                "facts": ConfigRecord({"json": json.dumps(dict(self.facts))}),
                "vectors": ArrayRecord(arrays),
            }
        )

    @classmethod
    def read(cls, flower_message: FlowerMessage) -> NodeMessage:
        """Parse a Flower message; raises `UpdateRefused` for other formats."""
        try:
            text = flower_message.content["facts"]["json"]
            if len(text) > MAX_FACT_BYTES:
                raise UpdateRefused(
                    f"a message with {len(text)} bytes of facts, more than the limit of "
                    f"{MAX_FACT_BYTES}"
                )
            facts = json.loads(text)
            tensors = {
                str(name): TensorBytes(
                    str(array.dtype),
                    tuple(int(n) for n in array.shape),
                    data=array.data,
                )
                for name, array in flower_message.content["vectors"].items()
            }
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:
            raise UpdateRefused(
                f"a message that cannot be read ({type(error).__name__})"
            ) from error
        if not isinstance(facts, dict):
            raise UpdateRefused("a message that cannot be read (no facts)")
        return cls(facts, tensors, sender=int(flower_message.metadata.src_node_id))
