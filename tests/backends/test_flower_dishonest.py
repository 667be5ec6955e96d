"""Dishonest real nodes: the ledger records each refusal, and the round continues."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from backends import dishonest
from backends.support import TEXT, meanwhile, serving
from poise.apps.deploy import jobs
from poise.apps.deploy.folder import Deployment
from poise.apps.deploy.guard import sign_app
from poise.config.experiment import parse
from poise.core.errors import PoiseError

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

APP = "from poise_app.dishonest import client_app\n\napp = client_app()\n"
LIES = {
    1: {"0": "keep", "1": "replay"},
    2: {"0": "nan", "1": "samples"},
    3: {"0": "shape", "1": "large"},
}


@pytest.fixture
def liars(deployed: Deployment) -> Iterator[Deployment]:
    """The deployment with an app that lies where a node's folder says so.

    The operator's key signs the app; otherwise neither server nor nodes would start it.
    """
    app = deployed.server / "app" / "poise_app"
    before = (app / "client.py").read_text()
    (app / "client.py").write_text(APP)
    shutil.copy(dishonest.__file__, app / "dishonest.py")
    sign_app(deployed.server, deployed.authority, passphrase=None)
    try:
        yield deployed
    finally:
        (app / "client.py").write_text(before)
        (app / "dishonest.py").unlink()
        sign_app(deployed.server, deployed.authority, passphrase=None)
        for client in range(deployed.nodes):
            (deployed.node(client) / "lies.json").unlink(missing_ok=True)


def peak(pid: int) -> int:
    """The most memory that a process ever held, in bytes; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0
    )


@pytest.mark.thorough
def test_lies_are_refused_by_name_and_the_round_goes_on(
    liars: Deployment, tmp_path: Path
) -> None:
    for client, lies in LIES.items():
        (liars.node(client) / "lies.json").write_text(json.dumps(lies))
    held: list[int] = []
    before = set(liars.jobs.glob("*.log"))
    with meanwhile(lambda: held.extend(map(peak, serving(liars, before)))):
        run = jobs.run_deployed(parse(TEXT), liars.path, tmp_path / "out")[0]
    # 2^20 of facts, and 650 numbers of 4
    most = "a reply larger than the limit of 1051176 bytes"
    claimed = [
        (n, client, reason.split(" instead of ")[0])
        for n, client, reason in run.refusals
    ]
    assert claimed == [
        (0, 2, "an update that is not finite (nan)"),
        (0, 3, "an update of shape [7] 'float32' in 28 bytes"),
        (1, 1, "an old reply again"),
        (1, 2, "samples 1000000000"),
        (1, 3, most),
    ]
    assert (run.rounds, run.meta["status"]) == (2, "done")
    weighed = [sorted(np.flatnonzero(row).tolist()) for row in np.asarray(run.weights)]
    assert weighed == [[0, 1], [0]]
    assert np.isfinite(run.model).all()
    assert 0 < max(held) < dishonest.GB  # the reply never was in the server's memory


@pytest.mark.long
def test_a_lie_at_the_start_is_told_before_anything_is_trained(
    liars: Deployment, tmp_path: Path
) -> None:
    (liars.node(1) / "lies.json").write_text(json.dumps({"hello": "samples"}))
    with pytest.raises(
        PoiseError, match=r"client 1 registered 1000000000 samples, and can have \d+"
    ):
        jobs.run_deployed(parse(TEXT), liars.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
