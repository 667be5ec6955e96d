"""One client of a run."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.apps.ui import gather
from poise.apps.ui.api.clients import Number, Page
from poise.apps.ui.shared import ClientStateStore, RunName, page

router = APIRouter()


@router.get("/client/{name:path}")
def client(
    request: Request, name: RunName, library: ClientStateStore, number: Number = 0, rounds: Page = 1
) -> Response:
    """What it holds, what it did, how far it moved the model, what the audit says; the first one by
    default.
    """
    found = gather.client_of(library, name, number, rounds)
    return page(request, "client.html", name=name, here="/client", found=found)
