"""Special cases in which two compositions must be the same run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise
from poise.backends import Local
from poise.clocks import Synchronous
from poise.results import Run
from poise.samplers import Full, Uniform
from poise.servers import Add
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing import SampleFederation
from poise.weightings import Proportional

SOLVER = SGD(lr=0.1, epochs=1, batch_size=4)


def train(solver: Any = SOLVER, **options: Any) -> Run:
    fed = SampleFederation.random([7, 4, 10, 5, 6], seed=1)
    return poise.train(
        fed,
        Task("mlp", {"hidden": 5}),
        solver,
        **{"rounds": 4, "keep": "all", **options},
    )


def models(run: Run) -> list[bytes]:
    return [run.models(n).tobytes() for n in range(run.rounds + 1)]


REFERENCE = train()


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": Uniform(5)},
        {
            "sampler": Full(),
            "clock": Synchronous(),
            "weighting": Proportional(),
            "server": Add(),
        },
        {
            "sampler": "full",
            "clock": "synchronous",
            "weighting": "proportional",
            "server": "add",
            "backend": "local",
        },
        {"backend": Local(workers=1)},
        {
            "solver": SGD(
                lr=0.1,
                epochs=1,
                batch_size=4,
                momentum=0.0,
                weight_decay=0.0,
                clip=None,
                decay=1.0,
            )
        },
        {"solver": SGD(lr=0.1, epochs=1, batch_size=4, clip=float("inf"))},
        {"keep": "all", "bad_updates": "drop"},
    ],
    ids=[
        "uniform(N)",
        "explicit",
        "by name",
        "one worker",
        "explicit sgd",
        "clip=inf",
        "drop",
    ],
)
def test_the_same_run(options: dict[str, Any]) -> None:
    run = train(**options)
    assert run.digest == REFERENCE.digest
    assert models(run) == models(REFERENCE)


def test_gradient_and_step_in_one_pass_or_in_two() -> None:
    """A clip that never bites stands between the two; rounding is all that differs."""
    run = train(SGD(lr=0.1, epochs=1, batch_size=4, clip=1e30))
    assert models(run) != models(REFERENCE)
    np.testing.assert_allclose(run.model, REFERENCE.model, rtol=0, atol=1e-6)


def test_clocks_change_times_only() -> None:
    run = train(clock=Synchronous((1.0, 2.0, 3.0, 4.0, 5.0)))
    assert models(run) == models(REFERENCE)
    assert run.times.tolist() == [5.0, 10.0, 15.0, 20.0]
    assert run.digest != REFERENCE.digest


@pytest.mark.parametrize("every", [2, 3, 100])
def test_measuring_less_often_changes_no_model(every: int) -> None:
    run = train(evaluate_every=every)
    assert models(run) == models(REFERENCE)
    measured = np.flatnonzero(~np.isnan(run.metric("loss"))) + 1
    assert measured.tolist() == sorted({n for n in range(1, 5) if n % every == 0} | {4})
    assert np.array_equal(
        run.metric("loss")[measured - 1], REFERENCE.metric("loss")[measured - 1]
    )


def test_measuring_more_changes_no_model() -> None:
    assert models(train(metrics=["client_loss", "train_accuracy"])) == models(REFERENCE)


@pytest.mark.parametrize("keep", ["last", "unlearnable"])
def test_what_is_kept_changes_no_digest(keep: str) -> None:
    run = train(keep=keep)
    assert run.digest == REFERENCE.digest
    assert np.array_equal(run.model, REFERENCE.model)


def test_a_run_on_disk_is_the_run_in_memory(tmp_path: Any) -> None:
    run = train(out=tmp_path / "run")
    assert run.digest == REFERENCE.digest
    assert models(run) == models(REFERENCE)
    run.verify()
    run.close()


def test_a_shorter_run_is_a_prefix() -> None:
    short = train(rounds=2)
    assert models(short) == models(REFERENCE)[:3]
    assert np.array_equal(short.metric("loss"), REFERENCE.metric("loss")[:2])


def test_a_budget_of_time_is_a_number_of_rounds() -> None:
    run = train(rounds=None, time=4.0)
    assert models(run) == models(REFERENCE)
    assert run.digest == REFERENCE.digest


def test_a_budget_of_time_measures_the_last_model() -> None:
    run = train(rounds=None, time=4.0, evaluate_every=100)
    assert run.metric("loss")[-1] == REFERENCE.metric("loss")[-1]


def test_server_rate_and_equal_weights_scale_the_step() -> None:
    half = train(server=Add(lr=0.5), rounds=1)
    start, end = REFERENCE.models(0), REFERENCE.models(1)
    assert np.allclose(half.model, start + 0.5 * (end - start), atol=1e-7)
