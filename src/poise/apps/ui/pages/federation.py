"""All clients of a run: who holds what, and how alike they are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from poise.apps.ui import actions, gather
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import ClientStateStore, RunName, page

router = APIRouter()


@router.get("/federation/{name:path}")
def federation(request: Request, name: RunName, library: ClientStateStore) -> Response:
    """Facts and figures; the similarity graph where it was made, a button that makes it where it
    can be.
    """
    found = gather.federation_of(library, name)
    clients = library.read_summary(name).meta["clients"]
    jobs = latest(library, name, "inspect")
    return page(
        request,
        "federation.html",
        name=name,
        here="/federation",
        found=found,
        clients=int(clients),
        jobs=jobs,
    )


@router.post("/federation/{name:path}")
def compare(name: RunName, library: ClientStateStore) -> RedirectResponse:
    """Make the graph."""
    actions.compare(library, name)
    return to_actions("/federation", name)
