"""`divergence`: whether the model of a run became far worse than the one it began with."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from poise.ledger.store import Ledger

FACTOR = 100.0
"""A run diverged if its last loss is so many times its lowest one (1 at least)."""

LOSSES = ("loss", "own_loss", "train_loss")
"""The losses of the whole model, the preferred one first."""

DIVERGED = "diverged: "
"""How the event of a diverged run begins."""


def divergence(ledger: Ledger, at_start: Callable[[str], float]) -> str:
    """Return why a run diverged, as an event; empty if it did not, or measured no loss.

    ``at_start(name)`` measures the model before the first round. It is called only if
    the losses of the rounds leave the question open.
    """
    for name in LOSSES:
        values = _values(ledger, name)
        if values:
            return _reason(name, values, at_start)
    return ""


def _values(ledger: Ledger, name: str) -> list[float]:
    """Return the last and the lowest value of a loss, or nothing without any value.

    The ledger stores nan as NULL. A loss of the clients is nan where no client sent one,
    so only a loss of held-out samples counts as nan.
    """
    query = "SELECT value FROM metrics WHERE name = ?"
    if name != LOSSES[0]:
        query += " AND value IS NOT NULL"
    with ledger.guard():
        row = ledger.database.execute(f"{query} ORDER BY n DESC LIMIT 1", (name,))
        last = row.fetchone()
        if last is None:
            return []
        if last[0] is None:
            return [float("nan")]
        if last[0] <= FACTOR:
            return [last[0], last[0]]
        lowest = "SELECT min(value) FROM metrics WHERE name = ?"
        return [last[0], *ledger.database.execute(lowest, (name,)).fetchone()]


def _reason(name: str, values: list[float], at_start: Callable[[str], float]) -> str:
    """Compare the last value of a loss with the lowest one."""
    last = values[0]
    if not isfinite(last):
        return f"{DIVERGED}the last {name} is {last}"
    lowest = values[1]
    if last <= FACTOR:
        return ""
    if last <= FACTOR * max(1.0, lowest):
        lowest = min(lowest, at_start(name))
    if last <= FACTOR * max(1.0, lowest):
        return ""
    return f"{DIVERGED}the last {name} is {last:.3g}, the lowest was {lowest:.3g}"


__all__ = ["DIVERGED", "divergence"]
