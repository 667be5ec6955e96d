"""Clients with unequal local work: the true optimum with `PerStep`, the surrogate without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise
from poise.core.errors import InvalidOption
from poise.solvers import SGD, schedules
from poise.weightings import PerStep, Proportional, SoftMax

OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
SIZES = [1, 2, 3, 4]
P = np.array(SIZES) / 10
CURVATURE = np.array([1.0, 0.5, 0.8, 0.3])
FED = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)
TAU = np.array([1.0, 0.75, 0.5, 0.25])


class Uneven(SGD):
    """SGD in which client i makes n_i steps."""

    traits = SGD.traits

    def steps_for(self, sizes: np.ndarray) -> np.ndarray:
        return np.asarray(sizes, dtype=np.int64)


def optimum(weights: np.ndarray) -> np.ndarray:
    """The minimiser of sum_i weights_i c_i/2 |w - o_i|^2."""
    bent = weights * CURVATURE
    return np.asarray(bent @ OPTIMA / bent.sum())


def limit(rounds: float = 6, **parts: Any) -> np.ndarray:
    """The end for small steps, by Richardson's extrapolation from three learning rates."""
    ends = []
    for lr in (0.06, 0.03, 0.015):
        solver = Uneven(lr=lr, steps=1)
        run = poise.train(
            FED,
            FED.task,
            solver,
            rounds=int(rounds / lr),
            evaluate_every=10**6,
            **parts,
        )
        ends.append(run.model)
    return (ends[0] - 6 * ends[1] + 8 * ends[2]) / 3


def test_the_fixed_point_is_the_optimum_with_it_and_the_surrogate_without() -> None:
    """Without it the objective has weights p_i K_i, as `explain` predicts."""
    asked = optimum(P)
    other = optimum(P * np.array(SIZES))
    apart = np.linalg.norm(asked - other)
    assert apart > 0.2
    assert np.linalg.norm(limit(weighting=PerStep()) - asked) < 5e-3 * apart
    assert np.linalg.norm(limit(weighting=Proportional()) - other) < 5e-3 * apart
    solver = Uneven(lr=0.06, steps=1)
    corrected = poise.explain(
        FED, FED.task, solver, weighting=PerStep(), estimate=False
    )
    assert corrected.unbiased
    assert np.allclose(corrected.objective, P, rtol=1e-12)
    assert [r.about for r in corrected.remarks] == []
    plain = poise.explain(FED, FED.task, solver, estimate=False)
    assert not plain.unbiased
    assert "PerStep()" in str(plain)


def test_coefficients_by_hand() -> None:
    """Paths 0.1 and 0.6; their mean by weights 0.2 and 0.8 is 0.5."""
    columns = {"steps": np.array([1, 3]), "rates": np.array([0.1, 0.2])}
    weights = np.array([0.2, 0.8])
    mean = PerStep().coefficients(weights, **columns)
    assert mean == pytest.approx([0.2 * 5, 0.8 * 5 / 6])
    given = PerStep(path=0.3).coefficients(weights, **columns)
    assert given == pytest.approx([0.2 * 3, 0.8 / 2])


def test_equal_work_changes_nothing() -> None:
    solver = SGD(lr=0.1, steps=3)
    plain = poise.train(FED, FED.task, solver, rounds=5)
    same = poise.train(FED, FED.task, solver, rounds=5, weighting=PerStep())
    assert np.allclose(plain.weights, same.weights, rtol=1e-14)
    assert np.allclose(plain.model, same.model, rtol=0, atol=1e-6)


def test_a_falling_rate_of_old_versions_is_made_up_for() -> None:
    """Under a clock that does not wait, rows have the rates of their versions."""
    falling = SGD(lr=0.1, steps=2, schedule=schedules.Step(every=1, gamma=0.5))
    run = poise.train(
        FED,
        FED.task,
        falling,
        clock=poise.clocks.FixedWindow(0.5, TAU),
        weighting=PerStep(path=0.2),
        rounds=4,
    )
    table = run.contributions
    rates = 0.1 * 0.5 ** table["version"].astype(float)
    expected = P[table["client"]] * 0.2 / (2 * rates)
    assert np.allclose(table["coefficient"], expected, rtol=1e-12)
    assert len(set(table["version"])) > 1


def test_it_wraps_other_weightings_and_says_what_is_wrong() -> None:
    run = poise.train(
        FED,
        FED.task,
        Uneven(lr=0.05, steps=1),
        rounds=2,
        weighting=PerStep(SoftMax(1.0), path=0.05),
    )
    soft = poise.train(
        FED, FED.task, Uneven(lr=0.05, steps=1), rounds=1, weighting=SoftMax(1.0)
    )
    assert np.allclose(run.weights[0], soft.weights[0] / np.array(SIZES), rtol=1e-12)
    with pytest.raises(InvalidOption, match="path must be above 0"):
        PerStep(path=0.0)
    with pytest.raises(InvalidOption, match="is not a weighting"):
        PerStep(of=3)
