"""Devices of models and gradients, by name."""

from __future__ import annotations

import torch

from poise.core.errors import InvalidOption, require


def device_named(name: str) -> torch.device:
    """Return a device by its name; raises if this machine has none of that name."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidOption(
            f"device {name!r} does not exist here", "use 'cpu'"
        ) from error
    return device


def autocast_type(name: str | None, device: torch.device) -> torch.dtype | None:
    """Return the number type of mixed precision; raise if the device has none."""
    if name is None:
        return None
    able = torch.amp.is_autocast_available(device.type)
    if able and device.type == "cuda":
        able = torch.cuda.is_bf16_supported()
    require(
        able,
        f"Task: the device {device} cannot compute in mixed precision ({name})",
        "remove autocast",
        where="autocast",
    )
    return torch.bfloat16
