"""Actions on the pages that start them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form
from starlette.responses import RedirectResponse

from poise.apps.ui import gather
from poise.apps.ui.actions import jobs_of
from poise.apps.ui.library import Library
from poise.apps.ui.models import JobOf
from poise.apps.ui.shared import ClientStateStore, RunName
from poise.core.errors import require

router = APIRouter()

SHOWN = 8
"""Actions that a page lists."""


def latest(library: Library, name: str, *kinds: str) -> list[JobOf]:
    """The newest actions of some kinds; one that goes on is always among them, since no other can
    begin.
    """
    found = [
        job for job in jobs_of(library, name).all() if job.kind in kinds or job.state == "running"
    ]
    return [gather.job_of(job) for job in found[:SHOWN]]


def to_actions(where: str, name: str) -> RedirectResponse:
    """Back to the page, where its actions are listed."""
    return RedirectResponse(f"{where}/{quote(name)}#actions", 303)


@router.post("/stop/{id}/{name:path}")
def stop(
    id: str, name: RunName, library: ClientStateStore, back: Annotated[str, Form()]
) -> RedirectResponse:
    """Ask an action to stop at the end of its round."""
    require(back in ("/federation", "/unlearning", "/audit"), f"there is no page {back!r}")
    jobs_of(library, name).stop(id)
    return to_actions(back, name)
