"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from poise.apps.ui import live
from poise.apps.ui.library import Library
from poise.training import resume
from ui.support import client


async def events(
    library: Library, name: str, count: int, between: Any = lambda: None
) -> list[tuple[str, Any]]:
    """The next events; ``between`` is called after the first."""
    found = []
    async for text in live.follow(library, name):
        kind, data, *_ = text.splitlines()
        if kind.startswith("event: "):
            found.append(
                (kind.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
            )
        if len(found) == count:
            break
        if len(found) == 1:
            await asyncio.to_thread(between)
    return found


def test_the_first_event_comes_at_once_and_the_next_when_the_ledger_grew(
    runs: Path,
) -> None:
    folder = runs / "small" / "seed-0"
    first, second, *_ = asyncio.run(
        events(
            Library(runs), "small/seed-0", 2, lambda: resume(folder, rounds=6).close()
        )
    )
    assert (first[0], first[1]["rounds"], first[1]["state"]) == ("run", 4, "done")
    assert (second[0], second[1]["rounds"], second[1]["planned"]) == ("run", 6, 6)


def test_a_deleted_run_ends_the_stream(runs: Path) -> None:
    *_, last = asyncio.run(
        events(Library(runs), "small/seed-0", 2, lambda: shutil.rmtree(runs / "small"))
    )
    assert last == ("gone", {})


def test_a_quiet_stream_says_that_it_is_there(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.001)
    monkeypatch.setattr(live, "SILENCE", 0.0)

    async def second() -> str:
        stream = live.follow(Library(runs), "small/seed-0")
        await anext(stream)
        return await anext(stream)

    assert asyncio.run(second()).startswith(": ")


def test_the_stream_is_one_of_events(runs: Path) -> None:
    answer = client(runs).get("/api/live/small/seed-0?events=1")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("event: run\ndata: {")


def test_no_look_takes_place_less_often_than_every_second() -> None:
    assert live.PAUSE <= 1.0
