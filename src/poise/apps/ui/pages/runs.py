"""The list of runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.apps.ui.api.runs import listed
from poise.apps.ui.shared import RunLibrary, RunTags, page
from poise.apps.ui.views.listing import main_score

router = APIRouter()


@router.get("/")
def runs(request: Request, library: RunLibrary, tags: RunTags) -> Response:
    """A table with one row per run."""
    lines = listed(library, tags)
    scores = list(dict.fromkeys(name for line in lines for name in line.scores))
    first = main_score(scores)
    ordered = dict.fromkeys(name for name in (first, *scores) if name is not None)
    return page(
        request, "runs.html", lines=lines, scores=list(ordered)[:3], root=library.root
    )
