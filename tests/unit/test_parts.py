"""Parts as configuration: what is built, what is refused and how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poise.clocks import Synchronous
from poise.core.errors import InvalidOption
from poise.core.parts import build, describe, parts_of
from poise.samplers import Full, Uniform
from poise.servers import Add
from poise.solvers import SGD


def test_defaults_are_left_out_of_the_table() -> None:
    assert describe(SGD(lr=0.1, steps=3)) == {"name": "sgd", "lr": 0.1, "steps": 3}
    assert describe(Full()) == {"name": "full"}


@pytest.mark.parametrize(
    ("slot", "table", "words"),
    [
        ("sampler", {"name": "unifrom", "m": 3}, "did you mean 'uniform'"),
        ("sampler", {"m": 3}, "has no name"),
        ("sampler", {"name": "uniform"}, "needs m"),
        ("sampler", {"name": "uniform", "n": 3}, "no option 'n'"),
        ("sampler", {"name": "uniform", "m": 3, "replacement": True}, "'replacement'"),
        ("sampler", {"name": "uniform", "m": "3"}, "m must be a whole number"),
        ("sampler", {"name": "uniform", "m": 3.0}, "m must be a whole number"),
        ("sampler", {"name": "uniform", "m": True}, "m must be a whole number"),
        ("sampler", {"name": "uniform", "m": 0}, "at least 1"),
        ("server", {"name": "add", "lr": float("nan")}, "lr"),
        ("server", {"name": "add", "lr": float("inf")}, "lr"),
        ("solver", {"name": "sgd", "lr": 0.1}, "exactly one of steps and epochs"),
        (
            "solver",
            {"name": "sgd", "lr": 0.1, "steps": 1, "epochs": 1},
            "exactly one of steps and epochs",
        ),
        ("solver", {"name": "sgd", "lr": 0.1, "step": 1}, "did you mean 'steps'"),
        ("solver", {"name": "sgd", "lr": -0.1, "steps": 1}, "lr must be above 0"),
        ("solver", {"name": "sgd", "lr": 0.1, "steps": 1, "momentum": 1.0}, "momentum"),
        (
            "solver",
            {"name": "sgd", "lr": 0.1, "steps": 1, "weight_decay": float("inf")},
            "weight_decay",
        ),
        ("solver", {"name": "sgd", "lr": 0.1, "steps": 1, "clip": 0.0}, "clip"),
        ("solver", {"name": "sgd", "lr": 0.1, "steps": 1, "decay": 1.5}, "decay"),
        (
            "solver",
            {"name": "sgd", "lr": 0.1, "steps": 1, "batch_size": 0},
            "batch_size",
        ),
        ("clock", {"name": "synchronous", "durations": "G80"}, "F80"),
        ("clock", {"name": "synchronous", "durations": [1.0, -1.0]}, "client 1"),
        ("clock", {"name": "synchronous", "durations": []}, "one per client"),
    ],
)
def test_mistakes_are_named(slot: str, table: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        build(slot, table)


def test_durations_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="durations"):
        Synchronous(durations=["a", "b"])


def test_numpy_numbers_are_numbers() -> None:
    assert describe(Uniform(m=np.int64(3))) == {"name": "uniform", "m": 3}
    assert describe(Add(lr=np.float64(0.5))) == {"name": "add", "lr": 0.5}


@pytest.mark.parametrize(
    "make", [list, tuple, np.array], ids=["list", "tuple", "array"]
)
def test_parts_with_sequences_can_be_compared(make: Any) -> None:
    one, other = Synchronous(make([1.0, 2.0])), Synchronous(make([1.0, 2.0]))
    assert one == other
    assert one == build("clock", describe(one))
    assert one != Synchronous(make([1.0, 3.0]))
    assert hash(one) == hash(other)


def test_names_of_a_slot_are_sorted() -> None:
    names = list(parts_of("sampler"))
    assert names == sorted(names)
    assert {"full", "uniform"} <= set(names)


def test_the_doctests_of_a_module_do_not_register_its_parts_again(
    tmp_path: Path,
) -> None:
    test = tmp_path / "test_same_class.py"
    test.write_text(
        "def test_same_class():\n"
        "    from poise.core.parts import parts_of\n"
        "    from poise.servers import Adam\n"
        "    assert parts_of('server')['adam'] is Adam\n"
    )
    root = Path(__file__).parents[2]
    options = ["-p", "no:cacheprovider", f"--rootdir={root}", "-c", "pyproject.toml"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "src/poise/servers/adaptive.py",
            test,
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
