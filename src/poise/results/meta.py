"""`RunMeta`: the metadata of a run, by name as text and as attributes with types."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from poise.core.client_names import recorded_names
from poise.core.errors import LedgerError
from poise.ledger.store import BEGAN, ENDING


class RunMeta(dict[str, str]):
    """The metadata of a run: a dictionary of texts with typed attributes.

    >>> meta = RunMeta({"seed": "3", "clients": "10", "status": "done"})
    >>> meta["seed"], meta.seed, meta.status, meta.version
    ('3', 3, 'done', '')
    """

    @property
    def seed(self) -> int:
        """The seed of every draw."""
        return self._number("seed")

    @property
    def clients(self) -> int:
        """Number of clients, N."""
        return self._number("clients")

    @property
    def trainable(self) -> int:
        """Number of trained entries of a model."""
        return self._number("trainable")

    @property
    def status(self) -> str:
        """How the run ended: done, stopped, failed, diverged; or running."""
        return self.get("status", "")

    @property
    def began(self) -> datetime | None:
        """When the run began, in UTC; None for runs of poise 0.1."""
        text = self.get(BEGAN)
        if text is None:
            return None
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            raise LedgerError(
                f"the ledger's entry {BEGAN!r} is not a time",
                "restore the ledger from a backup",
            ) from error

    @property
    def ending(self) -> str:
        """Which rule ended the run before its last round; empty if none did."""
        return self.get(ENDING, "")

    @property
    def keep(self) -> str:
        """Which models the run keeps: all, unlearnable or last."""
        return self.get("keep", "")

    @property
    def version(self) -> str:
        """The version of poise that began the run; empty if it is not recorded."""
        return self.get("poise", "")

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if classes are only numbers."""
        return tuple(str(name) for name in self._list("class names"))

    @property
    def client_names(self) -> tuple[str, ...]:
        """Names of the clients; empty if they have none."""
        return recorded_names(self, self.clients)

    def _number(self, key: str) -> int:
        text = self.get(key)
        if text is None or not text.isdigit():
            raise LedgerError(
                f"the ledger has no number {key!r} in its metadata",
                "restore the ledger from a backup",
            )
        return int(text)

    def _list(self, key: str) -> list[Any]:
        try:
            values = json.loads(self.get(key, "[]"))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list):
            raise LedgerError(
                f"the ledger's entry {key!r} is not a list",
                "restore the ledger from a backup",
            )
        return values
