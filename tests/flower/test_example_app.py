"""The example app, run by Flower itself: two rounds on simulated nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytest.importorskip("ray", reason="the extra [ray] is not installed")

from poise.apps.deploy.folder import environment, free_ports
from poise.apps.deploy.programs import listening, program

APP = Path(__file__).parents[2] / "examples" / "flower-app"
pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(600),
]


def test_two_rounds(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure '
        "= true\n"
    )
    around = {**environment(tmp_path, home), "RAY_USAGE_STATS_ENABLED": "0"}
    server = subprocess.Popen(
        [
            program("flower-superlink"),
            "--insecure",
            "--simulation",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        env=around,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not listening(port):
            assert server.poll() is None
            time.sleep(0.2)
        rounds = [
            "--run-config",
            "num-server-rounds=2",
            "--federation-config",
            "num-supernodes=3",
        ]
        done = subprocess.run(
            [
                sys.executable,
                program("flwr"),
                "run",
                str(APP),
                "here",
                "--stream",
                *rounds,
            ],
            env=around,
            capture_output=True,
            text=True,
            timeout=500,
        )
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
    found = [float(a) for a in re.findall(r"round \d: accuracy (\d\.\d+)", done.stdout)]
    assert len(found) == 3, done.stdout + done.stderr
    assert (
        found[2] > found[0] + 0.2
    )  # the start is the same every time, the order of the batches is not
