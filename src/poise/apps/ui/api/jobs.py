"""API routes of started actions: progress, result and stop."""

from __future__ import annotations

from fastapi import APIRouter

from poise.apps.ui import gather
from poise.apps.ui.actions import jobs_of
from poise.apps.ui.models import JobOf
from poise.apps.ui.shared import LOCKED, PROBLEMS, RunLibrary, RunName

router = APIRouter(tags=["actions"], responses=PROBLEMS)


@router.get("/jobs/{name:path}")
def jobs(name: RunName, library: RunLibrary) -> list[JobOf]:
    """The actions on a run, newest first."""
    return [gather.job_of(job) for job in jobs_of(library, name).all()]


@router.get("/job/{id}/{name:path}")
def job(id: str, name: RunName, library: RunLibrary) -> JobOf:
    """The current state of one action."""
    return gather.job_of(jobs_of(library, name).get(id))


@router.post("/stop/{id}/{name:path}", responses=LOCKED)
def stop(id: str, name: RunName, library: RunLibrary) -> JobOf:
    """Stop an action at the end of its current round, like Ctrl-C. Needs the token."""
    run_jobs = jobs_of(library, name)
    run_jobs.stop(id)
    return gather.job_of(run_jobs.get(id))
