"""Tags of runs, stored in a small file next to the runs and not in their ledgers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from poise.core.errors import LedgerError, require
from poise.ledger.files import write_whole
from poise.ledger.foreign import read_json

FILE = "console-tags.json"
LONGEST = 40
MOST = 12


class Tags:
    """The tags of the runs below a folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._lock = Lock()

    def all(self) -> dict[str, list[str]]:
        """The tags of all runs, by run name."""
        if not self.path.exists():
            return {}
        try:
            data = read_json(self.path)
            return {
                str(name): [str(tag) for tag in tags] for name, tags in data.items()
            }
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise LedgerError(
                f"cannot read {self.path}: {error}", "repair or delete the file"
            ) from error

    def set(self, name: str, tags: Sequence[str]) -> list[str]:
        """Replace the tags of a run."""
        chosen = list(
            dict.fromkeys(filter(None, (" ".join(tag.split()) for tag in tags)))
        )
        require(
            len(chosen) <= MOST,
            f"too many tags for one run: {len(chosen)}",
            f"use at most {MOST}",
        )
        for tag in chosen:
            require(
                len(tag) <= LONGEST,
                f"the tag {tag[:LONGEST]!r}… is too long",
                f"use at most {LONGEST} characters",
            )
        with self._lock:
            all_tags = self.all()
            all_tags.pop(name, None)
            if chosen:
                all_tags[name] = chosen
            write_whole(
                self.path, json.dumps(all_tags, indent=2, sort_keys=True).encode()
            )
        return chosen
