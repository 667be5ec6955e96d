"""The audit of a run, and who is left out because of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.clients import Page
from poise.apps.ui.api.refusing import refusing
from poise.apps.ui.models import AuditOf, DecisionOf, JobOf, QuarantineOf, Verb
from poise.apps.ui.shared import LOCKED, PROBLEMS, ClientStateStore, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["audit"], responses=PROBLEMS)

Alarm = Annotated[
    float,
    Query(
        gt=0, lt=1, description="The false-alarm rate: clients that work are suspected so often."
    ),
]


@router.get("/audit/{name:path}")
def audit(name: RunName, library: ClientStateStore, alarm: Alarm = 0.01, page: Page = 1) -> AuditOf:
    """Who only pretends to work, with reasons; how well that is told, where the truth is known."""
    return gather.audit_of(library, name, alarm, page)


@router.get("/audit-figures/{name:path}", response_model=Drawings)
def audit_figures(name: RunName, library: ClientStateStore, alarm: Alarm = 0.01) -> Response:
    """Scores, their history, the lengths of the updates, and the ROC where the truth is known."""
    return Response(gather.audit_figures(library, name, alarm), media_type="application/json")


@router.get("/quarantine/{name:path}")
def quarantine(name: RunName, library: ClientStateStore) -> QuarantineOf:
    """Who is in quarantine, how it came to that, and how to go on without them."""
    return gather.quarantine_of(library, name)


@router.post("/decision/{name:path}", responses=LOCKED)
def decide(name: RunName, library: ClientStateStore, verb: Verb) -> DecisionOf:
    """Put a client into quarantine or release it: the decision is kept beside the run. An
    action.
    """
    with refusing():
        return gather.decide(library, name, verb)


@router.post("/without/{name:path}", responses=LOCKED)
def train_without(name: RunName, library: ClientStateStore) -> JobOf:
    """Train again without the clients in quarantine, as a new run, in a process of its own. An
    action.
    """
    with refusing():
        return gather.job_of(
            actions.train_without(library, name, gather.quarantine_of(library, name).excluded)
        )
