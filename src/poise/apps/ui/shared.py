"""What routers share: the library, the name of a run in an address, a page from a template."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.templating import Jinja2Templates
from pydantic import BaseModel
from starlette.responses import Response

from poise.apps.ui.library import Library
from poise.apps.ui.tags import Tags


def _library(request: Request) -> Library:
    found: Library = request.app.state.library
    return found


ClientStateStore = Annotated[Library, Depends(_library)]
"""The library, as the parameter of a route."""


def _tags(request: Request) -> Tags:
    found: Tags = request.app.state.tags
    return found


Labels = Annotated[Tags, Depends(_tags)]
"""The tags of the runs, as the parameter of a route."""


def _deployments(request: Request) -> tuple[Folder, ...]:
    found: tuple[Folder, ...] = request.app.state.deployments
    return found


Deployments = Annotated[tuple[Folder, ...], Depends(_deployments)]
"""The deployments whose nodes may be asked to retrain, as the parameter of a route."""

RunName = Annotated[
    str, Path(description="The run's folder, relative to the folder that the console shows.")
]
"""The name of a run in an address; it stands last (``/run/{name:path}``), for it has slashes of its
own."""


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    error: str
    hint: str = ""


PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "No such run."},
    409: {"model": Problem, "description": "The run cannot be read, or not that of it."},
    421: {"model": Problem, "description": "Called by a name that is not the console's."},
    422: {"model": Problem, "description": "The question makes no sense."},
}
"""How a question can go wrong; every router of the API declares them."""

LOCKED: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is not JSON."},
    401: {"model": Problem, "description": "The token is missing."},
    403: {"model": Problem, "description": "Not asked by one of the console's pages."},
}
"""How an action can be refused beside."""


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page from a template."""
    templates: Jinja2Templates = request.app.state.templates
    unlocked = bool(getattr(request.state, "unlocked", False))
    return templates.TemplateResponse(request, template, {"unlocked": unlocked, **values}, status)
