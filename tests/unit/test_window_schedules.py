"""Fixed windows that change their length, and the weights that stay unbiased under them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise.clocks import Asynchronous, Exponential, FixedWindow, Synchronous
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.parts import build, describe
from poise.solvers import SGD
from poise.weightings import (
    Anneal,
    Clipped,
    Discount,
    PerStep,
    Proportional,
    Switch,
    TimeBased,
)

TAU = [1.0, 0.7, 0.45, 0.2]
P = np.array([0.1, 0.2, 0.3, 0.4])
OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
GROWING = FixedWindow(0.2, TAU, growth=1.5, longest=1.0)


def trained(clock: Any, weighting: Any = TimeBased("elapsed"), **options: Any) -> Any:
    fed = poise.quadratics(OPTIMA, sizes=[1, 2, 3, 4])
    options = {"rounds": 12, **options}
    return poise.train(
        fed, fed.task, SGD(lr=0.1, steps=1), clock=clock, weighting=weighting, **options
    )


def ends(clock: Any, aggregations: int) -> list[float]:
    return [step.time for step in clock.timeline(aggregations=aggregations)]


def test_a_list_of_lengths_by_hand() -> None:
    """Windows end at 0.5, 1, 1.2, 1.4, …; the work of 0.6 units ends in the second."""
    clock = FixedWindow([0.5, 0.5, 0.2], [0.6, 0.3])
    steps = list(clock.timeline(aggregations=6))
    assert [s.time for s in steps] == pytest.approx([0.5, 1.0, 1.2, 1.4, 1.6, 1.8])
    # client 1 starts anew at 0.5, 1 and 1.4; client 0 at 1 and, after 1.6, once more
    assert [s.clients.tolist() for s in steps] == [[1], [0, 1], [], [1], [0], [1]]
    assert steps[3].versions.tolist() == [2]


def test_growing_windows_by_hand() -> None:
    """Lengths 0.2, 0.3, 0.45, 0.675, then 1: 0.2 · 1.5⁴ = 1.0125 is too long."""
    assert ends(GROWING, 6) == pytest.approx([0.2, 0.5, 0.95, 1.625, 2.625, 3.625])
    doubling = FixedWindow(1.0, [1.0], growth=2.0, longest=4.0)
    assert ends(doubling, 4) == [1.0, 3.0, 7.0, 11.0]


@pytest.mark.parametrize(
    "same",
    [
        FixedWindow([0.3], TAU),
        FixedWindow([0.3, 0.3, 0.3], TAU),
        FixedWindow(0.3, TAU, growth=1.0),
        FixedWindow(0.3, TAU, growth=2.0, longest=0.3),
    ],
)
def test_a_constant_schedule_is_a_fixed_window_bit_for_bit(same: FixedWindow) -> None:
    plain = FixedWindow(0.3, TAU)
    assert list(same.timeline(aggregations=500)) == list(
        plain.timeline(aggregations=500)
    )
    assert (
        same.unbiased_weights(None, P).tolist()
        == plain.unbiased_weights(None, P).tolist()
    )
    assert same.traits == plain.traits
    runs = [trained(clock, TimeBased()) for clock in (plain, same)]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


def test_windows_that_have_grown_are_synchronous() -> None:
    """From the slowest time on, every window hears every client on the newest model."""
    steps = list(GROWING.timeline(aggregations=30))[6:]
    assert all(s.clients.tolist() == [0, 1, 2, 3] for s in steps)
    assert all((s.versions == s.index).all() for s in steps)
    weights = trained(GROWING, rounds=10).weights
    assert np.allclose(weights[6:], P, rtol=1e-14)


@pytest.mark.parametrize(
    "clock",
    [
        FixedWindow([0.1, 0.6, 0.2, 0.9, 0.3], TAU),
        FixedWindow(0.05, TAU, growth=1.2, longest=0.8),
        FixedWindow(0.2, Exponential(TAU), growth=1.05, longest=0.9),
        Asynchronous(TAU),
    ],
)
def test_elapsed_weights_sum_to_the_aggregations_since_the_start(clock: Any) -> None:
    """Counted: after each answer, the weights of a client sum to p_i times all
    aggregations so far, to the bit of a sum of whole numbers."""
    run = trained(clock, rounds=60)
    for client in range(4):
        row = run.weights[:, client]
        answers = np.flatnonzero(row)
        sums = np.cumsum(row)[answers]
        assert np.allclose(sums, P[client] * (answers + 1), rtol=1e-12)
        assert len(answers) >= 4


def test_elapsed_weights_reach_the_optimum_while_the_windows_grow() -> None:
    """Quadratics of equal curvature: the optimum is the mean of the optima. Windows grow
    so slowly that they are still too short for two clients at the end."""
    clock = FixedWindow(0.2, TAU, growth=1.0005, longest=1.0)
    goal = P @ OPTIMA
    rounds = 1500
    weightings = {
        "elapsed": TimeBased("elapsed"),
        "blind": poise.weightings.Identical(),
    }
    away = {}
    fed = poise.quadratics(OPTIMA, sizes=[1, 2, 3, 4])
    for name, weighting in weightings.items():
        run = poise.train(
            fed,
            fed.task,
            SGD(lr=0.005, steps=1),
            clock=clock,
            weighting=weighting,
            rounds=rounds,
            evaluate_every=rounds,
        )
        away[name] = float(np.linalg.norm(run.model - goal))
    assert 0.2 * 1.0005**rounds < 0.45
    assert away["elapsed"] < 0.05 * away["blind"]


def test_a_resumed_run_keeps_its_windows(tmp_path: Path) -> None:
    whole = trained(GROWING)
    trained(GROWING, rounds=5, out=tmp_path / "run").close()
    fed = poise.quadratics(OPTIMA, sizes=[1, 2, 3, 4])
    longer = poise.resume(tmp_path / "run", fed, fed.task, rounds=12)
    assert longer.digest == whole.digest
    assert longer.times.tolist() == whole.times.tolist()


def test_files_describe_the_windows() -> None:
    for clock in (GROWING, FixedWindow([0.5, 1.0], TAU)):
        table = describe(clock)
        assert build("clock", table) == clock
    assert describe(GROWING)["growth"] == 1.5


def test_constant_weights_are_refused_while_windows_change() -> None:
    with pytest.raises(InvalidOption, match="no constant weights are unbiased"):
        GROWING.unbiased_weights(None, P)
    with pytest.raises(InvalidOption, match="times='elapsed'"):
        trained(GROWING, TimeBased())
    assert GROWING.traits.schedule is None


def test_elapsed_times_are_refused_where_they_do_not_hold() -> None:
    with pytest.raises(IncompatibleParts, match="Uniform selects some clients only"):
        trained(GROWING, sampler=poise.samplers.Uniform(2))
    with pytest.raises(IncompatibleParts, match="leaves out late answers"):
        trained(Synchronous(TAU, enough=2))
    sampled = trained(Synchronous(TAU), sampler=poise.samplers.MD(2), rounds=4)
    plain = trained(
        Synchronous(TAU),
        Proportional(),
        sampler=poise.samplers.MD(2),
        rounds=4,
    )
    assert sampled.model.tobytes() == plain.model.tobytes()


@pytest.mark.parametrize(
    "weighting",
    [
        Switch([(1, Proportional()), (None, TimeBased("elapsed"))]),
        Anneal(Proportional(), TimeBased("elapsed"), over=2),
        Discount(TimeBased("elapsed")),
        Clipped(1.0, of=Switch([(None, TimeBased("elapsed"))])),
        PerStep(TimeBased("elapsed"), path=0.1),
    ],
    ids=lambda weighting: type(weighting).__name__,
)
def test_elapsed_times_inside_other_weightings_are_refused_too(weighting: Any) -> None:
    """Half of the clients are never drawn at once: the weights would be too large."""
    with pytest.raises(IncompatibleParts, match="Uniform selects some clients only"):
        trained(Asynchronous(TAU), weighting, sampler=poise.samplers.Uniform(2))
    fed = poise.quadratics(OPTIMA, sizes=[1, 2, 3, 4])
    found = poise.explain(
        fed,
        fed.task,
        SGD(lr=0.1, steps=1),
        clock=Synchronous(TAU, enough=2),
        weighting=weighting,
        rounds=5,
    )
    assert found.unbiased is None
    assert "leaves out late answers" in str(found)
    trained(Asynchronous(TAU), weighting, rounds=3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FixedWindow([]), "dt is empty"),
        (lambda: FixedWindow([0.5, 0.0]), "above 0, not 0"),
        (lambda: FixedWindow(0.5, growth=0.9), "growth must be 1 or more"),
        (lambda: FixedWindow(0.5, growth=1.1), "need longest"),
        (lambda: FixedWindow(0.5, growth=1.1, longest=0.4), "of at least dt = 0.5"),
        (lambda: FixedWindow(0.5, longest=1.0), "windows that grow"),
        (lambda: FixedWindow([0.5, 1.0], growth=1.1, longest=2.0), "not for a list"),
        (
            lambda: FixedWindow([0.5, 1.0], TAU, stagger=True),
            "stagger needs windows of one length",
        ),
    ],
)
def test_wrong_windows_are_refused_in_one_sentence(make: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        make()


def test_explain_finds_elapsed_weights_unbiased_and_prints_no_bound_of_one_length() -> (
    None
):
    fed = poise.quadratics(OPTIMA, sizes=[1, 2, 3, 4])
    explanation = poise.explain(
        fed,
        fed.task,
        solver=SGD(lr=0.1, steps=1),
        clock=GROWING,
        weighting=TimeBased("elapsed"),
        rounds=20,
    )
    assert explanation.unbiased
    assert not explanation.terms
    assert "not cover FixedWindow without windows of one length" in str(explanation)
    assert "4.40" not in str(explanation)
    assert "4.42" not in str(explanation)
