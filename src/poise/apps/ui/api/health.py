"""Whether a run's records are as they were written."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from poise.apps.ui.shared import PROBLEMS, ClientStateStore, RunName

router = APIRouter(tags=["runs"], responses=PROBLEMS)


class Health(BaseModel):
    """What recomputing every digest of the ledger showed."""

    rounds: int
    damage: str
    digest: str


@router.get("/health/{name:path}")
def health(name: RunName, library: ClientStateStore) -> Health:
    """Recompute the digests of a run; ``damage`` names the first round that is not as it was
    recorded.
    """

    def make() -> Health:
        with library.open(name) as run:
            return Health(rounds=run.rounds, damage=run.damage, digest=run.digest)

    return library.kept(name, "health", make)
