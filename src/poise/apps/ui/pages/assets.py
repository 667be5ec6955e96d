"""Plotly's script, served from its Python package instead of another host."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

router = APIRouter()


@lru_cache
def _plotly() -> Path:
    from importlib.util import find_spec

    spec = find_spec("plotly")  # avoids the import, which takes half a second
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


@router.get("/plotly.js")
def plotly() -> Response:
    """The script; browsers cache it for a day."""
    return FileResponse(
        _plotly(),
        media_type="text/javascript",
        headers={"cache-control": "max-age=86400"},
    )


@router.get("/favicon.ico")
def icon() -> Response:
    """The console has no icon; answer without an error."""
    return Response(status_code=204)
