"""``poise list``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from poise import composition as _composition  # noqa: F401 - it loads the parts of every slot
from poise.apps.cli.terminal import console, print_json
from poise.core.errors import InvalidOption, suggest
from poise.core.parts import parts_of
from poise.core.slots import RUN_SLOTS
from poise.recipes import RECIPES
from poise.tasks.models import MODELS

PARTS = {
    slot if slot == "personal" else f"{slot}s": slot for slot in (*RUN_SLOTS, "attack", "backend")
}
"""Slots by the name of their package."""


def show_parts(slot: str, json: bool) -> None:
    """The parts of one slot, or of all."""
    found = everything()
    if slot and slot not in found:
        raise InvalidOption(f"there is no slot {slot!r}", suggest(slot, found))
    chosen = {slot: found[slot]} if slot else found
    if json:
        print_json(chosen)
        return
    for name, rows in chosen.items():
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for column in ("name", "what it does", "options"):
            table.add_column(column, no_wrap=column == "name")
        for row in rows:
            table.add_row(row["name"], row["what"], row["options"])
        console.print(table, "")


def everything() -> dict[str, list[dict[str, str]]]:
    """Slot → rows of name, description, options."""
    slots = {
        name: [_row(n, cls) for n, cls in parts_of(PARTS[name]).items()] for name in sorted(PARTS)
    }
    models = [_row(name, make, skip=2) for name, make in sorted(MODELS.items())]
    recipes = [_row(name, make) for name, make in sorted(RECIPES.items())]
    return {**slots, "models": models, "recipes": recipes}


def _row(name: str, made: Callable[..., Any], skip: int = 0) -> dict[str, str]:
    what = (inspect.getdoc(made) or "").partition("\n")[0]
    if dataclasses.is_dataclass(made):
        options = [
            f.name if f.default is dataclasses.MISSING else f"{f.name}={f.default!r}"
            for f in dataclasses.fields(made)
        ]
    else:
        options = [
            str(p).split(":")[0] for p in list(inspect.signature(made).parameters.values())[skip:]
        ]
    return {"name": name, "what": what, "options": ", ".join(options)}
