"""API routes of the deployments that the console was started with."""

from __future__ import annotations

from fastapi import APIRouter

from poise.apps.ui.node_models import DeploymentOf, NodeLog
from poise.apps.ui.shared import PROBLEMS, Deployments
from poise.apps.ui.views.nodes import deployment_at, deployment_view, supervisor_log

router = APIRouter(tags=["nodes"], responses=PROBLEMS)


@router.get("/deployments")
def deployments(known: Deployments) -> list[DeploymentOf]:
    """All deployments of the console (``poise ui --deployment DIR``)."""
    return [deployment_view(folder, k) for k, folder in enumerate(known)]


@router.get("/deployment/{number}")
def deployment(number: int, known: Deployments) -> DeploymentOf:
    """One deployment, by its number from 0."""
    return deployment_view(deployment_at(known, number), number)


@router.get("/supervisor-log/{number}")
def log(number: int, known: Deployments) -> NodeLog:
    """The end of the log of a deployment's supervisor."""
    return supervisor_log(deployment_at(known, number))
