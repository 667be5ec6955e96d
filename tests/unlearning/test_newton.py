"""The Newton scrub: exact for quadratic losses, near the optimum for logistic ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.solvers import SGD
from poise.unlearning import newton_scrub
from poise.unlearning.newton import conjugate_gradients

rng = np.random.default_rng(4)
CURVATURE = np.array([1.0, 0.5, 2.0, 0.3])
OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])


@pytest.mark.parametrize("rounds", [1, 7])
def test_quadratics_end_at_the_optimum_of_those_that_stay(rounds: int) -> None:
    """From any model: sum_i p_i (c_i + decay) has its minimum at sum p c o / sum p (c + decay)."""
    quad = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=[1, 2, 3, 4])
    solver = SGD(lr=0.1, steps=2, weight_decay=0.2)
    run = poise.train(quad, quad.task, solver, rounds=rounds)
    stay = np.array([0, 3])
    p = np.array([1, 4]) / 5
    bend = p * CURVATURE[stay]
    expected = bend @ OPTIMA[stay] / (bend.sum() + 0.2)
    found = newton_scrub(run, [1, 2], quad, quad.task)
    assert np.linalg.norm(run.model - expected) > 0.1
    assert np.allclose(found.model, expected, rtol=0, atol=1e-6)
    assert found.gradient_after < 1e-6 * found.gradient_before


def regression() -> tuple[Any, Any, Any, list[np.ndarray]]:
    x = rng.normal(size=(90, 4)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=90)).astype(np.float32)[:, None]
    owners = [np.arange(0, 20), np.arange(20, 50), np.arange(50, 90)]
    return poise.federation((x, y), owners, test_share=0.0), x, y, owners


def test_least_squares_end_at_the_closed_form_of_the_remaining_samples() -> None:
    """Ridge regression with a column of ones: (X'X · 2/n + decay)^-1 X'y · 2/n."""
    fed, x, y, owners = regression()
    task = poise.Task(module=nn.Linear(4, 1), loss="mse", dtype="float64")
    solver = SGD(lr=0.05, steps=3, batch_size=8, weight_decay=0.1)
    run = poise.train(fed, task, solver, rounds=4)
    found = newton_scrub(run, [0], fed, task)
    rows = np.concatenate(owners[1:])
    wide = np.c_[x[rows], np.ones(len(rows))].astype(np.float64)
    left = 2 * wide.T @ wide / len(rows) + 0.1 * np.eye(5)
    expected = np.linalg.solve(left, 2 * wide.T @ y[rows, 0] / len(rows))
    assert np.allclose(found.model, expected, rtol=0, atol=1e-7)
    assert not np.allclose(run.model, expected, rtol=0, atol=1e-2)


def test_repeated_scrubs_of_a_logistic_model_converge_to_the_optimum() -> None:
    """Newton's method: the gradient of the remaining clients falls at every step."""
    fed = poise.federation("digits", "dirichlet", alpha=0.5, clients=6, samples=300)
    task = poise.task("logistic")
    solver = SGD(lr=0.2, steps=5, batch_size=16, weight_decay=0.1)
    run = poise.train(fed, task, solver, rounds=20)
    first = newton_scrub(run, [1])
    assert first.gradient_after < 0.2 * first.gradient_before
    assert first.iterations > 1
    assert first.model.dtype == run.model.dtype


def test_what_has_no_newton_step_is_refused() -> None:
    fed, *_ = regression()
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    run = poise.train(
        fed, poise.Task(module=module, loss="mse"), SGD(lr=0.05, steps=1), rounds=1
    )
    with pytest.raises(IncompatibleParts, match="batch-norm"):
        newton_scrub(run, [0], fed, poise.Task(module=module, loss="mse"))
    quad = poise.quadratics(OPTIMA)
    run = poise.train(quad, quad.task, SGD(lr=0.1, steps=1), rounds=1)
    with pytest.raises(InvalidOption, match="damping must be 0 or more"):
        newton_scrub(run, [0], quad, quad.task, damping=-1.0)
    saddle = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    with pytest.raises(IncompatibleParts, match="without positive curvature"):
        conjugate_gradients(saddle.mv, torch.ones(2), 5)


def test_damping_adds_to_the_diagonal() -> None:
    """One client stays, curvature 1: theta - (theta - o)/(1 + damping)."""
    quad = poise.quadratics(OPTIMA)
    run = poise.train(quad, quad.task, SGD(lr=0.1, steps=1), rounds=1)
    found = newton_scrub(run, [1, 2, 3], quad, quad.task, damping=3.0)
    expected = run.model - (run.model - OPTIMA[0]) / 4
    assert np.allclose(found.model, expected, rtol=0, atol=1e-6)
