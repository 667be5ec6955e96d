"""A node starts a process for every message: what it imports is paid for every time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"pandas", "plotly", "rich", "scipy", "sklearn", "sqlite3", "typer"}
SERVERS = {
    "poise.auditing",
    "poise.apps.cli",
    "poise.training",
    "poise.apps.experiments",
    "poise.ledger",
    "poise.analysis.reports",
}


def imported(module: str, then: str = "pass") -> set[str]:
    code = f"import json, sys, {module}; {then}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


def test_a_node_imports_nothing_that_only_the_server_or_the_command_line_needs() -> (
    None
):
    assert not imported("poise.apps.deploy.node") & (HEAVY | SERVERS)


def test_a_run_starts_without_what_it_may_never_need() -> None:
    parts = (
        "poise.federation('synthetic', clients=3), poise.task('logistic'), "
        "poise.solvers.SGD(lr=0.1, steps=1)"
    )
    seen = imported("poise", f"poise.train({parts}, rounds=1).close()")
    assert "poise.engine" in seen
    assert not seen & {"pandas", "plotly", "scipy", "sklearn"}


def test_the_app_of_a_node_does_not_import_that_of_the_server() -> None:
    pytest.importorskip("cryptography", reason="the extra [flower] is not installed")
    from poise.apps.deploy.folder import _APPS, _PROJECT

    components = _PROJECT["tool"]["flwr"]["app"]["components"]
    assert components == {
        "serverapp": "poise_app.server:app",
        "clientapp": "poise_app.client:app",
    }
    assert "server" not in _APPS["client"]
