"""A run that is taken up while clients are at work ends bit for bit as if it had never stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import poise
from poise.config.run_options import RunOptions
from poise.core.durations import as_durations
from poise.core.types import Assignment, InFlight, Record, Setting, Step
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing import SampleFederation
from poise.training import begin, composed, resume_run


@dataclass(frozen=True)
class FirstTwo:
    """Aggregates whenever two clients have arrived; the others stay in the air."""

    slot: ClassVar[str] = "clock"
    name: ClassVar[str] = "first-two"
    waits: ClassVar[bool] = False

    def identical_weights(self, base: np.ndarray, clients: int) -> np.ndarray:
        return base

    def fit(self, setting: Setting) -> None: ...

    def times(self, clients: int) -> Any:
        return as_durations([1.0 + 0.37 * i for i in range(clients)], clients)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        assignments = sorted((*in_flight.assignments, *started))
        return Step(index, assignments[1].finish, tuple(assignments[:2])), InFlight(
            assignments[1].finish, tuple(assignments[2:])
        )


@pytest.mark.parametrize("path", [None, "rows"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_run_taken_up_with_work_in_flight_is_the_same_run(
    tmp_path: Path, path: Any, dtype: Any
) -> None:
    fed = SampleFederation.random(
        [25, 3, 17, 40, 8, 13, 1, 31], shape=(64,), classes=10
    )
    task = Task("mlp", {"hidden": 50}, dtype=dtype, path=path)
    chosen = {"solver": SGD(lr=0.1, epochs=2, batch_size=10), "clock": FirstTwo()}
    composition = composed(fed, task, chosen, RunOptions(rounds=7))
    whole = begin(composition, tmp_path / "whole")
    seen: list[Record] = []
    begin(
        composition, tmp_path / "stopped", [seen.append], stop=lambda: len(seen) >= 2
    ).close()
    assert seen[-1].in_flight.assignments, "somebody was in the air"
    resumed = resume_run(composition, tmp_path / "stopped")
    gap = np.abs(resumed.model - whole.model).max()
    assert gap < (1e-5 if dtype == "float32" else 1e-13)
    assert resumed.digest == whole.digest, f"the models differ by {gap:.1e}"
    whole.close()
    resumed.close()


def test_a_window_in_which_nobody_answered_can_be_written_down(tmp_path: Path) -> None:
    """The server's vectors are then those that are still out with the first version: one tensor
    under two names."""
    fed = poise.federation("digits", "iid", 3)
    solver = poise.solvers.Scaffold(lr=0.1, steps=1, batch_size=8)
    clock = poise.clocks.FixedWindow(0.4, [1.0, 1.0, 1.0])
    options = {"clock": clock, "seed": 1}
    whole = poise.train(fed, poise.task("logistic"), solver, rounds=6, **options)
    poise.train(
        fed, poise.task("logistic"), solver, rounds=1, out=tmp_path / "run", **options
    )
    again = poise.resume(tmp_path / "run", rounds=6)
    assert again.digest == whole.digest
