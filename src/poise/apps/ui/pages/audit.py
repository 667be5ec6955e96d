"""Who only pretends to work, and what is done about it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.audit import Alarm
from poise.apps.ui.api.clients import Page
from poise.apps.ui.models import Verb
from poise.apps.ui.pages.jobs import latest, to_actions
from poise.apps.ui.shared import ClientStateStore, RunName, page

router = APIRouter()

Chosen = Annotated[int | None, Query(description="A client to decide about.")]


@router.get("/audit/{name:path}")
def audit(
    request: Request,
    name: RunName,
    library: ClientStateStore,
    alarm: Alarm = 0.01,
    rank: Page = 1,
    decide: Chosen = None,
) -> Response:
    """The ranking, thresholds, figures and the quarantine."""
    from poise.apps.ui.views.federation import on_nodes

    found, kept = gather.audit_of(library, name, alarm, rank), gather.quarantine_of(library, name)
    seen = library.read_summary(name)
    return page(
        request,
        "audit.html",
        name=name,
        here="/audit",
        found=found,
        kept=kept,
        jobs=latest(library, name, "run"),
        clients=int(seen.meta["clients"]),
        nodes=on_nodes(seen.experiment),
        decide=decide,
    )


@router.post("/quarantine/{name:path}")
def decide(
    name: RunName, library: ClientStateStore, verb: Annotated[Verb, Form()]
) -> RedirectResponse:
    """Write a decision down."""
    gather.decide(library, name, verb)
    return RedirectResponse(
        to_actions("/audit", name).headers["location"].replace("#actions", "#quarantine"), 303
    )


@router.post("/without/{name:path}")
def train_without(name: RunName, library: ClientStateStore) -> RedirectResponse:
    """Train again without the clients in quarantine."""
    actions.train_without(library, name, gather.quarantine_of(library, name).excluded)
    return to_actions("/audit", name)
