"""Clocks: when the server aggregates, and how long the clients need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.lazy import lazy_names

if TYPE_CHECKING:
    from poise.clocks.asynchronous import Asynchronous
    from poise.clocks.buffered import Buffered
    from poise.clocks.exponential import Exponential
    from poise.clocks.fixed_window import FixedWindow
    from poise.clocks.replay import Replay, load_schedule, save_schedule
    from poise.clocks.synchronous import Synchronous
    from poise.clocks.trace import Trace

__all__ = [
    "Asynchronous",
    "Buffered",
    "Exponential",
    "FixedWindow",
    "Replay",
    "Synchronous",
    "Trace",
    "load_schedule",
    "save_schedule",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Asynchronous": "asynchronous",
        "Buffered": "buffered",
        "Exponential": "exponential",
        "FixedWindow": "fixed_window",
        "Replay": "replay",
        "Synchronous": "synchronous",
        "Trace": "trace",
        "load_schedule": "replay",
        "save_schedule": "replay",
    },
)
