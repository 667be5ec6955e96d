"""Whether a run was made on the nodes of a deployment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from poise.apps.deploy.folder import Deployment
from poise.apps.deploy.node_reports import log_lines
from poise.core.errors import IncompatibleParts
from poise.evidence.countersign import node_keys
from poise.ledger.foreign import readable
from poise.results import Run
from poise.training import experiment_of, on_nodes
from poise.unlearning.certificate import NODE_KEYS
from poise.unlearning.histories import owners_of


def require_made_by(deployment: Deployment, run: Run, branches: Path | None) -> None:
    """Raise unless the nodes of a deployment trained a run or retrained one of its branches.

    Args:
        deployment: the deployment.
        run: the training.
        branches: the folder of its branches.
    """
    assert run.path is not None
    if not on_nodes(experiment_of(run)):
        raise IncompatibleParts(
            f"{run.path} was not trained on nodes",
            f"leave out the deployment: poise unlearn {run.path} --clients …",
        )
    if _shares_a_key(deployment, run):
        return
    places = [run.path.resolve()]
    if branches is not None and branches.is_dir():
        places += [place.resolve() for place in branches.iterdir()]
    made = set(_made(deployment))
    if made.isdisjoint(places):
        raise IncompatibleParts(
            f"{run.path} is not a run of the deployment {deployment.path}: none of its "
            "jobs made it, and the keys of its nodes are others",
            "name the deployment whose nodes trained it with --to",
        )


def _shares_a_key(deployment: Deployment, run: Run) -> bool:
    """Whether a node of the deployment has the key that the run recorded for its client."""
    keys = node_keys(deployment.path)
    with readable(run.path):
        recorded = json.loads(run.meta.get(NODE_KEYS, "{}"))
        owners = owners_of(run)
        for client, fingerprint in recorded.items():
            key = keys.get(int(owners[int(client)]))
            if key is not None and key.fingerprint == fingerprint:
                return True
    return False


def _made(deployment: Deployment) -> Iterator[Path]:
    """Yield the folders of the runs and branches that jobs of a deployment wrote."""
    for job in deployment.jobs.glob("*.log"):
        with suppress(OSError):
            for line in log_lines(job):
                if "run" in line:
                    yield Path(str(line["run"]))


__all__ = ["require_made_by"]
