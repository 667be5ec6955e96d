"""Repeating a request that was killed finishes it with the same bits."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import Command, call, provable, run_into
from faults.test_kill import killed
from parameters import thorough_except

ASKED = (
    "--clients",
    "1,3",
    "--min-rounds",
    "5",
    "--max-rounds",
    "80",
    "--target",
    "2",
    "--seeded-noise",
    "--json",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(
        provable(rounds=20, keep='"unlearnable"'), tmp_path_factory.mktemp("trained")
    )


ROUNDS = (0, 1, 3, 20, 40, 60, 77)


@pytest.mark.parametrize("at", thorough_except([0, 40], ROUNDS))
def test_a_killed_request_is_finished_by_asking_again(
    trained: Path, at: int, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    shutil.copytree(trained, run)
    shutil.copytree(trained, whole)
    assert call("unlearn", whole, *ASKED).code == 0
    start = partial(Command, tmp_path, "unlearn", run, *ASKED)
    killed(start, run / "unlearning" / "001", at, changes=run)
    again = Command(tmp_path, "unlearn", run, *ASKED).wait()
    assert again.code == 0, again.err
    branches = [poise.open_run(where / "unlearning" / "001") for where in (run, whole)]
    assert branches[0].digest == branches[1].digest
    assert np.array_equal(branches[0].model, branches[1].model)
    assert call("verify", run / "unlearning" / "001" / "certificate.json").code == 0
