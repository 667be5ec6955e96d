"""A program whose main thread fails ends, though its other threads would go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BODY = """
import sys, threading, time
threading.Thread(target=lambda: time.sleep(60)).start()
"""


@pytest.mark.parametrize(("end", "code", "said"), [("raise OSError('500')", 1, "500"), ("raise SystemExit(3)", 3, "")])
def test_an_error_ends_the_process(end: str, code: int, said: str, tmp_path: Path) -> None:
    file = tmp_path / "program"
    waits = BODY if code == 1 else ""  # a program that ends itself ends its threads, as always
    file.write_text(f"{waits}\nimport sys\nassert sys.argv[1:] == ['--port', '1']\n{end}\n")
    words = [sys.executable, "-m", "poise.deploy.launch", str(file), "--port", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code
    assert said in done.stderr
