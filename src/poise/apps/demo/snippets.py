"""Lines of Python that readers can paste."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

WIDTH = 84


def call(name: str, *arguments: object, **options: object) -> str:
    """A call as source text, in lines that fit a page.

    >>> call("poise.audit", "runs/x", alarm=0.01)
    "poise.audit('runs/x', alarm=0.01)"
    """
    words = [
        *map(repr, arguments),
        *(f"{key}={value!r}" for key, value in options.items()),
    ]
    text = f"{name}({', '.join(words)})"
    return textwrap.fill(
        text,
        WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def federation_call(data: Mapping[str, Any], seed: int) -> str:
    """The table [data] of an experiment file as a call of `poise.federation`."""
    options = dict(data)
    source = options.pop("source")
    partition = options.pop("partition")
    return call("poise.federation", source, partition, **options, seed=seed)
