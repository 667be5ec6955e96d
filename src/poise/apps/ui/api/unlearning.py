"""Requests to forget: those that were honoured, what another would cost, and making it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.refusing import refusing
from poise.apps.ui.models import Cost, JobOf, UnlearningOf, Wish
from poise.apps.ui.shared import LOCKED, PROBLEMS, ClientStateStore, Deployments, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["unlearning"], responses=PROBLEMS)

To = Annotated[
    str,
    Query(description="The deployment whose nodes retrain, of those that the console was told of."),
]


@router.get("/unlearning/{name:path}")
def unlearning(name: RunName, library: ClientStateStore) -> UnlearningOf:
    """What a run was asked to forget, with certificates and whether they were verified here."""
    return gather.unlearning_of(library, name)


@router.get("/unlearning-figures/{name:path}", response_model=Drawings)
def unlearning_figures(name: RunName, library: ClientStateStore) -> Response:
    """The tree of histories, and how far each client moved the model."""
    return Response(gather.unlearning_figures(library, name), media_type="application/json")


@router.get("/unlearning-cost/{name:path}")
def cost(name: RunName, library: ClientStateStore, wish: Annotated[Wish, Query()]) -> Cost:
    """What a request would cost: restart, rounds to redo, noise. Nothing is changed by looking."""
    from poise.apps.ui.views.unlearning import Asked

    with refusing():
        return gather.cost_of(library, name, Asked.wished(wish.model_dump()))


@router.post("/forget/{name:path}", responses=LOCKED)
def forget(
    name: RunName, library: ClientStateStore, wish: Wish, known: Deployments, to: To = ""
) -> JobOf:
    """Honour a request, as ``poise unlearn`` does, in a process of its own. An action: it needs the
    token.
    """
    from poise.apps.ui.views.unlearning import Asked

    with refusing():
        to_nodes = gather.deployment_named(known, to)
        return gather.job_of(
            actions.forget(library, name, Asked.wished(wish.model_dump()), to_nodes)
        )


@router.post("/verification/{request}/{name:path}", responses=LOCKED)
def verify(request: int, name: RunName, library: ClientStateStore) -> JobOf:
    """Hold the certificate of a request against the ledgers and models it rests on. An action: it
    needs the token.
    """
    return gather.job_of(actions.verify(library, name, request))
