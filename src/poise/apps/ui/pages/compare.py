"""Runs side by side."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.analysis.reports import compare as compared
from poise.analysis.reports import sections
from poise.apps.ui.api.compare import MOST, grouped
from poise.apps.ui.shared import ClientStateStore, page
from poise.core.errors import require

router = APIRouter()


@router.get("/compare")
def compare(request: Request, library: ClientStateStore) -> Response:
    """Scores, findings and curves of the runs that the address names."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if not names:
        return page(request, "compare.html", names=[], parts="", scores="", findings="")

    require(len(names) <= MOST, f"{len(names)} runs at once", f"compare at most {MOST}")

    def make() -> dict[str, Any]:
        with grouped(library, names) as groups:
            found = compared(groups)
            return {
                "parts": sections.what_was_run(groups),
                "scores": sections.scores(found.rows),
                "findings": sections.findings(found),
            }

    return page(
        request, "compare.html", names=names, **library.kept_of(names, "side by side", make)
    )
