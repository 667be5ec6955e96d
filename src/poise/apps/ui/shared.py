"""Shared parts of the routers: dependencies, error responses, pages from templates."""

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
    library: Library = request.app.state.library
    return library


RunLibrary = Annotated[Library, Depends(_library)]
"""Route parameter: the library of runs."""


def _tags(request: Request) -> Tags:
    tags: Tags = request.app.state.tags
    return tags


RunTags = Annotated[Tags, Depends(_tags)]
"""Route parameter: the tags of the runs."""


def _deployments(request: Request) -> tuple[Folder, ...]:
    deployments: tuple[Folder, ...] = request.app.state.deployments
    return deployments


Deployments = Annotated[tuple[Folder, ...], Depends(_deployments)]
"""Route parameter: the deployments whose nodes may retrain."""

RunName = Annotated[
    str, Path(description="Folder of the run, relative to the folder of the console.")
]
"""Route parameter: a run's name, which contains slashes and hence comes last."""


class ErrorBody(BaseModel):
    """An error message and a hint."""

    error: str
    hint: str = ""


PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorBody, "description": "The token is missing."},
    404: {
        "model": ErrorBody,
        "description": "The run, or this part of it, does not exist.",
    },
    409: {
        "model": ErrorBody,
        "description": "The current state of the run forbids the request.",
    },
    421: {
        "model": ErrorBody,
        "description": "The Host header does not name this console.",
    },
    422: {"model": ErrorBody, "description": "The request is invalid."},
}
"""Error responses of every API route."""

LOCKED: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body is not JSON."},
    403: {
        "model": ErrorBody,
        "description": "The request does not come from a console page.",
    },
}
"""Additional error responses of actions."""


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as a page."""
    templates: Jinja2Templates = request.app.state.templates
    unlocked = bool(getattr(request.state, "unlocked", False))
    return templates.TemplateResponse(
        request, template, {"unlocked": unlocked, **values}, status
    )
