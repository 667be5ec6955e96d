"""The page that compares runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from poise.analysis.reports import compare as compared
from poise.analysis.reports import sections
from poise.apps.ui.api.compare import MOST, grouped
from poise.apps.ui.shared import RunLibrary, page
from poise.core.errors import require

router = APIRouter()


@router.get("/compare")
def compare(request: Request, library: RunLibrary) -> Response:
    """Scores, findings and curves of the runs in the query."""
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if not names:
        return page(request, "compare.html", names=[], parts="", scores="", findings="")

    require(
        len(names) <= MOST,
        f"too many runs to compare: {len(names)}",
        f"select at most {MOST}",
    )

    def make() -> dict[str, Any]:
        with grouped(library, names) as groups:
            comparison = compared(groups)
            return {
                "parts": sections.what_was_run(groups),
                "scores": sections.scores(comparison.rows),
                "findings": sections.findings(comparison),
            }

    return page(
        request,
        "compare.html",
        names=names,
        **library.cached_for(names, "side by side", make),
    )
