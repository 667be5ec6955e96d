"""API routes of the figures of a run, down-sampled for the screen."""

from __future__ import annotations

from typing import Literal, get_args

from fastapi import APIRouter
from starlette.responses import Response

from poise.apps.ui.shared import PROBLEMS, RunLibrary, RunName
from poise.apps.ui.views.drawing import OF_A_RUN, Drawings, drawn

router = APIRouter(tags=["figures"], responses=PROBLEMS)

Figure = Literal[
    "curves", "weights", "cohorts", "losses", "times", "promises", "clients"
]
assert set(get_args(Figure)) == set(OF_A_RUN)


@router.get("/figures/{figure}/{name:path}", response_model=Drawings)
def figures(figure: Figure, name: RunName, library: RunLibrary) -> Response:
    """The figures of one kind, as JSON for Plotly."""

    def make() -> str:
        with library.open(name) as run:
            return drawn(OF_A_RUN[figure](run))

    return Response(
        library.cached(name, ("figures", figure), make), media_type="application/json"
    )
