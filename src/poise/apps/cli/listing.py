"""The verb ``poise list``."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from rich.table import Table

from poise.apps.cli.terminal import console, print_json
from poise.core.errors import InvalidOption, suggest
from poise.core.plugins import load_plugins, plugins

CATALOGUE = Path(__file__).parent / "parts.json"
"""The descriptions of poise's own parts, by slot."""

Descriptions = dict[str, list[dict[str, str]]]


def show_parts(slot: str, json: bool) -> None:
    """Print the parts of one slot, or of all slots."""
    parts = described_parts()
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


def described_parts() -> Descriptions:
    """Describe all parts; only installed packages with parts of their own are imported."""
    if plugins():
        from poise.apps.cli.catalogue import parts_by_slot

        load_plugins()
        return parts_by_slot()
    found: Descriptions = jsonlib.loads(CATALOGUE.read_text(encoding="utf-8"))
    return found
