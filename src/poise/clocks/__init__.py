"""Clocks: when the server aggregates, and how long the clients need."""

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
