"""What the tests of real nodes share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from backends.tap import Tap
from poise.deploy.folder import Deployment

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


def serving(deployment: Deployment) -> int:
    """The process of the run that goes on now."""
    log = max(deployment.jobs.glob("*.log"), key=lambda file: file.stat().st_mtime)
    return int(json.loads(log.read_text().splitlines()[0])["pid"])
