"""API route that checks the integrity of a ledger."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from poise.apps.ui.shared import PROBLEMS, RunLibrary, RunName

router = APIRouter(tags=["runs"], responses=PROBLEMS)


class Health(BaseModel):
    """Result of recomputing every digest of a ledger."""

    rounds: int
    damage: str
    digest: str


@router.get("/health/{name:path}")
def health(name: RunName, library: RunLibrary) -> Health:
    """Recompute the digests of a run; ``damage`` names the first damaged round."""

    def make() -> Health:
        with library.open(name) as run:
            return Health(rounds=run.rounds, damage=run.damage, digest=run.digest)

    return library.cached(name, "health", make)
