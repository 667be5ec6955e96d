"""Actions that were started: how far they are, and what came of them."""

from __future__ import annotations

from fastapi import APIRouter

from poise.apps.ui import gather
from poise.apps.ui.actions import jobs_of
from poise.apps.ui.models import JobOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, ClientStateStore, RunName

router = APIRouter(tags=["actions"], responses=PROBLEMS)


@router.get("/jobs/{name:path}")
def jobs(name: RunName, library: ClientStateStore) -> list[JobOf]:
    """The actions on a run, the newest first."""
    return [gather.job_of(job) for job in jobs_of(library, name).all()]


@router.get("/job/{id}/{name:path}")
def job(id: str, name: RunName, library: ClientStateStore) -> JobOf:
    """One action, as it is now."""
    return gather.job_of(jobs_of(library, name).get(id))


@router.post("/stop/{id}/{name:path}", responses=LOCKED)
def stop(id: str, name: RunName, library: ClientStateStore) -> JobOf:
    """Ask an action to stop at the end of its round, as Ctrl-C does. An action itself."""
    found = jobs_of(library, name)
    found.stop(id)
    return gather.job_of(found.get(id))
