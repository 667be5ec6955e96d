"""The page of all clients of a run: their data, and how alike they are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from poise.apps.ui import actions, gather
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import RunLibrary, RunName, page

router = APIRouter()


@router.get("/federation/{name:path}")
def federation(request: Request, name: RunName, library: RunLibrary) -> Response:
    """Facts and figures, and the similarity graph or a button to compute it."""
    federation_data = gather.federation_of(library, name)
    clients = library.read_summary(name).meta["clients"]
    jobs = latest(library, name, "inspect")
    return page(
        request,
        "federation.html",
        name=name,
        here="/federation",
        found=federation_data,
        clients=int(clients),
        jobs=jobs,
    )


@router.post("/federation/{name:path}")
def compare(name: RunName, library: RunLibrary) -> RedirectResponse:
    """Compute the similarity graph."""
    actions.compare(library, name)
    return to_actions("/federation", name)
