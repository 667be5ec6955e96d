"""API routes of the list of runs and of their tags."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter
from pydantic import BaseModel, Field

from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import LOCKED, PROBLEMS, RunLibrary, RunName, RunTags
from poise.apps.ui.tags import LONGEST, MOST, Tags
from poise.apps.ui.views.listing import RunLine, line_of, lines

router = APIRouter(tags=["runs"], responses=PROBLEMS)


class NewTags(BaseModel):
    """The new tags of a run."""

    tags: list[str] = Field(max_length=MOST, examples=[["baseline"]])


class CurrentTags(BaseModel):
    """The current tags of a run."""

    tags: list[str] = Field(
        description=f"At most {MOST}, of at most {LONGEST} characters."
    )


def listed(library: Library, tags: Tags) -> list[RunLine]:
    """The lines of all runs."""
    summaries = {}
    for name in library.names():
        with suppress(NoSuchRun):  # deleted in the meantime
            summaries[name] = library.read_summary(name)
    return lines(summaries, tags.all())


@router.get("/runs")
def runs(library: RunLibrary, tags: RunTags) -> list[RunLine]:
    """The current state of all runs."""
    return listed(library, tags)


@router.get("/run/{name:path}")
def run(name: RunName, library: RunLibrary, tags: RunTags) -> RunLine:
    """The current state of one run."""
    return line_of(name, library.read_summary(name), tags.all().get(name, ()))


@router.put("/tags/{name:path}", responses=LOCKED)
def set_tags(
    name: RunName, new: NewTags, library: RunLibrary, tags: RunTags
) -> CurrentTags:
    """Replace the tags of a run. Needs the token."""
    return CurrentTags(tags=tags.set(library.name(library.folder(name)), new.tags))
