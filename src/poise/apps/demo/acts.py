"""The acts of the demo, in order."""

from __future__ import annotations

from collections.abc import Callable

from poise.apps.demo.act import Act
from poise.apps.demo.explanation import explain_choices
from poise.apps.demo.federation import show_federation
from poise.apps.demo.free_riders import find_free_riders
from poise.apps.demo.slow_clients import time_slow_clients
from poise.apps.demo.stage import Stage
from poise.apps.demo.training import compare_choices
from poise.apps.demo.unlearning import unlearn_client

ActMaker = Callable[[Stage], Act]
"""Runs an act."""

ACTS: tuple[ActMaker, ...] = (
    show_federation,
    explain_choices,
    compare_choices,
    find_free_riders,
    unlearn_client,
    time_slow_clients,
)
"""Later acts read the runs of earlier ones."""
