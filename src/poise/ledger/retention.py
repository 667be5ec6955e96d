"""Retention rules: which models stay on disk."""

from __future__ import annotations

from collections.abc import Iterable

from poise.core.errors import require, suggest
from poise.core.sensitivity import Group, Psi
from poise.core.types import Record
from poise.ledger.models import Keep

RULES = ("all", "last", "unlearnable")


class Retention:
    """Decides after each record which versions are no longer needed.

    ``all`` needs every version. ``last`` needs the newest model, the one before it (to
    fall back on if a file is damaged), the initial one, and the versions that clients
    still work on. ``unlearnable`` also needs, for every client, the newest model to
    which the client's sensitivity was within the limit: a request to unlearn that
    client restarts from it. Every rule keeps the versions ``needed``, from which
    requests restarted: their certificates rest on them.

    >>> rule = Retention("last")
    >>> [rule.surplus(Record(n, 0.0, (), {}, 0, 0)) for n in range(4)]
    [[], [], [1], [2]]
    """

    def __init__(
        self,
        keep: Keep,
        held: Iterable[int] = (0,),
        limit: float = 0.0,
        psi: Psi | None = None,
        needed: Iterable[int] = (),
    ) -> None:
        require(
            keep in RULES, f"keep = {keep!r} is not a rule", suggest(str(keep), RULES)
        )
        self.keep = keep
        self._held = set(held)
        self._needed = set(needed)
        self._limit = limit
        self._psi = psi or Psi()
        # by client or group beyond the limit: the last version within it
        self._restart: dict[int | Group, int] = {}

    def follow(self, record: Record) -> None:
        """Take in a record: update the clients beyond the limit, and their restart."""
        if self.keep != "unlearnable":
            return
        all_changed = self._psi.add(record) != 1
        changed: Iterable[int | Group] = {
            *(c.client for c in record.contributions),
            *self._psi.groups,
        }
        if all_changed:
            changed = self._psi.values
        for client in changed:
            if self._psi.of(client) > self._limit:
                self._restart.setdefault(client, record.index)
            else:
                self._restart.pop(client, None)

    def surplus(self, record: Record) -> list[int]:
        """Return the versions to drop after this record is written."""
        newest = record.index + 1
        self._held.add(newest)
        self.follow(record)
        if self.keep == "all":
            return []
        in_use = {assignment.version for assignment in record.in_flight.assignments}
        needed = {0, newest, newest - 1} | set(self._restart.values()) | in_use
        surplus = self._held - needed - self._needed
        self._held -= surplus
        return sorted(surplus)
