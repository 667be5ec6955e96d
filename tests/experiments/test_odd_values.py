"""Any value anywhere in an experiment file: it runs, or it is refused in one message; it is never a
traceback."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from faults.support import SMALL, call
from parameters import thorough_except

FULL: dict[str, dict[str, Any]] = {
    "data": {
        "importance": "size",
        "seed": 0,
        "on_demand": False,
        "client_test_share": 0.2,
        "corruption": [],
    },
    "task": {"loss": "cross-entropy", "dtype": "float32"},
    "solver": {"momentum": 0.0, "weight_decay": 0.0, "clip": 1.0, "decay": 1.0},
    "sampler": {},
    "clock": {"name": "synchronous", "durations": [1.0] * 10},
    "weighting": {"name": "proportional"},
    "server": {"name": "add", "lr": 1.0},
    "run": {
        "rounds": 1,
        "seeds": [0],
        "evaluate_every": 1,
        "bad_updates": "drop",
        "backend": {"name": "local"},
    },
}
ODD: list[Any] = [-1, 1.5, 10**30, float("nan"), "x", True, [], ["a"], {"a": 1}]


@pytest.mark.parametrize(
    "table", thorough_except(["sampler", "weighting", "run"], FULL)
)
def test_an_odd_value_runs_or_is_refused(table: str, tmp_path: Path) -> None:
    base = tomllib.loads(SMALL)
    tables = {name: {**base.get(name, {}), **more} for name, more in FULL.items()}
    file = tmp_path / "exp.toml"
    for key in tables[table]:
        for value in ODD:
            file.write_text(
                tomli_w.dumps({**tables, table: {**tables[table], key: value}})
            )
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            outcome = call("run", file, "--out", tmp_path / "out", "--json")
            assert outcome.code in (0, 2), (key, value, outcome)
            assert outcome.code == 0 or str(file) in json.loads(outcome.out)["error"], (
                key,
                value,
                outcome,
            )
