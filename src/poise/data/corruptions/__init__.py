"""Corruptions by name.

To add one, write a frozen dataclass with the members of `Corruption` and register it
here.
"""

from __future__ import annotations

from collections.abc import Callable

from poise.data.corruptions.corruption import Corruption
from poise.data.corruptions.domain import Domain
from poise.data.corruptions.flip_labels import FlipLabels
from poise.data.corruptions.watermark import Watermark

CORRUPTIONS: dict[str, Callable[..., Corruption]] = {
    "domain": Domain,
    "flip-labels": FlipLabels,
    "watermark": Watermark,
}

__all__ = ["CORRUPTIONS", "Corruption", "Domain", "FlipLabels", "Watermark"]
