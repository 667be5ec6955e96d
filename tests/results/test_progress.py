"""Progress of runs in Python: shown to people who wait, silent for everything else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import time
import numpy as np, poise
import poise.core.progress as progress
progress.PATIENCE = {patience}
quad = poise.quadratics(np.eye(3))
solver = poise.solvers.SGD(lr=0.1, steps=1)
poise.train(
    quad, quad.task, solver, rounds=4, callbacks=[lambda record: time.sleep(0.2)],
    progress={progress},
)
print("result")
"""


def run(script: str, *, terminal: bool) -> tuple[str, str]:
    """Run a script; return stdout and what it wrote to stderr, a terminal or a pipe."""
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    if not terminal:
        environment["FORCE_COLOR"] = "1"  # colours are no terminal
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr
    main, side = pty.openpty()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=side, text=True, env=environment
    )
    os.close(side)
    written = b""
    while True:
        try:
            chunk = os.read(main, 4096)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        written += chunk
    out, _ = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == 0, written.decode()
    return out, written.decode()


@pytest.mark.parametrize(
    ("progress", "patience", "terminal", "shown"),
    [
        (None, 0.1, True, True),
        (None, 30.0, True, False),
        (None, 0.0, False, False),
        (False, 0.0, True, False),
        (True, 30.0, True, True),
        (True, 30.0, False, True),
    ],
)
def test_who_sees_a_bar(
    progress: bool | None, patience: float, terminal: bool, shown: bool
) -> None:
    script = SCRIPT.format(patience=patience, progress=progress)
    out, err = run(script, terminal=terminal)
    assert out == "result\n"
    assert ("training" in err) == shown, err
    if shown:
        assert "4/4" in err


def test_a_failing_run_ends_its_bar() -> None:
    script = SCRIPT.format(patience=0.0, progress=None).replace(
        "time.sleep(0.2)", "time.sleep(0.4) or 1 / 0"
    )
    script = script.replace("poise.train(", "try:\n  poise.train(", 1).replace(
        'print("result")', 'except ZeroDivisionError: print("result")'
    )
    script = script.replace("\n    quad, quad", "\n    quad, quad")
    out, err = run(script, terminal=True)
    assert out == "result\n"
    assert err.endswith(("\x1b[?25h", "\n", "\r\n")), repr(
        err[-40:]
    )  # the cursor is back


def test_notebooks_get_one_line_that_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from poise.core import progress
    from poise.core.types import Record

    monkeypatch.setattr(progress, "PACE", 0.0)
    line = progress.NotebookLine("training", 3, patience=0.0)
    for n in range(3):
        line(Record(n, float(n), (), {"accuracy": 0.5 + n / 10}, 0, 0))
        time.sleep(0.01)
    line.close()
    err = capsys.readouterr().err
    first, *lines = err.split("\r")
    assert first == ""
    assert [text.split()[1] for text in lines] == ["1/3", "2/3", "3/3"]
    assert "accuracy 0.700" in lines[-1]
    assert err.endswith("\n")


def test_progress_changes_no_result(tmp_path: Path) -> None:
    from results.hospitals import trained

    assert trained(progress=True).digest == trained(progress=False).digest
