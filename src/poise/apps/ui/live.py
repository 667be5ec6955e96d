"""Server-sent events about the progress of a run, read from its ledger."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import PROBLEMS, RunLibrary, RunName
from poise.apps.ui.views.listing import line_of

router = APIRouter(tags=["runs"], responses=PROBLEMS)

PAUSE = 0.5
"""Seconds between two polls; polling an unchanged run only reads file times."""

SILENCE = 15.0
"""Seconds of silence before the stream sends a comment, to keep proxies connected."""


async def follow(
    library: Library, name: str, most: int | None = None
) -> AsyncIterator[str]:
    """Yield an event ``run`` with the `RunLine` at once and after every change.

    An event ``gone`` ends the stream when the run is deleted.
    """
    last_line = ""
    last_time = time.monotonic()
    sent = 0
    while most is None or sent < most:
        try:
            run_line = await run_sync(lambda: line_of(name, library.read_summary(name)))
        except NoSuchRun:
            yield "event: gone\ndata: {}\n\n"
            return
        line = run_line.model_dump_json()
        if line != last_line:
            last_line = line
            last_time = time.monotonic()
            sent += 1
            yield f"event: run\ndata: {line}\n\n"
        elif time.monotonic() - last_time > SILENCE:
            last_time = time.monotonic()
            yield ": still here\n\n"
        if most is None or sent < most:
            await anyio.sleep(PAUSE)


EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["run", "gone"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "The `RunLine` as JSON.",
        },
    },
    "required": ["event", "data"],
}


STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": EVENT}}}
}


@router.get("/live/{name:path}", response_class=Response, responses=STREAM)
def live(
    name: RunName,
    library: RunLibrary,
    events: Annotated[
        int | None, Query(ge=1, description="End after this number of events.")
    ] = None,
) -> Response:
    """The `RunLine` after every change, as server-sent events."""
    library.folder(name)
    return StreamingResponse(
        follow(library, name, events), media_type="text/event-stream"
    )
