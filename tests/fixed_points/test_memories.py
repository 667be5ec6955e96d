"""Solvers with a memory: their limits, their reductions to simpler solvers, and their resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import poise
from poise.analysis.explain.explanation import progress_of
from poise.core.errors import IncompatibleParts
from poise.core.types import Setting
from poise.solvers import SGD, FedDyn, FedFor, Prox, Scaffold

QUAD = poise.quadratics(
    [[0.0, 1.0], [4.0, -2.0], [10.0, 0.0]], curvature=[1.0, 3.0, 0.5], sizes=[2, 1, 3]
)
OPTIMUM = (
    (QUAD.importance * QUAD.curvature)
    @ QUAD.optima
    / (QUAD.importance @ QUAD.curvature)
)


def train(solver, rounds=400, **options):
    return poise.train(
        QUAD, QUAD.task, solver, rounds=rounds, evaluate_every=rounds, **options
    )


@pytest.mark.parametrize(
    "solver",
    [
        Scaffold(lr=0.05, steps=5),
        pytest.param(FedDyn(0.5, lr=0.05, steps=40), marks=pytest.mark.thorough),
    ],
    ids=["scaffold", "feddyn"],
)
def test_memory_removes_the_bias_of_many_local_steps(solver) -> None:
    assert train(solver).model == pytest.approx(OPTIMUM, abs=1e-6)
    drifted = train(SGD(lr=0.05, steps=solver.steps)).model
    assert np.abs(drifted - OPTIMUM).max() > 0.05


@pytest.mark.thorough
def test_with_a_memory_clients_that_make_more_steps_do_not_count_more() -> None:
    setting = Setting(2, np.array([2, 6]), np.array([0.25, 0.75]))
    work = {"lr": 0.1, "epochs": 1, "batch_size": 2}
    assert progress_of(SGD(**work), setting).tolist() == [1.0, 3.0]
    for solver in (Scaffold(**work), FedDyn(0.5, **work)):
        assert progress_of(solver, setting).tolist() == [1.0, 1.0]


def test_scaffold_with_partial_participation_and_decaying_rate_ends_at_the_optimum() -> (
    None
):
    solver = Scaffold(lr=0.05, steps=5, decay=0.999)
    assert train(
        solver, 1500, sampler=poise.samplers.Uniform(2)
    ).model == pytest.approx(OPTIMUM, abs=1e-3)


def test_scaffold_by_hand_for_two_rounds() -> None:
    """K = 1, full participation: round 0 is gradient descent with c_i = c = 0; afterwards c_i is
    client i's gradient at theta^0 and c their mean, so round 1 steps along g_i(theta^1) -
    g_i(theta^0) + g(theta^0)."""
    lr, p = 0.1, QUAD.importance[:, None]
    gradient = lambda w: QUAD.curvature[:, None] * (w - QUAD.optima)
    zero = np.zeros(2)
    first = zero - lr * (p * gradient(zero)).sum(axis=0)
    mean = (p * gradient(zero)).sum(axis=0)
    second = first - lr * (p * (gradient(first) - gradient(zero) + mean)).sum(axis=0)
    run = train(Scaffold(lr=lr, steps=1), 2, keep="all")
    assert run.models(1) == pytest.approx(first, abs=1e-14)
    assert run.models(2) == pytest.approx(second, abs=1e-14)


def test_fedfor_by_hand() -> None:
    """One client with optimum at 1 and a server that overshoots: the next gradient points against
    the last step."""
    quad = poise.quadratics([[1.0]])
    run = poise.train(
        quad,
        quad.task,
        FedFor(2.0, lr=0.1, steps=2),
        server=poise.servers.Add(20.0),
        rounds=2,
        keep="all",
    )
    theta = [float(run.models(n)[0]) for n in range(3)]
    assert theta[1] == pytest.approx(20 * 0.19)  # two steps of 0.1 from 0 to 1: 0.19
    d, w = theta[1], theta[1]
    w -= 0.1 * (w - 1)  # the first step starts at theta: no penalty yet
    w -= 0.1 * ((w - 1) + (2.0 * -d if d * (w - theta[1]) < 0 else 0.0))
    assert theta[2] == pytest.approx(theta[1] + 20 * (w - theta[1]))


def test_reductions() -> None:
    plain = train(SGD(lr=0.05, steps=5), 20)
    assert (
        train(Prox(0.0, lr=0.05, steps=5), 20).model.tobytes() == plain.model.tobytes()
    )
    assert train(FedFor(0.0, lr=0.05, steps=5), 20).model == pytest.approx(
        plain.model, abs=1e-15
    )


@pytest.mark.thorough
def test_prox_ends_where_its_closed_form_says() -> None:
    """Many local steps solve min L_i + mu/2 |w - theta|^2: w_i = (c_i o_i + mu theta)/(c_i + mu);
    the fixed point of the mean of the w_i is sum p a o / sum p a with a_i = c_i/(c_i + mu)."""
    mu = 2.0
    a = QUAD.importance * QUAD.curvature / (QUAD.curvature + mu)
    assert train(Prox(mu, lr=0.1, steps=200), 300).model == pytest.approx(
        a @ QUAD.optima / a.sum(), abs=1e-8
    )


def test_momentum_has_no_place_in_scaffold() -> None:
    with pytest.raises(IncompatibleParts, match="Scaffold"):
        train(Scaffold(lr=0.1, steps=2, momentum=0.9), 2)
    crowd = poise.federation(
        "digits", clients=10**6, on_demand=True, samples_per_client=20
    )
    with pytest.raises(IncompatibleParts, match="on demand"):
        poise.train(
            crowd,
            poise.task("logistic"),
            Scaffold(lr=0.1, steps=2),
            sampler=poise.samplers.Uniform(5),
            rounds=1,
        )


@pytest.mark.parametrize(
    "solver",
    [
        Scaffold(lr=0.05, steps=3),
        FedDyn(0.5, lr=0.05, steps=3),
        FedFor(1.0, lr=0.05, steps=3),
    ],
)
@pytest.mark.parametrize(
    "server", [poise.servers.Add(), poise.servers.Adam(0.1)], ids=["add", "adam"]
)
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(
    solver, server, tmp_path: Path
) -> None:
    options = {"sampler": poise.samplers.Uniform(2), "server": server, "seed": 5}
    whole = train(solver, 12, **options)
    count = iter(range(100))
    half = poise.train(
        QUAD,
        QUAD.task,
        solver,
        rounds=12,
        evaluate_every=12,
        out=tmp_path / "run",
        stop=lambda: next(count) >= 7,
        **options,
    )
    assert half.rounds == 7
    half.close()
    resumed = poise.resume(tmp_path / "run", QUAD, QUAD.task)
    assert resumed.digest == whole.digest
    kept = sorted(
        p.name for p in (tmp_path / "run" / "models").glob("*.clients.safetensors")
    )
    assert (
        len(kept) <= 4
    )  # one file per client's newest, and what was newest a round ago


def test_batch_norm_stays_with_each_client_and_is_measured_there() -> None:
    """FedBN: the global vector never moves in the batch-norm entries, and each client is measured
    with its own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    x[:120] = x[:120] * 5 + 3  # the first client's features are scaled and shifted
    parts = [np.arange(120), np.arange(120, 240)]
    fed = poise.federation((x, y), partition=parts, client_test_share=0.25)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 2),
    )
    task = poise.Task(module=net)
    run = poise.train(
        fed,
        task,
        SGD(lr=0.1, epochs=2, batch_size=16),
        rounds=8,
        personal="batchnorm",
        keep="all",
        metrics=["client_test_accuracy"],
    )
    layout = task.bind(fed).layout
    norm = [e for e in layout.entries if e.name.startswith("1.")]
    for e in norm:
        assert (
            run.models(8)[e.start : e.stop] == run.models(0)[e.start : e.stop]
        ).all()
    assert run.metric("client_test_accuracy")[-1].shape == (2,)
    assert run.metric("own_accuracy")[-1] > 0.8
    with pytest.raises(IncompatibleParts, match="batch-norm"):
        poise.train(
            fed,
            poise.task("logistic"),
            SGD(lr=0.1, steps=1),
            rounds=1,
            personal="batchnorm",
        )
