"""Outsiders who hold ``ca.crt`` and reach the port of a real SuperLink."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from poise.apps.deploy.folder import MARK, Deployment
from poise.apps.deploy.guard import HEADER, operator_token
from poise.apps.deploy.programs import program

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

FAR = "127.0.0.2"
"""An address of this machine that the guard takes for another machine: requests from it
to 127.0.0.1 do not come from the address that they ask."""

FOREIGN_HOSTS = ("a/x?", "localhost/v1/x?", "x#", "x@y", "[::1]/", "")
"""Names that could turn the address that Flower reads into another one."""


def routes() -> list[tuple[str, str]]:
    """Every method and path of Flower's SuperLink."""
    from fastapi.routing import iter_route_contexts
    from flwr.superlink.main import create_app

    found = set()
    for context in iter_route_contexts(create_app().routes):
        path = getattr(context, "path", None) or getattr(context.route, "path", "")
        for method in getattr(context.route, "methods", None) or ["GET"]:
            found.add((method, path))
    return sorted(found)


def answers(
    deployed: Deployment, source: str, asked: list[tuple[str, str]], **more: str
) -> Iterator[tuple[str, int]]:
    """Ask with nothing but ``ca.crt`` and headers; yield paths and status codes."""
    import httpx
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

    trust = ssl.create_default_context(cafile=str(deployed.node(0) / "ca.crt"))
    line = httpx.HTTPTransport(verify=trust, local_address=source)
    kind = PROTOBUF_MEDIA_TYPE
    headers = {"content-type": kind, "accept": kind, **more}
    address = f"https://{deployed.host}:{deployed.port}"
    with httpx.Client(base_url=address, transport=line, timeout=60) as client:
        for method, path in asked:
            yield path, client.request(method, path, headers=headers).status_code


def test_no_route_answers_an_outsider_on_another_machine(deployed: Deployment) -> None:
    """Flower asks for the key of a node, or the guard refuses; 83 routes of Flower 1.41."""
    asked = routes()
    assert len(asked) > 70
    count = Counter(code for _, code in answers(deployed, FAR, asked))
    assert set(count) == {401, 403}
    assert count[401] == len([p for _, p in asked if p.startswith("/v1/fleet/")])


def test_no_route_answers_an_outsider_on_the_same_machine(deployed: Deployment) -> None:
    assert {c for _, c in answers(deployed, deployed.host, routes())} == {401, 403}
    asked = [("POST", "/v1/control/list-runs")]
    token = {HEADER: operator_token(deployed.server)}
    ((_, code),) = answers(deployed, deployed.host, asked, **token)
    assert code == 200  # the operator's token is what the others lack
    ((_, code),) = answers(deployed, FAR, asked, **token)
    assert code == 403  # and no other machine may use it


@pytest.mark.thorough
def test_disguised_paths_and_hosts_are_refused(deployed: Deployment) -> None:
    disguised = [
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/list-runs",
        "//v1/control/list-runs",
        "/V1/control/list-nodes",
        "/v1/fleet/pull-messages/../../control/register-node",
        "/v1/control/list-runs/",
        "/v1/fleet",
    ]
    asked = [("POST", path) for path in disguised]
    for path, code in answers(deployed, FAR, asked):
        assert code in (401, 403, 404), path
    fleet = [(m, p) for m, p in routes() if p.startswith("/v1/fleet/")]
    for host in FOREIGN_HOSTS:
        for path, code in answers(deployed, FAR, fleet, host=host):
            assert code in (400, 401), (host, path)


PROJECT = """\
[project]
name = "evil"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "evil"
[tool.flwr.app.components]
serverapp = "evil.server:app"
clientapp = "evil.client:app"
"""


@pytest.fixture
def evil(deployed: Deployment, tmp_path: Path) -> Path:
    """An app that leaves a file where it runs, and the settings to send it."""
    app = tmp_path / "app" / "evil"
    app.mkdir(parents=True)
    (app.parent / "pyproject.toml").write_text(PROJECT)
    (app / "__init__.py").touch()
    for name, kind in (("server", "ServerApp"), ("client", "ClientApp")):
        (app / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
            f"from flwr.{kind.lower()} import {kind}\n\napp = {kind}()\n"
        )
    home = tmp_path / "home" / ".flwr"
    home.mkdir(parents=True)
    shutil.copy(deployed.node(0) / "ca.crt", home)
    own = (deployed.server / "flwr" / "config.toml").read_text()
    ours = re.sub(r'"[^"]*ca\.crt"', f'"{home / "ca.crt"}"', own)
    (home / "config.toml").write_text(ours)
    return tmp_path


def flwr(evil: Path, *command: str, **variables: str) -> str:
    """Call a command of Flower as somebody else; it must fail."""
    done = subprocess.run(
        command,
        cwd=evil,
        env={
            **os.environ,
            "FLWR_HOME": str(evil / "home" / ".flwr"),
            "HOME": str(evil / "home"),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("run", "app", "poise"),
        ("list", "poise"),
        ("supernode", "list", "poise"),
        ("supernode", "register", "node.pub", "poise"),
    ],
    ids=" ".join,
)
def test_an_outsider_runs_registers_and_lists_nothing(
    words: tuple[str, ...], deployed: Deployment, evil: Path
) -> None:
    from poise.apps.deploy.certificates import make_node_key

    make_node_key(evil)
    assert "403" in flwr(evil, program("flwr"), *words)
    assert not (evil / "ran").exists()


@pytest.mark.thorough
def test_the_token_of_the_operator_starts_no_other_app(
    deployed: Deployment, evil: Path
) -> None:
    launch = (sys.executable, "-m", "poise.apps.deploy.launch", program("flwr"))
    log = deployed.logs / "superlink.log"
    before = len(log.read_text())
    said = flwr(evil, *launch, "run", "app", "poise", **{MARK: str(deployed.path)})
    assert "403" not in said
    assert "not the signed app" in log.read_text()[before:]
    assert not (evil / "ran").exists()
