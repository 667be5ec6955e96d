"""Words that people put on runs. They are kept in a small file beside the runs: the ledger tells
only what happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from poise.core.errors import LedgerError, require
from poise.ledger.files import write_whole

FILE = "console-tags.json"
LONGEST, MOST = 40, 12


class Tags:
    """The tags of the runs below a folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._lock = Lock()

    def all(self) -> dict[str, list[str]]:
        """Tags by the name of their run."""
        if not self.path.exists():
            return {}
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(name): [str(tag) for tag in tags] for name, tags in found.items()}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise LedgerError(
                f"{self.path} cannot be read: {error}", "put it right, or remove it"
            ) from error

    def set(self, name: str, tags: Sequence[str]) -> list[str]:
        """Give a run these tags instead of those that it had."""
        chosen = list(dict.fromkeys(filter(None, (" ".join(tag.split()) for tag in tags))))
        require(len(chosen) <= MOST, f"{len(chosen)} tags for one run", f"at most {MOST}")
        for tag in chosen:
            require(
                len(tag) <= LONGEST,
                f"the tag {tag[:LONGEST]!r}… is too long",
                f"at most {LONGEST} characters",
            )
        with self._lock:
            found = {key: kept for key, kept in self.all().items() if key != name}
            found |= {name: chosen} if chosen else {}
            write_whole(self.path, json.dumps(found, indent=2, sort_keys=True).encode())
        return chosen
