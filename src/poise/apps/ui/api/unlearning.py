"""API routes of unlearning: finished requests, cost of a new one, start and verification."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.conflicts import as_conflict
from poise.apps.ui.models import Cost, JobOf, RequestBody, UnlearningOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, Deployments, RunLibrary, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["unlearning"], responses=PROBLEMS)

To = Annotated[
    str,
    Query(
        description="Folder of the deployment whose nodes retrain; see --deployment."
    ),
]


@router.get("/unlearning/{name:path}")
def unlearning(name: RunName, library: RunLibrary) -> UnlearningOf:
    """The unlearning requests of a run, with certificates and their verification state."""
    return gather.unlearning_of(library, name)


@router.get("/unlearning-figures/{name:path}", response_model=Drawings)
def unlearning_figures(name: RunName, library: RunLibrary) -> Response:
    """The restart tree, and the sensitivity to each client."""
    return Response(
        gather.unlearning_figures(library, name), media_type="application/json"
    )


@router.get("/unlearning-cost/{name:path}")
def cost(
    name: RunName, library: RunLibrary, body: Annotated[RequestBody, Query()]
) -> Cost:
    """The cost of a request: restart, rounds to repeat, noise. Changes nothing."""
    from poise.apps.ui.views.unlearning import RequestOptions

    with as_conflict():
        return gather.cost_of(library, name, RequestOptions.from_api(body.model_dump()))


@router.post("/forget/{name:path}", responses=LOCKED)
def unlearn(
    name: RunName,
    library: RunLibrary,
    body: RequestBody,
    known: Deployments,
    to: To = "",
) -> JobOf:
    """Unlearn clients in a separate process, like ``poise unlearn``. Needs the token."""
    from poise.apps.ui.views.unlearning import RequestOptions

    with as_conflict():
        deployment = gather.deployment_named(known, to)
        options = RequestOptions.from_api(body.model_dump())
        return gather.job_of(
            actions.unlearn(library, name, options, deployment=deployment)
        )


@router.post("/verification/{request}/{name:path}", responses=LOCKED)
def verify(request: int, name: RunName, library: RunLibrary) -> JobOf:
    """Check the certificate of a request against its ledgers and models. Needs the token."""
    return gather.job_of(actions.verify(library, name, request))
