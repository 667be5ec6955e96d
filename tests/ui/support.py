"""What the tests of the console share: a folder of real runs, and a console of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from fastapi.testclient import TestClient

from faults.support import run_into, small
from poise.apps.ui.app import create_app
from poise.apps.ui.guard import Keys

HOME = "http://127.0.0.1:8765"


def stranger(
    runs: Path,
    keys: Keys | None = None,
    deployments: Iterable[Path] = (),
    **options: object,
) -> TestClient:
    """A browser without scripts or token, on the console of a folder."""
    return TestClient(
        create_app(runs, keys, deployments=deployments),
        base_url=HOME,
        raise_server_exceptions=False,
        **options,
    )  # type: ignore[arg-type]


def client(runs: Path, keys: Keys | None = None, **options: object) -> TestClient:
    """The same with the token of the console."""
    keys = keys or Keys()
    browser = stranger(runs, keys, **options)
    browser.headers["authorization"] = f"Bearer {keys.token}"
    return browser


def a_run(folder: Path, rounds: int = 4, **run: object) -> Path:
    """A run of the small experiment in ``folder/seed-0``."""
    return run_into(small(rounds=rounds, **run), folder)


def copied(run: Path, to: Path) -> Path:
    """The same run somewhere else."""
    shutil.copytree(run, to)
    return to
