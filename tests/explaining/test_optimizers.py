"""No guarantee that needs gradient steps is given to a local optimiser."""

from __future__ import annotations

from typing import Any

import pytest

import poise
from poise import solvers
from poise.core.errors import IncompatibleParts
from poise.core.traits import SolverTraits, traits_of
from poise.solvers import schedules
from poise.unlearning import Budget
from poise.unlearning.proof import _solver_gaps

WORK = {"steps": 2}
OPTIMISED = [
    solvers.Adam(0.1, **WORK),
    solvers.AdamW(0.1, **WORK),
    solvers.RMSprop(0.1, **WORK),
    solvers.Adagrad(0.1, **WORK),
    solvers.SGD(0.1, optimizer="adam", **WORK),
    solvers.Prox(0.1, lr=0.1, optimizer="rmsprop", **WORK),
    solvers.Perturbed(0.7, lr=0.1, optimizer="adagrad", **WORK),
    solvers.FedDyn(0.1, lr=0.1, optimizer="adam", **WORK),
]
ALMOST = [
    solvers.SGD(0.1, momentum=0.9, nesterov=True, **WORK),
    solvers.SGD(0.1, momentum=0.9, keep_state=True, **WORK),
    solvers.SGD(0.1, local_schedule=schedules.Cosine(5), **WORK),
    solvers.SGD(0.1, momentum=0.9, weight_decay=0.1, decoupled=True, **WORK),
]


@pytest.mark.parametrize("solver", [*OPTIMISED, *ALMOST], ids=repr)
def test_no_gradient_steps_and_no_certificate(solver: Any) -> None:
    traits = traits_of(solver, SolverTraits)
    assert not traits.gradient_steps
    assert not traits.plain_gradient
    assert not traits.removes_drift
    assert traits.own_share is None
    assert any("gradient steps" in gap for gap in _solver_gaps(solver))
    budget = Budget(sigma=0.1, epsilon=1.0, delta=1e-2)
    assert budget.contraction(solver) == 1.0
    with pytest.raises(IncompatibleParts, match="plain SGD"):
        Budget(sigma=0.1, epsilon=1.0, delta=1e-2, strong_convexity=0.1).contraction(
            solver
        )


@pytest.mark.parametrize("solver", OPTIMISED[:4], ids=repr)
def test_explain_gives_no_bound(solver: Any) -> None:
    quad = poise.quadratics([[1.0], [3.0]])
    explained = poise.explain(quad, quad.task, solver, rounds=5)
    assert not explained.terms
    assert any("size of the gradient" in str(w) for w in explained.warnings)
    plain = poise.explain(quad, quad.task, solvers.SGD(0.1, **WORK), rounds=5)
    assert plain.terms


def test_kept_state_sends_more_than_updates() -> None:
    kept = solvers.Adam(0.1, keep_state=True, **WORK)
    assert not traits_of(kept, SolverTraits).sends_only_updates
    assert traits_of(solvers.Adam(0.1, **WORK), SolverTraits).sends_only_updates


def test_schedules_are_no_constant_rates() -> None:
    for options in (
        {"schedule": schedules.Cosine(5)},
        {"local_schedule": schedules.Step(2)},
        {"decay": 0.9},
    ):
        solver = solvers.SGD(0.1, **WORK, **options)
        assert not traits_of(solver, SolverTraits).constant_rate
    same = solvers.SGD(0.1, schedule=schedules.Constant(), **WORK)
    assert traits_of(same, SolverTraits).constant_rate
    assert traits_of(same, SolverTraits).plain_gradient
