"""API routes of the list of runs and of their tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from poise.apps.ui.api.clients import Page
from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import LOCKED, PROBLEMS, RunLibrary, RunName, RunTags
from poise.apps.ui.tags import LONGEST, MOST, Tags
from poise.apps.ui.views.experiments import Order, sorted_lines
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


SIZE = 100
"""Number of runs on a page of the list."""


@dataclass(frozen=True)
class Listing:
    """One page of the list of runs, and the number of runs on all pages."""

    lines: list[RunLine]
    page: int
    total: int

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(-(-self.total // SIZE), 1)


def listed(
    library: Library,
    tags: Tags,
    page: int = 1,
    find: str = "",
    sort: str = "run",
    order: Order = "up",
) -> Listing:
    """The lines of one page of runs.

    By name, it reads only these runs and their other seeds; otherwise all runs.

    Args:
        library: the runs.
        tags: their tags.
        page: number of the page, from 1.
        find: words that the name or the tags of a run must contain.
        sort: a column or a score (`columns`).
        order: ``up`` or ``down``.
    """
    all_tags = tags.all()
    names = library.names()
    if find.strip():
        names = [name for name in names if _fits(name, all_tags.get(name, ()), find)]
    first = (page - 1) * SIZE
    if sort == "run":
        if order == "down":
            names.reverse()
        shown = names[first : first + SIZE]
        found = _lines_of(library, _with_seeds(shown, names), all_tags)
        by_name = {line.name: line for line in found}
        on_page = [by_name[name] for name in shown if name in by_name]
    else:
        found = _lines_of(library, names, all_tags)
        on_page = sorted_lines(found, sort, order)[first : first + SIZE]
    return Listing(on_page, page=page, total=len(names))


def _with_seeds(shown: Sequence[str], names: Sequence[str]) -> list[str]:
    """The runs of a page, with seeds of its first and last experiment elsewhere."""
    parents = {name.rpartition("/")[0] for name in (*shown[:1], *shown[-1:])} - {""}
    seeds = [name for name in names if name.rpartition("/")[0] in parents]
    return list(dict.fromkeys((*shown, *seeds[:SIZE])))


def _lines_of(
    library: Library, names: Sequence[str], tags: Mapping[str, Sequence[str]]
) -> list[RunLine]:
    summaries = {}
    for name in names:
        with suppress(NoSuchRun):  # deleted in the meantime
            summaries[name] = library.read_summary(name)
    return lines(summaries, tags)


def _fits(name: str, tags: Sequence[str], find: str) -> bool:
    text = " ".join((name, *tags)).lower()
    return all(word in text for word in find.lower().split())


Find = Annotated[
    str, Query(max_length=200, description="Words in the name or the tags of runs.")
]


Sort = Annotated[
    str,
    Query(
        max_length=200,
        description="run, state, data, progress, began, duration, changed, or a score.",
    ),
]
SortOrder = Annotated[Order, Query(description="Ascending or descending.")]


@router.get("/runs")
def runs(
    library: RunLibrary,
    tags: RunTags,
    response: Response,
    page: Page = 1,
    find: Find = "",
    sort: Sort = "run",
    order: SortOrder = "up",
) -> list[RunLine]:
    """The current state of the runs, 100 per page; ``x-pages`` is the number of pages."""
    listing = listed(library, tags, page=page, find=find, sort=sort, order=order)
    response.headers["x-pages"] = str(listing.pages)
    return listing.lines


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
