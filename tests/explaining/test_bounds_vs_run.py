"""Bound, predicted bias and measured curve in one picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import poise
from poise.analysis.explain import explain_composition
from poise.analysis.explain.bounds_vs_run import bounds_vs_run
from poise.analysis.reports.bounds_vs_run import (
    bounds_figure,
    keep_explanation,
    kept_explanation,
    skew_figure,
    write_explanation,
)
from poise.apps.cli.app import app
from poise.config.run_options import RunOptions
from poise.core.errors import PoiseError
from poise.solvers import SGD
from poise.training import begin, composed
from poise.weightings import Adjacency, Exp, SoftMax, SoftMin

OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
CURVATURE = np.array([1.0, 0.5, 0.8, 0.4])
FED = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=[1, 2, 3, 4])


def test_a_run_stays_below_its_bound() -> None:
    """Logistic regression at the rate of [Buttaci 2024, Thm 4.1]: below the bound at every kept
    model."""
    fed = poise.federation(
        "digits", partition="dirichlet", alpha=0.5, clients=5, samples=300, seed=2
    )
    task, decay, steps = poise.task("logistic", dtype="float64"), 0.2, 2
    known = poise.theory.constants(fed, task, weight_decay=decay)
    solver = SGD(
        lr=1 / (2 * known.smoothness.value * steps), steps=steps, weight_decay=decay
    )
    composition = composed(
        fed,
        task,
        {"solver": solver},
        RunOptions(rounds=60, keep="all", evaluate_every=60),
    )
    found = explain_composition(composition)
    drawn = bounds_vs_run(composition, found, begin(composition))
    bound = np.interp(
        drawn.measured_rounds[1:],
        drawn.rounds,
        drawn.bounds["loss gap of FedProx, fixed rate"],
    )
    assert (drawn.measured[1:] <= bound).all()
    assert (drawn.measured >= -1e-9).all()
    assert (
        np.diff(drawn.measured) < 0
    ).all()  # exact gradients and small steps: the loss only falls
    assert drawn.bias <= 1e-9


def test_the_predicted_bias_is_the_loss_at_the_optimum_of_the_surrogate() -> None:
    composition = composed(
        FED,
        FED.task,
        {"solver": SGD(lr=0.05, steps=1), "weighting": Adjacency()},
        RunOptions(rounds=400, keep="all", evaluate_every=400),
    )
    found = explain_composition(composition)
    drawn = bounds_vs_run(composition, found, begin(composition))
    q, p = found.objective * CURVATURE, FED.importance * CURVATURE
    there, best = q @ OPTIMA / q.sum(), p @ OPTIMA / p.sum()
    by_hand = float(
        p / 2 @ (np.square(there - OPTIMA) - np.square(best - OPTIMA)).sum(axis=1)
    )
    assert drawn.bias == pytest.approx(by_hand, rel=1e-6)
    assert drawn.measured[-1] == pytest.approx(by_hand, rel=1e-3)
    names = [trace.name for trace in bounds_figure(drawn).data]
    assert names[-2:] == ["measured", "predicted bias"]
    assert not any("FedProx" in name for name in names), "it has other weights"
    for name, bound in drawn.bounds.items():
        if name.endswith("own rate"):
            assert drawn.measured[-1] <= bound[-1], name


WEIGHTINGS = [SoftMax(5.0), Exp(2.0), SoftMin(8.0), Adjacency()]


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_with_weights_stays_below_the_bounds_at_its_own_rate(
    weighting: Any, steps: int
) -> None:
    """Exact gradients, so nothing is left to chance. The largest squared gradient of the run
    replaces the estimate of G^2, and the range of its weights that found before."""
    rate, rounds = 0.03, 120
    composition = composed(
        FED,
        FED.task,
        {"solver": SGD(lr=rate, steps=steps), "weighting": weighting},
        RunOptions(rounds=rounds, keep="all", evaluate_every=rounds),
    )
    run = begin(composition)
    found = explain_composition(composition)
    drawn = bounds_vs_run(composition, found, run)
    skew, p = drawn.skew, FED.importance
    assert skew is not None
    assert found.constants is not None
    models = np.array([run.models(n) for n in range(rounds + 1)])
    losses = CURVATURE / 2 * np.square(models[:, None] - OPTIMA).sum(axis=-1)
    best = (p * CURVATURE) @ OPTIMA / (p @ CURVATURE)
    there = CURVATURE / 2 * np.square(best - OPTIMA).sum(axis=-1)
    # rho, Omega, Gamma, pi and Pi by their definitions
    used = skew.rounds.astype(int)
    at_models = (run.weights * losses[:-1]).sum(axis=1) / (losses[:-1] @ p)
    assert skew.skews == pytest.approx(at_models[used], rel=1e-6)
    assert skew.highest == pytest.approx((run.weights @ there).max() / (p @ there))
    assert skew.gamma == pytest.approx((run.weights @ there).max(), rel=1e-6)
    gaps = (run.weights * losses[:-1]).sum(axis=1)
    assert skew.omega == pytest.approx(gaps[used].min(), rel=1e-6)
    kappa = run.weights / p
    assert skew.kappa == pytest.approx((kappa.min(), kappa.max()))
    # the theorems, with nothing estimated
    steepest = CURVATURE**2 * np.square(models[:, None] - OPTIMA).sum(axis=-1)
    problem = replace(
        found.constants.problem(), gradient=float(steepest.max()), noise=0.0
    )
    assert problem.heterogeneity == pytest.approx(float(p @ there), rel=1e-6)
    gap = losses @ p - p @ there
    for n in (1, 5, 30, rounds):
        for bound in skew.bounds(problem, steps, n, rate):
            rigorous = steps == 1 or "range" in bound.name
            assert bound.assumptions[-1].holds
            assert not rigorous or gap[n] <= bound.total, bound.name
    ranges = [name for name in drawn.bounds if name.endswith("measured range")]
    assert len(ranges) == 2


def test_the_skew_is_drawn_and_kept(tmp_path: Path) -> None:
    composition = composed(
        FED,
        FED.task,
        {"solver": SGD(lr=0.03, steps=2), "weighting": SoftMax(5.0)},
        RunOptions(rounds=20, keep="all", evaluate_every=20),
    )
    drawn = bounds_vs_run(
        composition, explain_composition(composition), begin(composition)
    )
    keep_explanation(tmp_path, [], [], [], drawn)
    kept = kept_explanation(tmp_path)
    assert kept is not None
    assert kept.curves is not None
    assert kept.curves.skew is not None
    assert drawn.skew is not None
    for skew in (drawn.skew, kept.curves.skew):
        traces = {trace.name: trace for trace in skew_figure(skew).data}
        assert list(traces) == ["ρ(t, w_t)", "ρ̄", "ρ̃", "π", "Π"]
        assert list(traces["ρ(t, w_t)"].y) == list(drawn.skew.skews)
        assert traces["ρ̄"].y[0] == min(drawn.skew.skews)
        assert (traces["π"].y[0], traces["Π"].y[1]) == drawn.skew.kappa
    file = tmp_path / "explanation.json"
    data = json.loads(file.read_text())
    del data["curves"]["skew"]  # as earlier versions wrote it
    file.write_text(json.dumps(data))
    earlier = kept_explanation(tmp_path)
    assert earlier is not None
    assert earlier.curves is not None
    assert earlier.curves.skew is None
    page = write_explanation("a run", [], [], drawn, tmp_path / "page.html")
    assert "Weighting skew" in page.read_text()


def test_weights_that_are_the_importance_have_no_skew() -> None:
    composition = composed(
        FED,
        FED.task,
        {"solver": SGD(lr=0.03, steps=2)},
        RunOptions(rounds=5, keep="all", evaluate_every=5),
    )
    drawn = bounds_vs_run(
        composition, explain_composition(composition), begin(composition)
    )
    assert drawn.skew is None
    assert "loss gap of FedProx, own rate" in drawn.bounds


def test_without_an_optimum_there_is_no_picture() -> None:
    fed = poise.federation("digits", clients=3, samples=60)
    composition = composed(
        fed,
        poise.task("mlp", hidden=4),
        {"solver": SGD(lr=0.1, steps=1)},
        RunOptions(rounds=2),
    )
    with pytest.raises(PoiseError, match="optimum of this problem is unknown"):
        bounds_vs_run(composition, explain_composition(composition))


FILE = """
data = {source = "digits", clients = 4, samples = 200}
task = {model = "logistic"}
solver = {name = "sgd", lr = 0.05, steps = 2, weight_decay = 0.1}
run = {rounds = 4, keep = "all"}
"""


def test_the_page_of_a_run(tmp_path: Path) -> None:
    file, page = tmp_path / "exp.toml", tmp_path / "page.html"
    file.write_text(FILE)
    assert (
        CliRunner()
        .invoke(app, ["run", str(file), "--out", str(tmp_path / "runs")])
        .exit_code
        == 0
    )
    assert (
        CliRunner()
        .invoke(app, ["explain", str(tmp_path / "runs"), "--out", str(page)])
        .exit_code
        == 0
    )
    text = page.read_text()
    assert "Bounds and measured run" in text
    assert "loss gap of FedProx, fixed rate" in text
