"""Bound, predicted bias and measured curve in one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import poise
from poise.analysis.explain import explain_composition
from poise.analysis.explain.bounds_vs_run import bounds_vs_run
from poise.analysis.reports.bounds_vs_run import bounds_figure
from poise.apps.cli.app import app
from poise.config.run_options import RunOptions
from poise.core.errors import PoiseError
from poise.solvers import SGD
from poise.training import begin, composed
from poise.weightings import Adjacency

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
    assert names == [
        "bound: loss gap of FedProx, fixed rate",
        "measured",
        "predicted bias",
    ]


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
