"""The events of a deployment: processes that end or start, nodes that come or go.

They are lines of JSON in ``server/events.jsonl``, written by the supervisor, and the
same lines in plain text in ``logs/supervisor.log``.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

EVENTS = "events.jsonl"
OLDER = "events.old.jsonl"
MOST_BYTES = 2**20
"""Size from which the file of events is set aside; the one before it is deleted."""


@dataclass(frozen=True)
class Event:
    """One event.

    Args:
        at: seconds since 1970.
        text: what happened, in a sentence without full stop.
        client: the client whose node it is about; None for processes of the server.
        trouble: whether somebody should look at it.
    """

    at: float
    text: str
    client: int | None = None
    trouble: bool = False

    @property
    def when(self) -> str:
        """The local time, to the second."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))


@dataclass(frozen=True)
class EventLog:
    """The events of a deployment, in the server's folder."""

    folder: Path

    def write(self, event: Event) -> None:
        """Append an event, and print it for the supervisor's log."""
        file = self.folder / EVENTS
        with suppress(OSError):
            if file.stat().st_size > MOST_BYTES:
                file.replace(self.folder / OLDER)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as stream:
            stream.write(f"{json.dumps(asdict(event))}\n".encode())
        print(f"{event.when} {event.text}", flush=True)

    def read(self, since: float = 0.0) -> list[Event]:
        """The events after a time, oldest first; skips a line that is half written."""
        events = []
        for name in (OLDER, EVENTS):
            text = ""
            with suppress(FileNotFoundError):
                text = (self.folder / name).read_text(encoding="utf-8")
            for line in text.splitlines():
                with suppress(ValueError, TypeError):
                    event = Event(**json.loads(line))
                    if event.at > since:
                        events.append(event)
        return events
