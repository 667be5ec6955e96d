"""Explaining a sampler that leaves clients out: before a run, and from its ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise import theory
from poise.analysis.explain import left_out
from poise.apps.experiments.explanation import explain_named
from poise.config.experiment import parse
from poise.core.errors import InvalidOption
from poise.samplers import MD, Budgeted, Full
from poise.solvers import SGD
from poise.unlearning import Budget, sensitivity

OPTIMA = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [3.0, -2.0]])
FED = poise.quadratics(OPTIMA, [1.0, 0.5, 2.0, 0.8], sizes=[1, 2, 3, 4])


def trained(sampler: Any, **options: Any) -> Any:
    return poise.train(
        FED, FED.task, SGD(lr=0.2, steps=1), sampler=sampler, rounds=30, **options
    )


def test_before_a_run_the_objective_is_unknown() -> None:
    found = poise.explain(
        FED, FED.task, SGD(lr=0.2, steps=1), sampler=Budgeted(limit=0.6)
    )
    assert found.unbiased is None
    assert np.isnan(found.chi2)
    assert found.terms == {}
    (warning,) = found.warnings
    assert "leaves out clients whose sensitivity reaches Ψ* = 0.6" in warning
    assert "the objective drifts towards the other clients" in warning


def test_without_a_limit_the_composition_cannot_run() -> None:
    found = poise.explain(FED, FED.task, SGD(lr=0.2, steps=1), sampler=Budgeted())
    assert "this composition cannot run" in found.warnings[0]
    assert "declare [unlearning]" in found.warnings[0]


@pytest.mark.parametrize("limit", [0.6, 1.0, 50.0])
def test_the_bias_of_a_run_by_hand(limit: float) -> None:
    run = trained(Budgeted(limit=limit))
    found = left_out(run)
    psi = sensitivity(run)
    moved = np.zeros((30, 4))
    rows = run.contributions
    moved[rows["round"], rows["client"]] = run.measurement("moved")
    largest = np.maximum.accumulate(moved.max(axis=1))
    out = psi[1:] + largest[:, None] > limit  # after each round
    assert sorted(found.since) == np.flatnonzero(out[-1]).tolist()
    for client, since in found.since.items():
        assert out[since - 1 :, client].all()
        assert since == 1 or not out[since - 2, client]
        assert not run.weights[since:, client].any()
    p = np.array([0.1, 0.2, 0.3, 0.4])
    q = run.weights.sum(axis=0) / run.weights.sum()
    assert found.chi2 == pytest.approx(float(((p - q) ** 2 / q).sum()), abs=1e-12)
    assert found.share == pytest.approx(float(p[out[-1]].sum()))
    assert np.allclose(found.psi, psi[-1])


def test_the_share_is_the_total_variation_of_the_last_rounds() -> None:
    found = left_out(trained(Budgeted(limit=1.0)))
    p = found.importance
    rest = p.copy()
    rest[list(found.since)] = 0.0
    assert found.since
    assert rest.any()
    assert found.share == pytest.approx(theory.total_variation(p, rest / rest.sum()))


def test_texts() -> None:
    some = str(left_out(trained(Budgeted(limit=1.0))).remark())
    assert "of 4 clients" in some
    assert "of the importance" in some
    nobody = str(left_out(trained(Budgeted(limit=50.0))).remark())
    assert "left nobody out" in nobody
    everyone = str(left_out(trained(Budgeted(limit=0.0))).remark())
    assert "it left out 4 of 4 clients (0, 1, 2, 3) with 100%" in everyone
    assert "nobody was left after 1 rounds" in everyone


def test_the_declared_budget_counts() -> None:
    budget = Budget(sigma=0.2)
    assert left_out(trained(Budgeted(), unlearning=budget)).limit == budget.limit
    assert (
        left_out(trained(Budgeted(MD(2)), keep="unlearnable")).limit == Budget().limit
    )


def test_other_samplers_have_no_limit() -> None:
    with pytest.raises(InvalidOption, match="Full, has no limit on sensitivities"):
        left_out(trained(Full()))


FILE = """
[data]
source = "synthetic"
clients = 6
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 3
batch_size = 4
[sampler]
name = "budgeted"
[unlearning]
sigma = 0.1
[run]
rounds = 15
"""


def test_explain_adds_the_bias_of_a_run_folder(tmp_path: Path) -> None:
    from poise.apps.experiments.runner import run_experiment

    (run,) = run_experiment(parse(FILE), tmp_path / "runs")
    assert run.path is not None
    expected = str(left_out(run).remark())
    run.close()
    assert explain_named(str(run.path)).warnings[-1] == expected
    file = tmp_path / "exp.toml"
    file.write_text(FILE)
    before = explain_named(str(file)).warnings
    assert len(before) == len([w for w in before if "this run" not in w])
    assert any("budgeted is biased" in w for w in before)


def test_a_table_with_groups_and_noise_levels_is_read() -> None:
    """The sampler counts with weight decay: so does the account of the clients left out."""
    fed = poise.federation("digits", clients=6, samples=200)
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.02, steps=2, weight_decay=0.5),
        poise.samplers.Budgeted(poise.samplers.Uniform(3)),
        rounds=12,
        keep="all",
        unlearning=poise.unlearning.UnlearningPlan(
            sigma=0.02, measured_groups=((0, 1),), sigmas=(0.02, 0.1)
        ),
    )
    known = left_out(run)
    assert np.allclose(known.psi, poise.unlearning.sensitivity(run)[-1])
