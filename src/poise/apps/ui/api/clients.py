"""API routes of the clients and the federation of a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.models import ClientOf, FederationOf, JobOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, RunLibrary, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["clients"], responses=PROBLEMS)

Number = Annotated[
    str,
    Query(
        alias="client",
        max_length=200,
        description="Number of the client, from 0, or its name.",
    ),
]
Page = Annotated[int, Query(ge=1, le=10**9, description="Page number, from 1.")]


@router.get("/client/{name:path}")
def client(
    name: RunName, library: RunLibrary, number: Number = "0", page: Page = 1
) -> ClientOf:
    """One client: data, contributions, sensitivity and audit result."""
    return gather.client_of(library, name, number, page)


@router.get("/client-figures/{name:path}", response_model=Drawings)
def client_figures(
    name: RunName, library: RunLibrary, number: Number = "0"
) -> Response:
    """The figures of one client."""
    return Response(
        gather.client_figures(library, name, number), media_type="application/json"
    )


@router.get("/federation/{name:path}")
def federation(name: RunName, library: RunLibrary) -> FederationOf:
    """All clients: their data and, if there is a similarity graph, how alike they are."""
    return gather.federation_of(library, name)


@router.get("/federation-figures/{name:path}", response_model=Drawings)
def federation_figures(name: RunName, library: RunLibrary) -> Response:
    """Sizes and classes of all clients."""
    return Response(
        gather.federation_figures(library, name), media_type="application/json"
    )


@router.get("/graph-figures/{name:path}", response_model=Drawings)
def graph_figures(name: RunName, library: RunLibrary) -> Response:
    """The figures of the similarity graph; empty before it is computed."""
    return Response(gather.graph_figures(library, name), media_type="application/json")


@router.post("/graph/{name:path}", responses=LOCKED)
def make_graph(name: RunName, library: RunLibrary) -> JobOf:
    """Compute the similarity graph of a simulated run. Needs the token."""
    return gather.job_of(actions.compare(library, name))
