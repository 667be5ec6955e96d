"""Where a run is executed: ``--backend``, ``--address``, ``--workers``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.support import SMALL, call, opened, same
from poise.apps.cli.backend_options import BackendOptions
from poise.backends import Local, Ray
from poise.config.experiment import parse


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "exp.toml").write_text(SMALL.replace("rounds = 12", "rounds = 3"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_that_are_not_given_stay_as_the_file_has_them() -> None:
    plain, clustered = (
        parse(SMALL),
        parse(SMALL, None, ['run.backend={name="ray", address="a:1", workers=3}']),
    )
    assert BackendOptions().backend_for(plain) is None
    assert BackendOptions(workers=2).backend_for(plain) == Local(workers=2)
    assert BackendOptions(workers=2).backend_for(clustered) == Ray(
        workers=2, address="a:1"
    )
    assert BackendOptions(address="b:2").backend_for(clustered) == Ray(
        workers=3, address="b:2"
    )
    assert BackendOptions("local").backend_for(clustered) == Local()
    assert BackendOptions("ray", "auto").backend_for(plain) == Ray(address="auto")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend", "flower"], ["nodes of a deployment", "poise deploy run"]),
        (["--backend", "rey"], ["unknown backend 'rey'", "did you mean 'ray'?"]),
        (
            ["--address", "auto"],
            ["the backend 'local' has no cluster", "--backend ray --address auto"],
        ),
        (["--workers", "0"], ["workers must be at least 1"]),
        (["--backend", "ray", "--workers", "-1"], ["workers must be at least 1"]),
    ],
)
@pytest.mark.parametrize("verb", ["run", "resume"])
def test_mistakes_are_told_before_anything_is_made(
    here: Path, verb: str, flags: list[str], words: list[str]
) -> None:
    if verb == "resume":
        assert call("run", "exp.toml", "--out", "out").code == 0
    outcome = call(verb, "exp.toml" if verb == "run" else "out", *flags)
    assert outcome.code == 2
    assert all(word in outcome.err for word in words), outcome.err
    assert not (here / "runs").exists()


def test_workers_change_nothing(here: Path) -> None:
    assert call("run", "exp.toml", "--out", "one", "--workers", "1").code == 0
    assert (
        call(
            "run", "exp.toml", "--out", "two", "--backend", "local", "--workers", "2"
        ).code
        == 0
    )
    with opened(here / "one" / "seed-0") as one, opened(here / "two" / "seed-0") as two:
        assert one.digest == two.digest
        assert (one.model == two.model).all()


def test_ray_without_ray_says_how_to_get_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    outcome = call("run", "exp.toml", "--backend", "ray")
    assert (outcome.code, "pip install 'poise[ray]'" in outcome.err) == (2, True)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.xdist_group("ray")
@pytest.mark.timeout(600)
def test_a_run_on_a_cluster_is_the_run_in_one_process(here: Path) -> None:
    """A cluster of its own, found by its address; then taken up in one process."""
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    from ray.cluster_utils import Cluster

    around = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    try:
        verb = [
            sys.executable,
            "-c",
            "from poise.apps.cli import main; main()",
            "run",
            "exp.toml",
            "--out",
            "there",
        ]
        flags = ["--backend", "ray", "--address", made.address, "--workers", "2"]
        done = subprocess.run(
            [*verb, *flags], env=around, capture_output=True, text=True, timeout=400
        )
    finally:
        made.shutdown()
    assert done.returncode == 0, done.stderr
    assert call("run", "exp.toml", "--out", "here").code == 0
    with (
        opened(here / "there" / "seed-0") as there,
        opened(here / "here" / "seed-0") as mine,
    ):
        assert there.digest == mine.digest
    more = ("--rounds", "5")
    assert call("resume", "there/seed-0", *more, "--backend", "local").code == 0
    assert call("resume", "here/seed-0", *more).code == 0
    same(here / "there" / "seed-0", here / "here" / "seed-0")
