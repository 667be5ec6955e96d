"""The ledger: a durable, append-only record of every round of a run."""

from poise.ledger.models import Keep
from poise.ledger.store import Ledger

__all__ = ["Keep", "Ledger"]
