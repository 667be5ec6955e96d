"""Find poise's own parts by name, and import only the modules that define them."""

from __future__ import annotations

from importlib import import_module

PACKAGES = {
    "solver": "poise.solvers",
    "sampler": "poise.samplers",
    "clock": "poise.clocks",
    "weighting": "poise.weightings",
    "aggregator": "poise.aggregators",
    "channel": "poise.channels",
    "server": "poise.servers",
    "personal": "poise.personal",
    "attack": "poise.attacks",
    "backend": "poise.backends",
    "durations": "poise.clocks",
    "optimizer": "poise.solvers.optimizers",
    "schedule": "poise.solvers.schedules",
}
"""The package with the parts of each slot; its ``__all__`` lists the classes."""


def import_part(slot: str, name: str) -> None:
    """Import the class of poise that has this part's name, if there is one.

    The class ``ClusteredBySize`` declares the part ``clustered-by-size``.
    """
    package = import_module(PACKAGES[slot])
    wanted = name.replace("-", "").lower()
    for public in package.__all__:
        if public.lower() == wanted:
            getattr(package, public)


def import_parts(slot: str) -> None:
    """Import all classes of a slot."""
    package = import_module(PACKAGES[slot])
    for public in package.__all__:
        getattr(package, public)
