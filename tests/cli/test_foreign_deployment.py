"""``poise deploy unlearn`` acts on the deployment of the run only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import poise
from faults.support import call, provable, run_into
from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.origin import require_made_by
from poise.core.errors import IncompatibleParts

FAST = ("--min-rounds", "1", "--max-rounds", "2", "--target", "2")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_into(provable(rounds=6, keep='"unlearnable"'), tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Deployment:
    """The folder of a deployment, without Flower's files."""
    folder = tmp_path / "other"
    (folder / "server" / "jobs").mkdir(parents=True)
    (folder / "deployment.toml").write_text(
        'nodes = 10\nport = 1\nhost = "127.0.0.1"\n'
    )
    for client in range(10):
        (folder / f"node-{client}" / "state").mkdir(parents=True)
    return open_deployment(folder)


@pytest.mark.parametrize("more", [(), ("--erase",)])
@pytest.mark.parametrize("on_nodes", [False, True])
def test_a_run_of_another_deployment_is_refused(
    run: Path,
    other: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    on_nodes: bool,
) -> None:
    asked = (run, "--clients", "2", *FAST)
    assert call("unlearn", *asked).code == 0
    if on_nodes:
        monkeypatch.setattr("poise.apps.deploy.origin.on_nodes", lambda _: True)
    before = other.files()
    models = sorted((run / "models").iterdir())
    refused = call("deploy", "unlearn", *asked, "--to", other.path, *more)
    assert refused.code == 2, refused
    words = "is not a run of the deployment" if on_nodes else "not trained on nodes"
    assert words in refused.err
    assert other.files() == before
    assert other.changes()["revoked"] == []
    assert (other.node(2) / "state").is_dir()
    assert sorted((run / "models").iterdir()) == models


def test_a_run_of_a_job_is_accepted(
    run: Path, other: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poise.apps.deploy.origin.on_nodes", lambda _: True)
    opened = poise.open_run(run)
    with pytest.raises(IncompatibleParts):
        require_made_by(other, opened, None)
    log = other.jobs / "1.log"
    log.write_text(json.dumps({"run": str(run.resolve())}) + "\n")
    require_made_by(other, opened, None)


def test_a_refused_erasure_leaves_the_nodes_alone(
    run: Path, other: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models of fine-tuning rest on the clients: nothing can be erased."""
    asked = (run, "--clients", "2", *FAST, "--method", "fine-tune", "--heuristic")
    assert call("unlearn", *asked).code == 0
    monkeypatch.setattr("poise.apps.cli.unlearn.require_made_by", lambda *_: None)
    refused = call("deploy", "unlearn", *asked, "--to", other.path, "--erase")
    assert (refused.code, "rests on the last model" in refused.err) == (2, True)
    assert (other.node(2) / "state").is_dir()
    assert other.changes()["revoked"] == []
