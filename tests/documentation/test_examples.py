"""Examples run, and each notebook is its script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from documentation.blocks import ROOT
from parameters import thorough_except

sys.path.insert(0, str(ROOT / "tools"))
import notebooks

SCRIPTS = notebooks.scripts()
PAGES = {"four_hospitals", "handwriting", "shakespeare", "free_rider", "slow_devices"}
"""Those that write a page."""

every_script = pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])


def code(script: Path) -> list[str]:
    """The code cells of a script's notebook."""
    document = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return [
        "".join(cell["source"])
        for cell in document["cells"]
        if cell["cell_type"] == "code"
    ]


def test_there_are_examples() -> None:
    assert {s.stem for s in SCRIPTS} >= {*PAGES, "forgetting"}


@every_script
def test_the_notebook_is_the_script(script: Path) -> None:
    written = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert written == notebooks.notebook(script.read_text(encoding="utf-8")), (
        "run `make notebooks`"
    )


@every_script
def test_no_line_of_a_script_is_lost(script: Path) -> None:
    kept = [
        line
        for line in script.read_text(encoding="utf-8").splitlines()
        if line.strip() and "# %%" not in line
    ]
    text = [
        line
        for cell in notebooks.cells(script.read_text(encoding="utf-8"))
        for line in cell[1].splitlines()
    ]
    assert sum(map(bool, text)) + sum(line.strip() == "#" for line in kept) == len(kept)


QUICK = [
    s
    for s in SCRIPTS
    if s.stem in ("forgetting", "free_rider", "shakespeare", "optuna_search")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", thorough_except(QUICK, SCRIPTS), ids=[s.stem for s in SCRIPTS]
)
def test_the_notebook_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Cell after cell in one namespace, at the tests' scale."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POISE_EXAMPLES", "tiny")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, cell in enumerate(code(script)):
            exec(compile(cell, f"{script.stem}, cell {number}", "exec"), names)
    except SystemExit as absent:
        pytest.skip(str(absent))
    assert capsys.readouterr().out.count("\n") >= 5, "it says what it does"
    assert (tmp_path / f"{script.stem}.html").exists() == (script.stem in PAGES)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("handwriting", "poise data fetch mnist"),
        pytest.param("shakespeare", "roles.json.gz", marks=pytest.mark.thorough),
    ],
)
def test_absent_data_is_said_plainly(name: str, what: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=250,
        env={
            **os.environ,
            "POISE_DATA": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
            "HOME": str(tmp_path),
        },
    )
    assert done.returncode == 1
    assert "its files are in no data folder" in done.stderr
    assert what in done.stderr
    assert "Traceback" not in done.stderr
