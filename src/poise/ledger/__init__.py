"""The ledger: what really happened, durable and append-only."""

from poise.ledger.models import Keep
from poise.ledger.run import Run
from poise.ledger.store import Ledger

__all__ = ["Keep", "Ledger", "Run"]
