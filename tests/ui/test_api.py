"""The API is what its description says: schemathesis asks what the description allows, and what it
does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: pip install 'poise[dev]'"
)
from hypothesis import HealthCheck, settings  # noqa: E402

from poise.apps.ui.app import create_app  # noqa: E402
from poise.apps.ui.guard import Keys  # noqa: E402
from ui.support import a_run, client  # noqa: E402

HEADERS = {"host": "localhost", "authorization": "Bearer the-token"}
RUN = "small/seed-0"


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    runs = tmp_path_factory.mktemp("api")
    a_run(runs / "small", rounds=2)
    app = create_app(runs, Keys("the-token", "the-session"))
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HEADERS)


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions are asked for like everything else, and go as far as the process that they would
    start."""
    monkeypatch.setattr("poise.apps.ui.jobs._spawn", lambda place, arguments, held: 0)


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_described(case: Any) -> None:
    if case.path.startswith("/api/live/"):
        case.query = {**dict(case.query or {}), "events": 1}  # else it goes on for ever
    case.call_and_validate(headers=HEADERS)


@schema.parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_about_a_run_that_is_there_are_as_described(case: Any) -> None:
    if "name" not in (case.path_parameters or {}):
        return
    case.path_parameters["name"] = RUN
    if case.path.startswith("/api/live/"):
        case.query = {**dict(case.query or {}), "events": 1}
    case.call_and_validate(headers=HEADERS)


def test_everything_is_described(runs: Path) -> None:
    paths = client(runs).get("/api/openapi.json").json()["paths"]
    assert set(paths) >= {
        "/api/runs",
        "/api/run/{name}",
        "/api/tags/{name}",
        "/api/figures/{figure}/{name}",
        "/api/compare",
        "/api/compare/figures",
        "/api/health/{name}",
        "/api/live/{name}",
        "/api/client/{name}",
        "/api/unlearning/{name}",
        "/api/unlearning-cost/{name}",
        "/api/audit/{name}",
        "/api/quarantine/{name}",
        "/api/federation/{name}",
        "/api/jobs/{name}",
    }
    for path, methods in paths.items():
        for method, told in methods.items():
            assert told["summary"], (method, path)
            assert told["description"], (method, path)
