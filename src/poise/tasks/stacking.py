"""Calls of PyTorch in a form that `torch.func.vmap` turns into few large operations.

``vmap`` copies the weights of a linear layer for every token, and computes fused
attention one client at a time. Here a linear layer first joins the samples and tokens
of a client, and attention is two products and a softmax. The results are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``x W' + b``, with all dimensions of x but the last one joined."""
    if x.dim() <= 2:
        return F.linear(x, weight, bias)
    flat = F.linear(x.reshape(-1, x.shape[-1]), weight, bias)
    return flat.view(*x.shape[:-1], -1)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``softmax(q k' scale + mask) v``, as `F.scaled_dot_product_attention` without dropout."""
    if dropout_p > 0.0 or enable_gqa:
        raise RuntimeError("attention with dropout or grouped queries is not stacked")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
        scores = scores.masked_fill(ahead.triu(1), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.softmax(scores, -1) @ value


def _with(function: Any, **names: Any) -> Any:
    """Return a function of PyTorch that calls these functions instead of its own."""
    known = {**function.__globals__, "has_torch_function": lambda *_: False, **names}
    made = FunctionType(
        function.__code__, known, function.__name__, function.__defaults__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_inner = vars(F)
_packed = _inner["_in_projection_packed"]
_apart = _inner["_in_projection"]

INSTEAD: dict[Any, Callable[..., Any]] = {
    F.linear: linear,
    F.scaled_dot_product_attention: attention,
    F.multi_head_attention_forward: _with(
        F.multi_head_attention_forward,
        linear=linear,
        scaled_dot_product_attention=attention,
        _in_projection_packed=_with(_packed, linear=linear),
        _in_projection=_with(_apart, linear=linear),
    ),
}


class StackedCalls(TorchFunctionMode):
    """Replace the calls in `INSTEAD`, in this thread."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make one call of PyTorch."""
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))
