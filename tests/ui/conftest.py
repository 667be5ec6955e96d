"""Runs that are made once for all tests of the console."""

from __future__ import annotations

from pathlib import Path

import pytest

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
