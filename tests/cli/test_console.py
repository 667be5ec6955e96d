"""``poise ui`` as a user starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from faults.support import call, run_into, small

pytest.importorskip(
    "fastapi", reason="the console is not installed: pip install 'poise[ui]'"
)


def test_it_shows_a_folder_until_it_is_stopped(tmp_path: Path) -> None:
    run_into(small(rounds=2), tmp_path / "runs" / "exp")
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "poise",
        "ui",
        "runs",
        "--port",
        "0",
    ]
    with (tmp_path / "err").open("w") as err:
        server = subprocess.Popen(command, cwd=tmp_path, stderr=err)
    while "?token=" not in (tmp_path / "err").read_text():
        assert server.poll() is None, (tmp_path / "err").read_text()
        time.sleep(0.05)
    try:
        said = [
            line
            for line in (tmp_path / "err").read_text().splitlines()
            if not line.startswith("import time:")
        ]
        address = re.fullmatch(
            r"console of runs: (http://127\.0\.0\.1:\d+/)\?token=([\w-]{20,})", said[0]
        )
        assert address is not None
        token = {"authorization": f"Bearer {address[2]}"}
        with urlopen(
            Request(f"{address[1]}api/runs", headers=token), timeout=30
        ) as answer:
            assert [run["name"] for run in json.load(answer)] == ["exp/seed-0"]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    everything = (tmp_path / "err").read_text()
    assert "Traceback" not in everything
    assert re.search(r"\| +fastapi$", everything, re.MULTILINE)
    assert not re.search(r"\| +torch$", everything, re.MULTILINE), (
        "the console needs no PyTorch, which takes seconds"
    )


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    outcome = call("ui", tmp_path / "absent")
    assert (outcome.code, "is not a folder" in outcome.err) == (2, True)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = call("ui", tmp_path, "--port", taken.getsockname()[1])
    assert (outcome.code, "cannot listen on 127.0.0.1" in outcome.err) == (2, True)
    assert "--port" in outcome.err


def test_others_are_let_in_with_a_warning_only(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "poise",
        "ui",
        str(tmp_path),
        "--port",
        "0",
        "--host",
        "0.0.0.0",
    ]
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert server.stderr is not None
    said = [server.stderr.readline() for _ in range(2)]
    server.terminate()  # a job in the background of a shell ignores SIGINT
    server.communicate(timeout=30)
    assert said[1].startswith("warning: other machines can reach 0.0.0.0")
    assert "not encrypted" in said[1]
