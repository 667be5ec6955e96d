"""Experiment files in words: one phrase per slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poise.results.words import HEADINGS, brief

ROLES = {
    "data": "data of each client",
    "task": "model and loss",
    "solver": "local training",
    "sampler": "choice of clients",
    "clock": "timing of aggregations",
    "weighting": "weight of each update",
    "aggregator": "combination of the updates",
    "channel": "transfer of the updates",
    "server": "server optimiser",
    "personal": "state kept by each client",
    "attacks": "dishonest clients",
    "run": "length and options",
}
"""The sections of an experiment file, in the order of a round, and the role of each."""

_QUIET = {
    "evaluate_every": 1,
    "metrics": [],
    "keep": "last",
    "bad_updates": "stop",
    "backend": {"name": "local"},
}


def phrase(table: object) -> str:
    """A section in words: its name, then its options.

    >>> phrase({"name": "uniform", "m": 5})
    'uniform: m = 5'
    >>> phrase({"rounds": 50, "keep": "last"})
    'rounds = 50'
    """
    if isinstance(table, list | tuple):
        return "; ".join(phrase(item) for item in table) or "none"
    if not isinstance(table, Mapping):
        return brief(table)
    heading = next((str(table[key]) for key in HEADINGS if key in table), "")
    options = [
        f"{key} = {brief(value)}"
        for key, value in table.items()
        if key not in HEADINGS and not (key in _QUIET and value == _QUIET[key])
    ]
    return ": ".join(filter(None, (heading, ", ".join(options)))) or "default"


def choices(experiment: Mapping[str, Any]) -> dict[str, str]:
    """The options of each section of an experiment in words, in the order of a round.

    >>> choices({"sampler": {"name": "full"}, "run": {"rounds": 3}})
    {'data': 'given in Python', 'task': 'given in Python', 'sampler': 'full', 'run': 'rounds = 3'}
    """
    chosen = {"data": "given in Python", "task": "given in Python"}
    for section in [*ROLES, *(key for key in experiment if key not in ROLES)]:
        if section in experiment:
            chosen[section] = phrase(experiment[section])
    return chosen


def sentence(words: str) -> str:
    """Capitalise the first letter.

    >>> sentence("final loss is lower")
    'Final loss is lower'
    """
    return words[:1].upper() + words[1:]
