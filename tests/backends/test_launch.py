"""Flower's programs under poise's launcher: errors end them, and their database waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

BODY = """
import sys, threading, time
threading.Thread(target=lambda: time.sleep(60)).start()
"""

DATABASE = """
import sys
from flwr.supercore.sql_mixin import SqlMixin
state = SqlMixin(sys.argv[1])
state.initialize()
print(state.query("PRAGMA busy_timeout"))
"""


def launched(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "poise.apps.deploy.launch", str(file), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("raise OSError('500')", 1, "500"), ("raise SystemExit(3)", 3, "")],
)
def test_an_error_ends_the_process(
    end: str, code: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "program"
    waits = (
        BODY if code == 1 else ""
    )  # a program that ends itself ends its threads, as always
    file.write_text(
        f"{waits}\nimport sys\nassert sys.argv[1:] == ['--port', '1']\n{end}\n"
    )
    done = launched(file, "--port", "1")
    assert done.returncode == code
    assert said in done.stderr


def test_flowers_database_waits_for_minutes(tmp_path: Path) -> None:
    """Its own five seconds are too few while a gigabyte is written: the others would get answers
    500."""
    file = tmp_path / "program"
    file.write_text(DATABASE)
    done = launched(file, str(tmp_path / "state.db"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[{'timeout': 120000}]"
