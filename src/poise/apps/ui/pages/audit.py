"""The audit page: suspected free-riders and the quarantine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.audit import Alarm
from poise.apps.ui.api.clients import Page
from poise.apps.ui.models import DecisionForm
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import RunLibrary, RunName, page

router = APIRouter()

Chosen = Annotated[
    int | None, Query(description="Client that the decision form shows.")
]


@router.get("/audit/{name:path}")
def audit(
    request: Request,
    name: RunName,
    library: RunLibrary,
    alarm: Alarm = 0.01,
    rank: Page = 1,
    decide: Chosen = None,
) -> Response:
    """Ranking, thresholds, figures and quarantine."""
    from poise.apps.ui.views.federation import on_nodes

    audited = gather.audit_of(library, name, alarm=alarm, page=rank)
    quarantine = gather.quarantine_of(library, name)
    summary = library.read_summary(name)
    return page(
        request,
        "audit.html",
        name=name,
        here="/audit",
        found=audited,
        kept=quarantine,
        jobs=latest(library, name, "run"),
        clients=int(summary.meta["clients"]),
        nodes=on_nodes(summary.experiment),
        decide=decide,
    )


@router.post("/quarantine/{name:path}")
def decide(
    name: RunName, library: RunLibrary, form: Annotated[DecisionForm, Form()]
) -> RedirectResponse:
    """Record a decision."""
    gather.decide(library, name, form)
    address = to_actions("/audit", name).headers["location"]
    return RedirectResponse(address.replace("#actions", "#quarantine"), 303)


@router.post("/without/{name:path}")
def train_without(name: RunName, library: RunLibrary) -> RedirectResponse:
    """Start a new run without the clients in quarantine."""
    actions.train_without(library, name, gather.quarantine_of(library, name).excluded)
    return to_actions("/audit", name)
