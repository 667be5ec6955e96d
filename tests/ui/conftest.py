"""Runs that are made once for all tests of the console."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ui.samples import attacked, forgetful
from ui.support import a_run, copied


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests that alter it copy it."""
    return a_run(tmp_path_factory.mktemp("made") / "small")


@pytest.fixture
def runs(tmp_path: Path, made: Path) -> Path:
    """A folder with one finished run, ``small/seed-0``."""
    copied(made, tmp_path / "runs" / "small" / "seed-0")
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``lab/seed-0``, a run with free-riders, and ``past/seed-0``, one that has forgotten
    somebody."""
    folder = tmp_path_factory.mktemp("kept")
    attacked(folder / "lab")
    forgetful(folder / "past")
    return folder


@pytest.fixture
def told_of(kept: Path, tmp_path: Path) -> Path:
    """A copy of these two, to be altered."""
    shutil.copytree(kept, tmp_path / "runs")
    return tmp_path / "runs"
