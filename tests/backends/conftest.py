"""Fixtures: one deployment of four real nodes; a tap records the first node's connection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

from backends.support import TEXT, First, meanwhile
from backends.tap import Tap
from poise.apps.deploy import control, jobs
from poise.apps.deploy.folder import Deployment, make_deployment, read_toml
from poise.config.experiment import parse
from poise.training import federation_in


@pytest.fixture(scope="session")
def tapped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, Tap]]:
    grouped = any(item.nodeid.endswith("@flower") for item in request.session.items)
    assert grouped or "PYTEST_XDIST_WORKER" not in os.environ, (
        "every worker would start a deployment of its own"
    )
    made = make_deployment(
        tmp_path_factory.mktemp("flower") / "four",
        4,
        federation_in(parse(TEXT), 0).spec,
    )
    tap = Tap(made.port)
    config = made.node(0) / "node.toml"
    config.write_text(
        tomli_w.dumps({**read_toml(config), "superlink": f"127.0.0.1:{tap.port}"})
    )
    control.up(made.path, seconds=300)
    yield made, tap
    control.down(made.path)
    tap.close()
    assert control.belonging(made) == []


@pytest.fixture(scope="session")
def deployed(tapped: tuple[Deployment, Tap]) -> Deployment:
    return tapped[0]


@pytest.fixture(scope="session")
def first(
    tapped: tuple[Deployment, Tap], tmp_path_factory: pytest.TempPathFactory
) -> First:
    deployment, tap = tapped
    seen: set[str] = set()
    with meanwhile(
        lambda: seen.update(map(_command, control.belonging(deployment))), pause=0.5
    ):
        run = jobs.run_deployed(
            parse(TEXT), deployment.path, tmp_path_factory.mktemp("first") / "out"
        )[0]
    return First(run, frozenset(seen - {""}), tap)


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:  # it has just ended
        return ""
