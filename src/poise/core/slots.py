"""The slots of a run, and the part that fills each where nobody chose one."""

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
"""The slots that take one part, in the order of the equation; ``personal`` may stay empty.

``attacks`` takes any number of parts beside them.
"""

DEFAULTS = {
    "sampler": "full",
    "clock": "synchronous",
    "weighting": "proportional",
    "aggregator": "weighted-sum",
    "channel": "plain",
    "server": "add",
}
"""Names of the parts that fill slots left empty."""
