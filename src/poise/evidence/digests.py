"""Sign the digests of a run while it trains, and compare a ledger with them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from poise.core.errors import PoiseError

if TYPE_CHECKING:
    from poise.evidence.keys import SigningKey
    from poise.evidence.log import Entry

SUBJECT = "ledger"
INTERVAL = 60.0  # seconds between two signed digests of a run that goes on


class DigestSigner:
    """Signs the digest of a run: at its end, and once a minute while it goes on.

    A run trains also where no key can be made or used: it warns, and its digest stays
    unsigned.
    """

    def __init__(self, folder: Path | None, digest: Callable[[], str]) -> None:
        self._folder = folder
        self._digest = digest
        self._due = time.monotonic() + INTERVAL
        self._key: SigningKey | None = None

    def begin(self, rounds: int) -> None:
        """Sign where a resumed run continues; a new run has nothing to sign yet."""
        if rounds:
            self._sign("begun", rounds)

    def checkpoint(self, rounds: int) -> None:
        """Sign the digest if the last signature is old."""
        if time.monotonic() >= self._due:
            self._sign("checkpoint", rounds)

    def end(self, rounds: int) -> None:
        """Sign the digest at the end."""
        self._sign("ended", rounds)

    def _sign(self, event: str, rounds: int) -> None:
        self._due = time.monotonic() + INTERVAL
        if self._folder is None:
            return
        # cryptography takes time to import, and no round waits for a signature
        from poise.evidence.keys import signing_key

        try:
            self._key = self._key or signing_key()
            sign_digest(
                self._folder, self._key, event, rounds=rounds, digest=self._digest()
            )
        except PoiseError as error:
            warnings.warn(f"the digest of the run is not signed: {error}", stacklevel=4)
            self._folder = None


def sign_digest(
    folder: Path,
    key: SigningKey,
    event: str,
    *,
    rounds: int,
    digest: str,
    again: bool = False,
) -> None:
    """Add a digest to a run's log, unless the last entry says the same.

    With ``again``, an entry with the same digest but of another event does not count.
    """
    from poise.evidence import log

    known = log.entries(folder)
    last = known[-1] if known else None
    if last is not None and (last.rounds, last.digest) == (rounds, digest):
        known_event = not again or last.event == event
        if known_event:
            return
    log.append(folder, key, event=event, subject=SUBJECT, digest=digest, rounds=rounds)


def anchors(folder: Path) -> list[Entry]:
    """Return the signed digests that a run's ledger must still have.

    A run that went back, or that an erasure shortened, began again from there: earlier
    digests of later rounds no longer count.
    """
    from poise.evidence import log

    valid: list[Entry] = []
    for entry in log.entries(folder):
        if entry.event == "erased":
            valid = []
        elif entry.event == "begun":
            valid = [e for e in valid if e.rounds <= entry.rounds]
        valid.append(entry)
    return valid


__all__ = ["DigestSigner", "anchors", "sign_digest"]
