"""Helpers of the tests with real nodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.tap import Tap
from poise.apps.deploy.folder import Deployment

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
    """The first run of the deployment: its result, and the command lines that were seen while it
    went on."""

    run: Any
    commands: frozenset[str]
    tap: Tap


def serving(deployment: Deployment, before: Collection[Path] = ()) -> list[int]:
    """The processes of runs, the newest first; without those whose logs are in ``before``."""
    logs = sorted(
        set(deployment.jobs.glob("*.log")) - set(before),
        key=lambda file: -file.stat().st_mtime,
    )
    first = [log.read_text().partition("\n") for log in logs]
    return [int(json.loads(line)["pid"]) for line, end, _ in first if end]


@contextmanager
def meanwhile(look: Callable[[], None], pause: float = 0.1) -> Iterator[None]:
    """Look again and again, in a thread of its own, while the block runs."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(pause):
            look()

    watcher = threading.Thread(target=again)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
