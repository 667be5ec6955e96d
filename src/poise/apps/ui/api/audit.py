"""API routes of the audit and of the quarantine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from poise.apps.ui import actions, gather
from poise.apps.ui.api.clients import Page
from poise.apps.ui.api.conflicts import as_conflict
from poise.apps.ui.models import AuditOf, DecisionForm, DecisionOf, JobOf, QuarantineOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, RunLibrary, RunName
from poise.apps.ui.views.drawing import Drawings

router = APIRouter(tags=["audit"], responses=PROBLEMS)

Alarm = Annotated[
    float,
    Query(
        gt=0,
        lt=1,
        description="False-alarm rate: share of honest clients that are suspected.",
    ),
]


@router.get("/audit/{name:path}")
def audit(
    name: RunName, library: RunLibrary, alarm: Alarm = 0.01, page: Page = 1
) -> AuditOf:
    """Suspected free-riders with the evidence; detection quality if the truth is known."""
    return gather.audit_of(library, name, alarm, page)


@router.get("/audit-figures/{name:path}", response_model=Drawings)
def audit_figures(name: RunName, library: RunLibrary, alarm: Alarm = 0.01) -> Response:
    """Scores over time, update lengths, and the ROC curve if the truth is known."""
    return Response(
        gather.audit_figures(library, name, alarm), media_type="application/json"
    )


@router.get("/quarantine/{name:path}")
def quarantine(name: RunName, library: RunLibrary) -> QuarantineOf:
    """The clients in quarantine, all decisions, and how to train without these clients."""
    return gather.quarantine_of(library, name)


@router.post("/decision/{name:path}", responses=LOCKED)
def decide(name: RunName, library: RunLibrary, form: DecisionForm) -> DecisionOf:
    """Put a client into quarantine, or release it. Needs the token."""
    with as_conflict():
        return gather.decide(library, name, form)


@router.post("/without/{name:path}", responses=LOCKED)
def train_without(name: RunName, library: RunLibrary) -> JobOf:
    """Start a new run without the clients in quarantine. Needs the token."""
    with as_conflict():
        excluded = gather.quarantine_of(library, name).excluded
        return gather.job_of(actions.train_without(library, name, excluded))
