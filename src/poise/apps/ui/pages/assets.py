"""Plotly's script, from its package: nothing is fetched from another host."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

router = APIRouter()


@lru_cache
def _plotly() -> Path:
    from importlib.util import find_spec

    found = find_spec("plotly")  # without importing it, which takes half a second
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


@router.get("/plotly.js")
def plotly() -> Response:
    """The script; a browser asks for it once a day."""
    return FileResponse(
        _plotly(), media_type="text/javascript", headers={"cache-control": "max-age=86400"}
    )


@router.get("/favicon.ico")
def icon() -> Response:
    """There is none, which is no error."""
    return Response(status_code=204)
