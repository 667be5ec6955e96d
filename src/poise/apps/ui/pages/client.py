"""The page of one client."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.apps.ui import gather
from poise.apps.ui.api.clients import Number, Page
from poise.apps.ui.shared import RunLibrary, RunName, page

router = APIRouter()


@router.get("/client/{name:path}")
def client(
    request: Request,
    name: RunName,
    library: RunLibrary,
    number: Number = "0",
    rounds: Page = 1,
) -> Response:
    """Data, contributions, sensitivity and audit result of a client; default: client 0."""
    client_data = gather.client_of(library, name, given=number, page=rounds)
    return page(request, "client.html", name=name, here="/client", found=client_data)
