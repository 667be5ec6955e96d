"""Parts of installed packages, which declare the entry point ``poise.parts``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from poise.core.errors import InvalidOption
from poise.core.objects import failure

GROUP = "poise.parts"
"""The group of entry points whose modules declare parts."""


def load_parts_named(slot: str, name: object) -> None:
    """Import the modules of all entry points if a slot has no part of this name yet."""
    from poise.core.parts import part_named

    if part_named(slot, name) is None:
        load_plugins()


def plugins() -> tuple[EntryPoint, ...]:
    """Return the entry points in the group ``poise.parts``; imports nothing."""
    return tuple(entry_points(group=GROUP))


def load_plugins() -> None:
    """Import the modules of all entry points in the group ``poise.parts``."""
    for entry in plugins():
        _load(entry)


def _load(entry: EntryPoint) -> None:
    try:
        entry.load()
    except (Exception, SystemExit) as error:  # the module is another package's
        package = entry.dist.name if entry.dist is not None else entry.value
        raise InvalidOption(
            f"the entry point {entry.name!r} of the package {package!r} cannot be "
            f"imported: {failure(error)}",
            "repair or uninstall the package",
        ) from error
