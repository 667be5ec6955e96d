"""The pages of deployments: their nodes, and the supervisor's log."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.apps.ui.shared import Deployments, page
from poise.apps.ui.views.nodes import deployment_at, deployment_view, supervisor_log

router = APIRouter()


@router.get("/nodes")
def nodes(request: Request, known: Deployments) -> Response:
    """The nodes of all deployments of the console."""
    found = [deployment_view(folder, k) for k, folder in enumerate(known)]
    return page(request, "nodes.html", found=found)


@router.get("/supervisor-log/{number}")
def log(request: Request, number: int, known: Deployments) -> Response:
    """The end of the log of a deployment's supervisor."""
    found = supervisor_log(deployment_at(known, number))
    return page(request, "supervisor-log.html", found=found)
