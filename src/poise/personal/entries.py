"""Helpers of the personal parts: entries of a model, and shared checks."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from poise.core.errors import IncompatibleParts

if TYPE_CHECKING:
    import torch

    from poise.core.protocols import Personal
    from poise.core.types import Setting


def refuse_on_demand(personal: Personal, setting: Setting) -> None:
    """Raise `IncompatibleParts` for clients on demand, which keep nothing."""
    if setting.on_demand:
        raise IncompatibleParts(
            (
                f"{type(personal).__name__}: clients that are made on demand keep no "
                "layers"
            ),
            "use a federation with on_demand=False, or remove personal",
        )


def entries_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module; tied ones are one object."""
    import torch

    state = module.state_dict(keep_vars=True)
    return {
        name: entry for name, entry in state.items() if isinstance(entry, torch.Tensor)
    }


def chosen_entries(
    personal: Personal,
    module: torch.nn.Module,
    names: Container[str],
) -> tuple[str, ...]:
    """Return these names in the order of the state, with other names of their tensors.

    Raises `IncompatibleParts` if the names cover all trainable parameters: the clients
    would have nothing in common.
    """
    entries = entries_of(module)
    chosen = {id(entry) for name, entry in entries.items() if name in names}
    trained = {id(p) for p in module.parameters() if p.requires_grad}
    if trained and trained <= chosen:
        raise IncompatibleParts(
            (
                f"{type(personal).__name__}: all trainable parameters would stay with the "
                "clients"
            ),
            "choose fewer entries, so that the server has parameters to average",
        )
    return tuple(name for name, entry in entries.items() if id(entry) in chosen)
