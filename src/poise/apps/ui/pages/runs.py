"""The list of runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.apps.ui.api.runs import listed
from poise.apps.ui.shared import ClientStateStore, Labels, page
from poise.apps.ui.views.listing import main_score

router = APIRouter()


@router.get("/")
def runs(request: Request, library: ClientStateStore, tags: Labels) -> Response:
    """Every run as a row."""
    found = listed(library, tags)
    scores = list(dict.fromkeys(name for line in found for name in line.scores))
    first = main_score(scores)
    shown = [name for name in (first, *scores) if name is not None]
    return page(
        request, "runs.html", lines=found, scores=list(dict.fromkeys(shown))[:3], root=library.root
    )
