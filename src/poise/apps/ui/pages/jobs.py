"""The list of actions on a page."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form
from starlette.responses import RedirectResponse

from poise.apps.ui import gather
from poise.apps.ui.actions import jobs_of
from poise.apps.ui.library import Library
from poise.apps.ui.models import JobOf
from poise.apps.ui.shared import RunLibrary, RunName
from poise.core.errors import require

router = APIRouter()

SHOWN = 8
"""Number of actions that a page lists."""


def latest(library: Library, name: str, *kinds: str) -> list[JobOf]:
    """The latest actions of these kinds, and the running action of any kind."""
    shown = []
    for job in jobs_of(library, name).all():
        if job.kind in kinds or job.state == "running":
            shown.append(job)
    return [gather.job_of(job) for job in shown[:SHOWN]]


def to_actions(page: str, name: str) -> RedirectResponse:
    """Redirect to the list of actions on a page."""
    return RedirectResponse(f"{page}/{quote(name)}#actions", 303)


@router.post("/stop/{id}/{name:path}")
def stop(
    id: str, name: RunName, library: RunLibrary, back: Annotated[str, Form()]
) -> RedirectResponse:
    """Stop an action at the end of its current round."""
    require(back in ("/federation", "/unlearning", "/audit"), f"no such page: {back!r}")
    jobs_of(library, name).stop(id)
    return to_actions(back, name)
