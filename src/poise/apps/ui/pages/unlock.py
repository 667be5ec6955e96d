"""The page that exchanges the token of the terminal for a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from poise.apps.ui.guard import Keys
from poise.apps.ui.shared import page

router = APIRouter()


@router.get("/unlock")
def ask(request: Request, back: str = "/") -> Response:
    """Ask for the token."""
    return page(request, "unlock.html", back=_safe_address(back), wrong=False)


@router.post("/unlock")
def unlock(
    request: Request,
    token: Annotated[str, Form()] = "",
    back: Annotated[str, Form()] = "/",
) -> Response:
    """Set the session cookie (HTTP-only, same-site) if the token is right."""
    keys: Keys = request.app.state.keys
    if not keys.fits(token.strip()):
        return page(request, "unlock.html", 401, back=_safe_address(back), wrong=True)
    answer = RedirectResponse(_safe_address(back), 303)
    keys.set_cookie(answer, request.scope)
    return answer


def _safe_address(back: str) -> str:
    """The address if it is a page of the console, otherwise the list of runs."""
    if back.startswith("/") and not back.startswith("//") and "\\" not in back:
        return back
    return "/"
