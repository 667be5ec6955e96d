"""One deployment of four real nodes for all tests that need one; the first node reaches its server through a tap."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from backends.tap import Tap
from poise.deploy import control, jobs
from poise.deploy.folder import Deployment, make_deployment, read_toml
from poise.experiments.runner import federation_in
from poise.experiments.spec import parse

TEXT = """
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.5
clients = 4
seed = 0
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
epochs = 1
batch_size = 32
[weighting]
name = "soft-max"
temperature = 2.0
[run]
rounds = 2
keep = "all"
keep_updates = true
"""


@dataclass(frozen=True)
class First:
    """The first run of the deployment: its result, and the command lines that were seen while it went on."""

    run: Any
    commands: frozenset[str]
    tap: Tap


@pytest.fixture(scope="session")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Tap]]:
    made = make_deployment(tmp_path_factory.mktemp("flower") / "four", 4, federation_in(parse(TEXT), 0).spec)
    tap = Tap(made.port)
    config = made.node(0) / "node.toml"
    config.write_text(tomli_w.dumps({**read_toml(config), "superlink": f"127.0.0.1:{tap.port}"}))
    control.up(made.path, seconds=300)
    yield made, tap
    control.down(made.path)
    tap.close()
    assert control.belonging(made) == []


@pytest.fixture(scope="session")
def deployed(tapped: tuple[Deployment, Tap]) -> Deployment:
    return tapped[0]


@pytest.fixture(scope="session")
def first(tapped: tuple[Deployment, Tap], tmp_path_factory: pytest.TempPathFactory) -> First:
    deployment, tap = tapped
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.update(map(_command, control.belonging(deployment)))
            time.sleep(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run = jobs.run_deployed(parse(TEXT), deployment.path, tmp_path_factory.mktemp("first") / "out")[0]
    finally:
        over.set()
        watcher.join()
    return First(run, frozenset(seen - {""}), tap)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # it has just ended
        return ""
