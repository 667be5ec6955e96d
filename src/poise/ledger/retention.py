"""Which models stay on disk."""

from __future__ import annotations

from collections.abc import Iterable

from poise.core.errors import require, suggest
from poise.core.types import Record
from poise.ledger.models import Keep

RULES = ("all", "last", "unlearnable")


class Retention:
    """Says after each record which versions are no longer needed.

    ``all`` needs every version. ``last`` needs the newest model, the one before it (to fall back on
    if a file is damaged), the initial one, and the versions that are still being worked on.
    ``unlearnable`` also needs, for every client, the last model that the client had not touched:
    a request to forget that client can start from it whatever its privacy budget.

    >>> rule = Retention("last")
    >>> [rule.surplus(Record(n, 0.0, (), {}, 0, 0)) for n in range(4)]
    [[], [], [1], [2]]
    """

    def __init__(
        self, keep: Keep, held: Iterable[int] = (0,), seen: Iterable[int] = (), kept: Iterable[int] = ()
    ) -> None:
        require(keep in RULES, f"keep = {keep!r} is not a rule", suggest(str(keep), RULES))
        self.keep = keep
        self._held = set(held)
        self._seen = set(seen)
        self._untouched = {0, *kept}

    def surplus(self, record: Record) -> list[int]:
        """The versions to drop now that this record is written."""
        newest = record.index + 1
        self._held.add(newest)
        if self.keep == "all":
            return []
        clients = {c.client for c in record.contributions}
        if self.keep == "unlearnable" and not clients <= self._seen:
            self._untouched.add(record.index)
            self._seen |= clients
        flying = {f.version for f in record.sky.flights}
        surplus = self._held - self._untouched - flying - {newest, newest - 1}
        self._held -= surplus
        return sorted(surplus)
