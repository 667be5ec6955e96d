"""Which models stay on disk."""

from __future__ import annotations

from collections.abc import Iterable

from poise.core.errors import require, suggest
from poise.core.sensitivity import Psi
from poise.core.types import Record
from poise.ledger.models import Keep

RULES = ("all", "last", "unlearnable")


class Retention:
    """Says after each record which versions are no longer needed.

    ``all`` needs every version. ``last`` needs the newest model, the one before it (to fall back on
    if a file is damaged), the initial one, and the versions that are still being worked on.
    ``unlearnable`` also needs, for every client, the newest model to which the client's sensitivity
    was within the
    limit: a request to forget that client restarts from it.

    >>> rule = Retention("last")
    >>> [rule.surplus(Record(n, 0.0, (), {}, 0, 0)) for n in range(4)]
    [[], [], [1], [2]]
    """

    def __init__(
        self, keep: Keep, held: Iterable[int] = (0,), limit: float = 0.0, psi: Psi | None = None
    ) -> None:
        require(keep in RULES, f"keep = {keep!r} is not a rule", suggest(str(keep), RULES))
        self.keep = keep
        self._held = set(held)
        self._limit = limit
        self._psi = psi or Psi()
        self._restart: dict[int, int] = {}  # by client beyond the limit: the last version within it

    def follow(self, record: Record) -> None:
        """Take in a record: who is beyond the limit now, and from where it could be forgotten."""
        if self.keep != "unlearnable":
            return
        everyone = self._psi.add(record) != 1
        for client in self._psi.values if everyone else {c.client for c in record.contributions}:
            if self._psi.of(client) > self._limit:
                self._restart.setdefault(client, record.index)
            else:
                self._restart.pop(client, None)

    def surplus(self, record: Record) -> list[int]:
        """The versions to drop now that this record is written."""
        newest = record.index + 1
        self._held.add(newest)
        self.follow(record)
        if self.keep == "all":
            return []
        flying = {f.version for f in record.in_flight.assignments}
        surplus = self._held - {0, newest, newest - 1} - set(self._restart.values()) - flying
        self._held -= surplus
        return sorted(surplus)
