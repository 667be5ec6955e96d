"""The verb ``poise list``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from poise import training as _training  # noqa: F401 - it loads the parts of every slot
from poise.apps.cli.terminal import console, print_json
from poise.core.errors import InvalidOption, suggest
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


def show_parts(slot: str, json: bool) -> None:
    """Print the parts of one slot, or of all slots."""
    parts = parts_by_slot()
    if slot and slot not in parts:
        raise InvalidOption(f"unknown slot {slot!r}", suggest(slot, parts))
    if slot:
        parts = {slot: parts[slot]}
    if json:
        print_json(parts)
        return
    for name, rows in parts.items():
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for column in ("name", "what it does", "options"):
            table.add_column(column, no_wrap=column == "name")
        for row in rows:
            table.add_row(row["name"], row["what"], row["options"])
        console.print(table, "")


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
