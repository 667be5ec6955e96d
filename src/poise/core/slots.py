"""The slots of a run, and their default parts."""

from __future__ import annotations

RUN_SLOTS = (
    "solver",
    "sampler",
    "clock",
    "weighting",
    "aggregator",
    "channel",
    "server",
    "personal",
)
"""The slots that take one part, in the order of the equation.

``personal`` may stay empty. The further slot ``attacks`` takes any number of parts.
"""

DEFAULTS = {
    "sampler": "full",
    "clock": "synchronous",
    "weighting": "proportional",
    "aggregator": "weighted-sum",
    "channel": "plain",
    "server": "add",
}
"""The names of the default parts, by slot."""
