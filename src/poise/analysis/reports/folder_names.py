"""Groups of runs under the names of their folders, where their labels are long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from poise.analysis.reports.groups import Group

LONGEST = 40
"""Maximum number of characters of a label beside other groups."""

_INNER = ("unlearning", "scratch")
"""Folders in run folders; their names need those of the run."""


def named_by_folder(groups: Sequence[Group], always: bool = False) -> list[Group]:
    """Name groups by their folders if a label is long or the data differ.

    The label becomes the description of the group. Groups keep their labels if a run is
    in memory, if a folder has runs of several groups, or if its name is long, too.

    Args:
        groups: the groups.
        always: also if all labels are short.
    """
    long = any(len(group.label) > LONGEST for group in groups)
    several_data = len({group.data for group in groups}) > 1
    if len(groups) < 2 or not (always or long or several_data):
        return list(groups)
    names = _folder_names(groups)
    if not names or max(map(len, names)) > LONGEST:
        return list(groups)
    return [
        replace(group, label=name, description=group.label)
        for name, group in zip(names, groups, strict=True)
    ]


def _folder_names(groups: Sequence[Group]) -> list[str]:
    """The name of each group's folder, with its parents' names if two are equal.

    Empty if these names do not tell the groups apart.
    """
    folders = [_folders(group) for group in groups]
    if not all(folders):
        return []
    for parents in range(3):
        names = [
            " + ".join(_name(path, parents) for path in found) for found in folders
        ]
        if len(set(names)) == len(groups):
            return names
    return []


def _folders(group: Group) -> list[Path]:
    """The folders that hold the seeds of a group; empty if a run is in memory."""
    found: dict[Path, None] = {}
    for run in group.runs:
        if run.path is None:
            return []
        folder = run.path.resolve()
        if folder.name.startswith("seed-"):
            folder = folder.parent
        found[folder] = None
    return list(found)


def _name(folder: Path, parents: int) -> str:
    """The last names of a path; a branch in a run folder also has the run's name."""
    kept = [folder.name]
    above = folder.parent
    while _is_inner(kept[0]) and above.name:
        kept.insert(0, above.name)
        above = above.parent
    for _ in range(parents):
        if above.name:
            kept.insert(0, above.name)
            above = above.parent
    return "/".join(kept)


def _is_inner(name: str) -> bool:
    return name in _INNER or name.isdecimal() or name.startswith("seed-")


__all__ = ["named_by_folder"]
