"""The size of the payloads that clients send."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def payload_bytes(payload: Mapping[str, torch.Tensor]) -> int:
    """Return the number of bytes that one client sends (one row).

    >>> import torch
    >>> index = torch.zeros(7, 3, dtype=torch.int32)
    >>> payload_bytes({"index": index, "value": torch.zeros(7, 3)})
    24
    """
    return sum(prod(rows.shape[1:]) * rows.element_size() for rows in payload.values())
