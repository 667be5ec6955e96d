"""A small experiment to sweep, and the digests of a sweep's runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faults.support import small
from poise.apps.experiments.runner import folders_in
from poise.results import open_run

ROUNDS = 12


def file_in(folder: Path, more: str = "", **run: object) -> Path:
    """Write the small experiment into a folder, and more tables after it."""
    file = folder / "exp.toml"
    file.write_text(small(rounds=ROUNDS, **run) + more)
    return file


def digests(sweep: Path) -> dict[str, str]:
    """The digest of every run of a sweep, by its folder."""
    found = {}
    for folder in folders_in(sweep):
        run = open_run(folder)
        found[str(folder.relative_to(sweep))] = f"{run.rounds} {run.digest}"
        run.close()
    return found


def values(over: dict[str, Any]) -> list[str]:
    """The arguments of the command for these values."""
    return [
        word
        for key, row in over.items()
        for word in ("--over", f"{key}={','.join(map(str, row))}")
    ]
