"""The clients of a run: each, and all together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.models import ClientOf, FederationOf, JobOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, ClientStateStore, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["clients"], responses=PROBLEMS)

Number = Annotated[int, Query(alias="client", description="Its number in the run, from 0.")]
Page = Annotated[int, Query(ge=1, le=10**9, description="Counted from 1.")]


@router.get("/client/{name:path}")
def client(
    name: RunName, library: ClientStateStore, number: Number = 0, page: Page = 1
) -> ClientOf:
    """One client: what it holds, what it did, how far it moved the model, what the audit says of
    it.
    """
    return gather.client_of(library, name, number, page)


@router.get("/client-figures/{name:path}", response_model=Drawings)
def client_figures(name: RunName, library: ClientStateStore, number: Number = 0) -> Response:
    """The figures of one client."""
    return Response(gather.client_figures(library, name, number), media_type="application/json")


@router.get("/federation/{name:path}")
def federation(name: RunName, library: ClientStateStore) -> FederationOf:
    """All clients: who holds what and, where a similarity graph was made, how alike they are."""
    return gather.federation_of(library, name)


@router.get("/federation-figures/{name:path}", response_model=Drawings)
def federation_figures(name: RunName, library: ClientStateStore) -> Response:
    """How much everyone holds, and of which classes."""
    return Response(gather.federation_figures(library, name), media_type="application/json")


@router.get("/graph-figures/{name:path}", response_model=Drawings)
def graph_figures(name: RunName, library: ClientStateStore) -> Response:
    """The similarity graph; none before it was made."""
    return Response(gather.graph_figures(library, name), media_type="application/json")


@router.post("/graph/{name:path}", responses=LOCKED)
def make_graph(name: RunName, library: ClientStateStore) -> JobOf:
    """Make the similarity graph of a simulated run, in a process of its own. An action: it needs
    the token.
    """
    return gather.job_of(actions.compare(library, name))
