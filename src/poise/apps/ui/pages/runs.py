"""The list of runs."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from poise.analysis.reports.groups import identity_of
from poise.apps.ui.api.clients import Page
from poise.apps.ui.api.runs import Find, Sort, SortOrder, listed
from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import RunLibrary, RunTags, page
from poise.apps.ui.views.experiments import columns, experiments
from poise.apps.ui.views.listing import RunLine, experiment_tables, main_score

router = APIRouter()


@router.get("/")
def runs(
    request: Request,
    library: RunLibrary,
    tags: RunTags,
    number: Annotated[Page, Query(alias="page")] = 1,
    find: Find = "",
    sort: Sort = "run",
    order: SortOrder = "up",
) -> Response:
    """A table of experiments with their seeds folded, 100 runs per page."""
    listing = listed(library, tags, page=number, find=find, sort=sort, order=order)
    lines = listing.lines
    scores = list(dict.fromkeys(name for line in lines for name in line.scores))
    first = main_score(scores)
    chosen = sort if sort in scores else None
    ordered = dict.fromkeys(
        name for name in (first, chosen, *scores) if name is not None
    )
    return page(
        request,
        "runs.html",
        lines=lines,
        experiments=experiments(lines, _identities(library, lines)),
        scores=list(ordered)[:3],
        columns=columns(list(ordered)),
        root=library.root,
        listing=listing,
        find=find,
        sort=sort,
        order=order,
    )


def _identities(library: Library, lines: list[RunLine]) -> dict[str, dict[str, Any]]:
    """What the runs of each experiment share, by name of its first run on the page."""
    firsts: dict[str, str] = {}
    for line in lines:
        if line.recipe and line.clients is not None:
            firsts.setdefault(line.experiment, line.name)
    found = {}
    for name in firsts.values():
        with suppress(NoSuchRun):  # deleted in the meantime
            summary = library.read_summary(name)
            tables = experiment_tables(summary.experiment)
            found[name] = identity_of(tables, summary.meta)
    return found
