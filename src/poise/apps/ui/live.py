"""Server-sent events: what became of a run since the last look. The ledger is asked, never the
process.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import PROBLEMS, ClientStateStore, RunName
from poise.apps.ui.views.listing import line_of

router = APIRouter(tags=["runs"], responses=PROBLEMS)

PAUSE = 0.5
"""Seconds between two looks; a look at a run that nobody writes is a look at the times of its
files."""

SILENCE = 15.0
"""Seconds after which a stream without news says that it is still there, so that nobody in between
cuts it."""


async def follow(library: Library, name: str, most: int | None = None) -> AsyncIterator[str]:
    """An event ``run`` with the run's line (`RunLine`) whenever it changed, the first at once;
    ``gone`` ends it.
    """
    told, spoke, sent = "", time.monotonic(), 0
    while most is None or sent < most:
        try:
            line = (
                await run_sync(lambda: line_of(name, library.read_summary(name)))
            ).model_dump_json()
        except NoSuchRun:
            yield "event: gone\ndata: {}\n\n"
            return
        if line != told:
            told, spoke, sent = line, time.monotonic(), sent + 1
            yield f"event: run\ndata: {line}\n\n"
        elif time.monotonic() - spoke > SILENCE:
            spoke = time.monotonic()
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
            "description": "The run's line, as JSON.",
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
    library: ClientStateStore,
    events: Annotated[int | None, Query(ge=1, description="End after so many.")] = None,
) -> Response:
    """The run's line whenever it changes, as server-sent events."""
    library.folder(name)
    return StreamingResponse(follow(library, name, events), media_type="text/event-stream")
