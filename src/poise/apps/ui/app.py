"""The console's app: routers, guard, static files, and what becomes of errors."""

from __future__ import annotations

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

HERE = Path(__file__).parent

ABOUT = """What the ledgers in a folder hold. Everything can be read without a token; actions need the one that the
terminal shows, as `Authorization: Bearer`."""


def create_app(
    runs: str | Path,
    keys: Keys | None = None,
    host: str = "127.0.0.1",
    deployments: Iterable[Path] = (),
) -> FastAPI:
    """The console of a folder of runs.

    Args:
        runs: the folder; nothing outside of it is shown.
        keys: the token and the cookie of the actions; new ones by default.
        host: what the server listens on.
        deployments: folders of deployments whose nodes may be asked to forget.
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
    app.state.library, app.state.keys, app.state.templates = Library(runs), keys, _templates()
    app.state.tags = Tags(app.state.library.root)
    app.state.deployments = tuple(path.resolve() for path in deployments)
    for router in api.ROUTERS:
        app.include_router(router, prefix="/api")
    for router in pages.ROUTERS:
        app.include_router(router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"), "static")
    app.add_exception_handler(PoiseError, _poise_error)
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
    """404 for what is not there, 422 for questions without sense, 409 for what cannot be read or
    done as it is.
    """
    if isinstance(error, NoSuchRun):
        return 404
    return 422 if isinstance(error, InvalidOption) and not isinstance(error, RunLocked) else 409


def _poise_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PoiseError)
    return _problem(request, _status(error), error.message, error.hint)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return _problem(request, 422, f"{where}: {first['msg']}" if where else str(first["msg"]), "")


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "the runs are listed at /" if error.status_code == 404 else ""
    what = f"there is no page {request.url.path}" if error.status_code == 404 else str(error.detail)
    made = _problem(request, error.status_code, what, hint)
    made.headers.update(error.headers or {})
    return made


def _problem(request: Request, status: int, error: str, hint: str) -> Response:
    """An error as a document for programs, and as a page for people."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": error, "hint": hint}, status)
    return page(request, "problem.html", status, error=error, hint=hint, code=status)
