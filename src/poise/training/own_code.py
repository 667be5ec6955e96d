"""Modules of users that an experiment names: find them, and import them when it runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from poise import engine
from poise.config.experiment import Experiment
from poise.core.errors import IncompatibleParts, errors_at
from poise.core.objects import import_module, is_name, module_of, name_of, use_folders
from poise.core.own_code import IMPORT
from poise.core.own_functions import allow_function, function_modules, functions_in
from poise.core.parts import OURS, is_part, part_named
from poise.core.plugins import load_parts_named
from poise.core.slots import RUN_SLOTS
from poise.core.vectors import Layout
from poise.tasks.named import task_modules

SLOTS_WITH_OPTIONS = (*RUN_SLOTS, "attacks")
"""The tables of an experiment that describe parts."""

LAYOUT = "layout"
"""The entry of the ledger with the hash of the layout of a user's model."""


def modules_in(tables: Mapping[str, Any]) -> list[str]:
    """Return the users' modules that an experiment names; imports nothing.

    >>> modules_in({"import": ["mine.parts"], "data": {"source": "mine.data:load"}})
    ['mine.parts', 'mine.data']
    """
    modules = [str(module) for module in tables.get(IMPORT, ())]
    source = tables.get("data", {}).get("source")
    if is_name(source):
        modules.append(module_of(source))
    for slot in SLOTS_WITH_OPTIONS:
        modules += function_modules(tables.get(slot))
    return [*modules, *task_modules(tables.get("task", {}))]


def use_code(experiment: Experiment) -> None:
    """Make the users' modules of an experiment importable; import its parts and schedules.

    Modules are found beside the experiment file, in the current folder and among the
    installed packages; never in a run folder.
    """
    if modules_in(experiment.tables):
        beside = [] if experiment.path is None else [experiment.path.parent]
        use_folders([*beside, Path.cwd()])
    with experiment.located(), errors_at(IMPORT):
        for module in experiment.tables.get(IMPORT, ()):
            import_module(module)
    for slot in SLOTS_WITH_OPTIONS:
        for place, function in functions_in(experiment.tables.get(slot)):
            with experiment.located(), errors_at(slot, *place):
                allow_function(function)
    for slot, name in _named_parts(experiment):
        load_parts_named(slot, name)


def _named_parts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield slot and name of every part that an experiment names."""
    tables = [(slot, experiment.table(slot)) for slot in RUN_SLOTS]
    tables += [("attack", table) for table in experiment.tables.get("attacks", ())]
    for slot, table in tables:
        if isinstance(table.get("name"), str):
            yield slot, table["name"]


def part_modules(parts: engine.Parts) -> list[str]:
    """Return the modules of users that declare parts of a run, for ``import``."""
    modules: set[str] = set()
    for part in [*(part for _, part in parts.chosen()), *parts.attacks]:
        modules.update(declaring_modules(part))
    return sorted(modules)


def declaring_modules(part: object) -> Iterator[str]:
    """Yield the module of a user's part, and those of the parts in its options."""
    if not is_part(part):
        return
    cls = part_named(part.slot, part.name)
    name = None if cls is None else name_of(cls)
    if name is not None and not name.startswith(OURS):
        yield module_of(name)
    for option in dataclasses.fields(part):
        value = vars(part)[option.name]
        for item in value if isinstance(value, tuple) else (value,):
            yield from declaring_modules(item)


def layout_hash(layout: Layout) -> str:
    """Return a hash of the names and shapes of a model's entries, in their order."""
    entries = [(entry.name, tuple(entry.shape)) for entry in layout.entries]
    return hashlib.sha256(repr(entries).encode()).hexdigest()


def refuse_other_layout(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if a user's model has other entries than at the start of the run."""
    if LAYOUT in recorded and recorded[LAYOUT] != now.get(LAYOUT):
        raise IncompatibleParts(
            "the code of the model changed: it has other parameters than at the start of "
            "the run",
            "restore the code, or begin a new run",
            where=("task",),
        )
