"""Runs: the list, one line of it, tags."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter
from pydantic import BaseModel, Field

from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import LOCKED, PROBLEMS, ClientStateStore, Labels, RunName
from poise.apps.ui.tags import LONGEST, MOST, Tags
from poise.apps.ui.views.listing import RunLine, line_of, lines

router = APIRouter(tags=["runs"], responses=PROBLEMS)


class Wanted(BaseModel):
    """The tags that a run is to have."""

    tags: list[str] = Field(max_length=MOST, examples=[["baseline"]])


class Tagged(BaseModel):
    """The tags that a run has."""

    tags: list[str] = Field(description=f"At most {MOST}, of at most {LONGEST} characters.")


def listed(library: Library, tags: Tags) -> list[RunLine]:
    """Every run as a line."""
    looked = {}
    for name in library.names():
        with suppress(NoSuchRun):  # deleted since
            looked[name] = library.read_summary(name)
    return lines(looked, tags.all())


@router.get("/runs")
def runs(library: ClientStateStore, tags: Labels) -> list[RunLine]:
    """Every run, as it is now."""
    return listed(library, tags)


@router.get("/run/{name:path}")
def run(name: RunName, library: ClientStateStore, tags: Labels) -> RunLine:
    """One run, as it is now."""
    return line_of(name, library.read_summary(name), tags.all().get(name, ()))


@router.put("/tags/{name:path}", responses=LOCKED)
def set_tags(name: RunName, wanted: Wanted, library: ClientStateStore, tags: Labels) -> Tagged:
    """Give a run other tags. An action: it needs the token."""
    return Tagged(tags=tags.set(library.name(library.folder(name)), wanted.tags))
