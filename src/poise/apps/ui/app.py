"""The web app of the console: routers, guard, static files and error responses."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import jinja2
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from poise._version import __version__
from poise.analysis.reports.numbers import number
from poise.apps.ui import api, pages
from poise.apps.ui.guard import Guard, Keys
from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.shared import page
from poise.apps.ui.tags import Tags
from poise.core.errors import InvalidOption, PoiseError, RunLocked
from poise.ledger.foreign import UNREADABLE, unreadable

log = logging.getLogger(__name__)

HERE = Path(__file__).parent

ABOUT = """Access to the ledgers of a folder of runs. Every request needs the token that the
terminal shows, as `Authorization: Bearer`."""


def create_app(
    runs: str | Path,
    keys: Keys | None = None,
    host: str = "127.0.0.1",
    deployments: Iterable[Path] = (),
) -> FastAPI:
    """Create the console of a folder of runs.

    Args:
        runs: the folder; the console shows nothing outside it.
        keys: the token and the cookie; default: new ones.
        host: the address that the server listens on.
        deployments: folders of deployments whose nodes may unlearn clients.
    """
    keys = keys or Keys()
    app = FastAPI(
        title="poise console",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.library = Library(runs)
    app.state.keys = keys
    app.state.templates = _templates()
    app.state.tags = Tags(app.state.library.root)
    app.state.deployments = tuple(path.resolve() for path in deployments)
    for router in api.ROUTERS:
        app.include_router(router, prefix="/api")
    for router in pages.ROUTERS:
        app.include_router(router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"), "static")
    app.add_exception_handler(PoiseError, _poise_error)
    for kind in UNREADABLE:
        app.add_exception_handler(kind, _unreadable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, keys=keys, host=host)
    return app


def _templates() -> Jinja2Templates:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["address"] = lambda name: quote(str(name), safe="/")
    environment.filters["score"] = lambda value: "—" if value is None else number(value)
    environment.globals["tabs"] = pages.TABS
    environment.globals["version"] = __version__
    return Jinja2Templates(env=environment)


def _status(error: PoiseError) -> int:
    """The HTTP status of an error.

    404: missing resource; 422: invalid request; 409: the current state of the run
    forbids it.
    """
    if isinstance(error, NoSuchRun):
        return 404
    if isinstance(error, InvalidOption) and not isinstance(error, RunLocked):
        return 422
    return 409


def _poise_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PoiseError)
    return _error_response(
        request, _status(error), error=error.message, hint=error.hint
    )


def _unreadable(request: Request, error: Exception) -> Response:
    """The error response for a run whose files hold something unexpected.

    The terminal shows where it happened. An error of a page that is about no run remains
    an error of the console.
    """
    name = request.path_params.get("name") or request.query_params.get("run")
    if name is None:
        raise error
    log.warning("cannot show %s", request.url.path, exc_info=error)
    return _poise_error(request, unreadable(f"the run {name!r}", error))


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    message = str(first["msg"])
    if field:
        message = f"{field}: {message}"
    return _error_response(request, 422, error=message, hint="")


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    hint = ""
    if error.status_code == 404:
        message = f"no such page: {request.url.path}"
        hint = "the list of runs is at /"
    response = _error_response(request, error.status_code, error=message, hint=hint)
    response.headers.update(error.headers or {})
    return response


def _error_response(request: Request, status: int, error: str, hint: str) -> Response:
    """An error as JSON for the API, as a page otherwise."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": error, "hint": hint}, status)
    return page(request, "problem.html", status, error=error, hint=hint, code=status)
