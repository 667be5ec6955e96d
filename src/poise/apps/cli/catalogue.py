"""Describe the parts of every slot from their classes and functions.

``parts.json`` beside this module keeps the descriptions, so that ``poise list`` imports
no part. ``python tools/catalogue.py`` writes the file anew; a test compares it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from poise.core.parts import parts_of
from poise.core.slots import RUN_SLOTS
from poise.recipes import RECIPES
from poise.tasks import ridge
from poise.tasks.models import MODELS

PARTS = {
    slot if slot == "personal" else f"{slot}s": slot
    for slot in (*RUN_SLOTS, "attack", "backend")
}
"""Slot by package name (``samplers`` → ``sampler``)."""


def parts_by_slot() -> dict[str, list[dict[str, str]]]:
    """All parts: slot → rows with name, description and options."""
    slots = {
        name: [_row(n, cls) for n, cls in parts_of(PARTS[name]).items()]
        for name in sorted(PARTS)
    }
    models = [_row(name, make, skip=2) for name, make in sorted(MODELS.items())]
    models.append(_row("ridge", ridge))
    recipes = [_row(name, make) for name, make in sorted(RECIPES.items())]
    return {**slots, "models": models, "recipes": recipes}


def _row(name: str, factory: Callable[..., Any], skip: int = 0) -> dict[str, str]:
    """One line of the list: a part's name, its docstring's first line, its options."""
    summary = (inspect.getdoc(factory) or "").partition("\n")[0]
    options: list[str] = []
    if dataclasses.is_dataclass(factory):
        for field in dataclasses.fields(factory):
            option = field.name
            if field.default is not dataclasses.MISSING:
                option += f"={field.default!r}"
            options.append(option)
    else:
        parameters = list(inspect.signature(factory).parameters.values())[skip:]
        options = [str(parameter).split(":")[0] for parameter in parameters]
    return {"name": name, "what": summary, "options": ", ".join(options)}
