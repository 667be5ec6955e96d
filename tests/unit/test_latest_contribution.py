"""Every aggregation uses every client's latest answer: by hand, in the limit, on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.aggregators import LatestContribution, WeightedSum
from poise.backends import Local
from poise.clocks import Asynchronous, FixedWindow, Synchronous
from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.latest import answers, direction
from poise.core.round_updates import RoundUpdates
from poise.solvers import SGD
from poise.weightings import Proportional, SoftMax, TimeBased

TAU = np.array([1.0, 0.7, 0.45, 0.2])
OPTIMA = np.array([[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0], [1.0, -5.0]])
SIZES = [1, 2, 3, 4]
P = np.array(SIZES) / 10


def trained(rounds: int = 12, lr: float = 0.05, **parts: Any) -> Any:
    fed = poise.quadratics(OPTIMA, sizes=SIZES)
    options = {"aggregator": LatestContribution(), **parts}
    return poise.train(fed, fed.task, SGD(lr=lr, steps=1), rounds=rounds, **options)


def test_five_aggregations_by_hand() -> None:
    """Optima 0 and 4, rate 1/2, p = 1/2, start 0; client 1 answers after 0.4 units.

    It moves the model by 1 (from version 0) and 0.75 (version 1). Then client 0 answers
    from version 0 with no change, and the 1.5 of client 1 count again: 0.75. Client 1
    answers from versions 2 and 4: 0.5625 and 0.234375, and the 0 of client 0 counts.
    """
    fed = poise.quadratics([[0.0], [4.0]])
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=0.5, steps=1),
        clock=Asynchronous([1.0, 0.4]),
        aggregator=LatestContribution(),
        rounds=5,
        start=np.zeros(1),
        keep="all",
    )
    assert run.contributions["client"].tolist() == [1, 1, 0, 1, 1]
    assert run.contributions["version"].tolist() == [0, 1, 0, 2, 4]
    models = [float(run.models(n)[0]) for n in range(6)]
    assert models == [0.0, 1.0, 1.75, 2.5, 3.0625, 3.296875]


def test_with_all_clients_in_every_round_it_is_the_weighted_sum() -> None:
    fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=6)
    solver = SGD(lr=0.2, epochs=1, batch_size=16)
    runs = [
        poise.train(fed, poise.task("mlp", hidden=8), solver, rounds=4, aggregator=a)
        for a in (WeightedSum(), LatestContribution())
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()
    soft = [
        trained(weighting=SoftMax(0.5), aggregator=a)
        for a in (WeightedSum(), LatestContribution())
    ]
    assert np.allclose(soft[0].model, soft[1].model, rtol=0, atol=1e-6)


def test_batch_norm_statistics_move_by_new_answers_alone() -> None:
    """In a window without answers the weights go on moving, and the statistics stay."""
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(60, 5)).astype(np.float32)
    fed = poise.federation((x, rng.integers(0, 2, 60)), "iid", clients=3)
    torch.manual_seed(0)
    # a bias before batch norm has no gradient, only rounding
    first = nn.Linear(5, 4, bias=False)
    module = nn.Sequential(first, nn.BatchNorm1d(4), nn.Linear(4, 2))
    run = poise.train(
        fed,
        poise.Task(module=module),
        SGD(lr=0.1, steps=2, batch_size=8),
        clock=FixedWindow(0.5, [1.0, 1.0, 1.0]),
        aggregator=LatestContribution(),
        rounds=3,
        keep="all",
    )
    names = [name for name in run.state_dict(2) if "running" in name]
    before, after = (run.state_dict(n) for n in (2, 3))
    assert names
    for name in before:
        same = np.array_equal(before[name], after[name])
        assert same == ("running" in name or "tracked" in name), name


@pytest.mark.parametrize(
    ("parts", "heard"),
    [
        ({"clock": Asynchronous(TAU)}, P),
        ({"sampler": poise.samplers.Uniform(2)}, P),
        # client 0 never answers in time, and does not count
        ({"clock": Synchronous(TAU, enough=3)}, np.array([0.0, *P[1:]]) / 0.9),
    ],
    ids=["asynchronous", "sampled", "late clients left out"],
)
def test_it_ends_at_the_optimum_without_knowing_times(
    parts: dict[str, Any], heard: np.ndarray
) -> None:
    """Quadratics of one curvature: the optimum is sum_i p_i o_i."""
    run = trained(rounds=1200, lr=0.02, evaluate_every=1200, **parts)
    assert np.linalg.norm(run.model - heard @ OPTIMA) < 0.05


def test_a_weighted_sum_of_the_arrivals_ends_elsewhere() -> None:
    """Fast clients count more: the test above could fail."""
    run = trained(
        rounds=4000,
        lr=0.02,
        evaluate_every=4000,
        clock=Asynchronous(TAU),
        aggregator=WeightedSum(),
    )
    assert np.linalg.norm(run.model - P @ OPTIMA) > 0.3


def test_explain_says_what_it_minimises_and_prints_no_bound() -> None:
    fed = poise.quadratics(OPTIMA, sizes=SIZES)

    def explained(weighting: Any, aggregator: Any) -> Any:
        return poise.explain(
            fed,
            fed.task,
            solver=SGD(lr=0.05, steps=1),
            clock=FixedWindow(0.4, TAU),
            weighting=weighting,
            aggregator=aggregator,
            rounds=50,
        )

    found = explained(Proportional(), LatestContribution())
    assert found.unbiased
    assert np.allclose(found.mean, P, rtol=1e-12)
    assert not found.terms
    assert "no bound covers answers that are used again" in str(found)
    assert not explained(Proportional(), WeightedSum()).unbiased
    twice = explained(TimeBased(), LatestContribution())
    # 3, 2, 2 and 1 windows: the weights make up for rare answers a second time
    assert np.allclose(twice.mean, P * [3, 2, 2, 1], rtol=1e-9)
    assert not twice.unbiased


def test_explain_leaves_out_clients_that_never_answer_in_time() -> None:
    """With enough=3 the slowest of four clients is never heard, as in the run above."""
    fed = poise.quadratics(OPTIMA, sizes=SIZES)
    found = poise.explain(
        fed,
        fed.task,
        solver=SGD(lr=0.05, steps=1),
        clock=Synchronous(TAU, enough=3),
        aggregator=LatestContribution(),
        rounds=50,
    )
    assert found.mean.tolist() == [0.0, *P[1:]]
    assert not found.unbiased


def test_a_stopped_run_and_other_workers_give_the_same_bits(tmp_path: Path) -> None:
    clock = FixedWindow(0.4, TAU)
    whole = trained(clock=clock)
    trained(clock=clock, rounds=5, out=tmp_path / "run").close()
    fed = poise.quadratics(OPTIMA, sizes=SIZES)
    longer = poise.resume(tmp_path / "run", fed, fed.task, rounds=12)
    assert longer.digest == whole.digest
    assert longer.model.tobytes() == whole.model.tobytes()
    three = trained(clock=clock, backend=Local(workers=3))
    assert three.digest == whole.digest
    moved = trained(clock=clock, aggregator=WeightedSum())
    assert moved.digest != whole.digest


def updates_of(
    clients: list[int], rows: list[list[float]], **columns: Any
) -> RoundUpdates:
    return RoundUpdates.of_columns(
        base_weights=np.full(len(clients), 0.5),
        importance=np.full(len(clients), 0.25),
        clients=np.array(clients),
        stack=torch.tensor(rows, dtype=torch.float64),
        trainable=2,
        **columns,
    )


def test_an_excluded_client_and_old_buffers_do_not_count() -> None:
    """Weights: p · coefficient/base = 0.25 · 1/0.5 = 0.5; the last entry is a buffer."""
    old = answers(updates_of([0, 1], [[1.0, 2.0, 9.0], [4.0, 0.0, 9.0]]), np.ones(2))
    new = updates_of([1], [[8.0, 0.0, 3.0]])
    weights = np.array([1.0])
    fresh = answers(new, weights)

    def combined(excluded: frozenset[int] = frozenset()) -> list[float]:
        found = direction(LatestContribution(), new, weights, fresh, old, excluded)
        return found.tolist()

    assert combined() == [0.5 * 1 + 0.5 * 8, 0.5 * 2, 3.0]
    assert combined(frozenset({0})) == [4.0, 0.0, 3.0]
    assert combined(frozenset({0, 1})) == [0.0, 0.0, 3.0]


def test_answers_keep_their_own_weight_when_others_are_excluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With client 0 excluded from the start, the others end at their own optimum.

    A weighted sum gives its share to the other client of a round. A kept answer must
    not get it: it would count more only because of who was drawn beside it.
    """
    monkeypatch.setattr(History, "excluded", frozenset({0}))
    run = trained(
        rounds=1200,
        lr=0.02,
        evaluate_every=1200,
        sampler=poise.samplers.Uniform(2),
        audit="quarantine",
    )
    heard = np.array([0.0, *P[1:]]) / 0.9
    assert np.linalg.norm(run.model - heard @ OPTIMA) < 0.05


def test_fed_accum_refuses_answers_that_are_used_again() -> None:
    run = trained(rounds=3, keep_updates=True)
    fed = poise.quadratics(OPTIMA, sizes=SIZES)
    with pytest.raises(IncompatibleParts, match="used updates in later rounds again"):
        poise.unlearn(run, [1], federation=fed, task=fed.task, method="fed-accum")


def test_clients_that_work_twice_in_a_round_are_refused() -> None:
    twice = poise.samplers.MD(2, independent_draws=True)
    with pytest.raises(IncompatibleParts, match="no single latest answer"):
        trained(sampler=twice)
