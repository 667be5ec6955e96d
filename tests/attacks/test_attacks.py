"""Attacks against hand computation, and what free-riders do to a federation whose answer is
known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import poise
from parameters import thorough_except
from poise.attacks import FreeRider, Mimic, Scaled, StaleReplay
from poise.clocks import Asynchronous, Buffered, Synchronous
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.round_updates import RoundUpdates
from poise.core.types import AttackerView
from poise.engine.attacks import attacked
from poise.samplers import Uniform
from poise.solvers import SGD, Scaffold

OPTIMA = np.random.default_rng(0).standard_normal((8, 50))
QUAD = poise.quadratics(OPTIMA, curvature=np.linspace(0.5, 2.0, 8))
SOLVER = SGD(lr=0.1, steps=3)


def seen(
    received: torch.Tensor,
    version: int,
    kept: dict[str, torch.Tensor] | None = None,
    **more: Any,
) -> AttackerView:
    return AttackerView(3, version, 0, received, len(received), kept or {}, **more)


def test_a_disguised_free_rider_by_hand() -> None:
    """Round 0: 1e-3. Then sigma = std(theta^1 - theta^0), and phi(t) = scale sigma t^-gamma on the
    same stream."""
    attack = FreeRider(clients=(3,), kind="disguised", gamma=0.5, scale=3.0)
    d = 200_000
    first, second = torch.zeros(d), torch.linspace(-1, 2, d)
    zero = attack.answer(seen(first, 0), seed=5)
    one = attack.answer(seen(second, 1, dict(zero.keep)), seed=5)
    four = attack.answer(seen(torch.ones(d), 4, dict(one.keep)), seed=5)
    sigma = float(np.linspace(-1, 2, d).std())
    for sent, scale in ((zero, 1e-3), (one, 3 * sigma), (four, 3 * sigma / 2)):
        deviation = float(sent.update.double().std())
        assert abs(deviation / scale - 1) < 3.29 / np.sqrt(
            2 * d
        )  # 99.9 % interval of a standard deviation
        assert abs(float(sent.update.double().mean())) < 3.29 * scale / np.sqrt(d)
    assert set(one.keep) == {"sigma"}, "the first model is let go when sigma is known"
    assert not torch.equal(
        one.update / one.update.norm(), four.update / four.update.norm()
    )


def test_sigma_by_the_mean_and_given() -> None:
    first, second = torch.zeros(1000), torch.linspace(-1, 2, 1000)
    for sigma, wanted in (("estimate-mean", float(second.abs().mean())), (0.25, 0.25)):
        attack = FreeRider(clients=(3,), kind="disguised", sigma=sigma, gamma=0.0)
        keep = dict(attack.answer(seen(first, 0), 0).keep)
        unit = (
            FreeRider(clients=(3,), kind="disguised", sigma=1.0, gamma=0.0)
            .answer(seen(second, 1), 0)
            .update
        )
        assert torch.allclose(
            attack.answer(seen(second, 1, keep), 0).update, wanted * unit, rtol=1e-6
        )


def test_replay_mimic_and_scaled_by_hand() -> None:
    last, now = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0, 3.5])
    replay = StaleReplay(clients=(3,), scale=2.0).answer(
        seen(now, 7, {"last": last}), 0
    )
    assert replay.update.tolist() == [2.0, -4.0, 1.0]
    assert torch.equal(replay.keep["last"], now)
    assert torch.allclose(
        Mimic(clients=(3,), noise=0.0).answer(seen(now, 7, {"last": last}), 0).update,
        now - last,
    )
    d = 100_000
    step = torch.linspace(0, 1, d)
    around = (
        Mimic(clients=(3,), noise=0.5)
        .answer(seen(step, 7, {"last": torch.zeros(d)}), 0)
        .update
        - step
    )
    assert float(around.norm() / step.norm()) == pytest.approx(
        0.5, abs=0.5 * 3.29 / np.sqrt(2 * d)
    )
    assert Scaled(clients=(3,), fraction=0.25).answer(
        seen(now, 0, work=last), 0
    ).update.tolist() == [0.25, 0.5, 0.75]


def test_buffers_are_not_touched() -> None:
    attack = FreeRider(clients=(3,), kind="disguised", sigma=1.0)
    update = attack.answer(AttackerView(3, 2, 0, torch.ones(10), 6), 0).update
    assert (update[:6] != 0).all()
    assert (update[6:] == 0).all()


@given(
    st.sets(st.integers(0, 7), min_size=1, max_size=7),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_honest_rows_are_untouched(bad: set[int], which: int, seed: int) -> None:
    clients = tuple(sorted(bad))
    attack = [
        FreeRider(clients),
        FreeRider(clients, "disguised"),
        Mimic(clients),
        Scaled(clients),
    ][which]
    source = torch.Generator().manual_seed(seed)
    deltas, models = (
        torch.randn(8, 5, generator=source),
        {0: torch.randn(5, generator=source)},
    )
    norms, losses = np.ones(8), np.arange(8.0)
    given_ = RoundUpdates.of_columns(
        np.ones(8) / 8,
        stack=deltas,
        norms=norms,
        loss_before=losses,
        loss_after=losses,
        models=models,
    )
    sent, _ = attacked(given_, [attack], seed, {})
    good = [i for i in range(8) if i not in bad]
    assert torch.equal(sent.stack[good], deltas[good])
    assert sent.loss_before is not None
    assert np.array_equal(sent.loss_before[good], losses[good])
    if not attack.works:
        assert (sent.loss_before[list(clients)] == 1.0).all(), (
            "who has no data knows no loss"
        )


def test_an_attack_can_only_see_what_is_its_own() -> None:
    """By construction: these are all fields of what it is handed, each of its own clients but
    ``honest``."""
    types = {f.name: str(f.type) for f in dataclasses.fields(AttackerView)}
    assert types == {
        "client": "int",
        "version": "int",
        "occurrence": "int",
        "received": "Vector",
        "trainable": "int",
        "kept": "Mapping[str, Vector]",
        "work": "Vector | None",
        "accomplices": "tuple[AttackerView, ...]",
        "honest": "Stack | None",
    }


def test_no_data_reaches_a_free_rider() -> None:
    """Its answers are the same whatever it owns: with other data, the run is the same bit for
    bit."""
    other = OPTIMA.copy()
    other[[2, 5]] = 1e6
    curvature = np.linspace(0.5, 2.0, 8)
    curvature[[2, 5]] = 0.01
    runs = [
        poise.train(q, q.task, SOLVER, rounds=6, attacks=[a((2,)), b((5,))])
        for q in (QUAD, poise.quadratics(other, curvature=curvature))
        for a, b in [(lambda c: FreeRider(c, "disguised"), Mimic)]
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


def test_with_plain_free_riders_the_federation_converges_to_the_fair_model() -> None:
    """Where the fair clients alone end: sum a_i b_i / sum a_i of what three steps make of each
    client (fixed point)."""
    riders = (1, 4, 6, 7)
    fair = [i for i in range(8) if i not in riders]
    run = poise.train(
        QUAD,
        QUAD.task,
        SOLVER,
        rounds=600,
        attacks=[FreeRider(riders)],
        evaluate_every=600,
    )
    pull = 1 - (1 - 0.1 * QUAD.curvature[fair]) ** 3
    wanted = (pull[:, None] * OPTIMA[fair]).sum(axis=0) / pull.sum()
    np.testing.assert_allclose(run.model, wanted, rtol=0, atol=1e-12)


def test_disguised_free_riders_leave_the_expectation_where_it_was() -> None:
    """gamma = 1, 16 seeds: the mean over seeds of each coordinate lies in its interval around the
    fair model."""
    fair, seeds = list(range(6)), 16
    pull = 1 - (1 - 0.1 * QUAD.curvature[fair]) ** 3
    wanted = (pull[:, None] * OPTIMA[fair]).sum(axis=0) / pull.sum()
    attack = FreeRider((6, 7), "disguised", gamma=1.0)
    found = np.array(
        [
            poise.train(
                QUAD,
                QUAD.task,
                SOLVER,
                rounds=100,
                attacks=[attack],
                seed=s,
                evaluate_every=100,
            ).model
            - wanted
            for s in range(seeds)
        ]
    )
    assert abs(found.mean() / (found.std() / np.sqrt(found.size))) < 3.29, "99.9 %"
    z = found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(seeds))
    each = 0.0005 / found.shape[1]
    assert np.abs(z).max() < stats.t.isf(each, seeds - 1), (
        "99.9 % for all coordinates together"
    )


@pytest.mark.parametrize(
    "attack",
    [
        FreeRider((1, 4), "disguised"),
        FreeRider((1,), "disguised", sigma="estimate-mean"),
        StaleReplay((1, 4)),
        Mimic((1, 4)),
        Scaled((1, 4)),
    ],
    ids=lambda a: type(a).__name__,
)
@pytest.mark.parametrize("after", thorough_except([3], [1, 3, 8]))
def test_a_stopped_run_goes_on_with_what_its_cheats_knew(
    attack: Any, after: int, tmp_path: Path
) -> None:
    fed = poise.federation("digits", clients=8, samples=200)
    options: dict[str, Any] = {
        "solver": SGD(lr=0.1, steps=2, batch_size=8),
        "sampler": Uniform(m=4),
        "rounds": 12,
    }
    options["attacks"] = [attack]
    task = poise.task("logistic")
    whole = poise.train(fed, task, out=tmp_path / "whole", **options)
    done: list[Any] = []
    poise.train(
        fed,
        task,
        out=tmp_path / "part",
        callbacks=[done.append],
        stop=lambda: len(done) >= after,
        **options,
    ).close()
    again = poise.resume(tmp_path / "part")
    assert again.digest == whole.digest
    assert again.model.tobytes() == whole.model.tobytes()


@pytest.mark.parametrize(
    "clock",
    [Synchronous(), Asynchronous("F80"), Buffered(c=3, durations="F80")],
    ids=repr,
)
@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(SGD(lr=0.1, steps=2, batch_size=8), marks=pytest.mark.thorough),
        Scaffold(lr=0.1, steps=2, batch_size=8),
    ],
    ids=repr,
)
def test_attacks_that_send_the_same_are_the_same_run(clock: Any, solver: Any) -> None:
    """Whether clients work in vain or nobody works for them: none of the work is nothing, a replay
    is a quiet mimic."""
    fed = poise.federation("digits", clients=8, samples=200)
    for one, other in (
        (FreeRider((1, 4)), Scaled((1, 4), 0.0)),
        (StaleReplay((2,)), Mimic((2,), noise=0.0)),
    ):
        runs = [
            poise.train(
                fed, poise.task("logistic"), solver, clock=clock, rounds=9, attacks=[a]
            )
            for a in (one, other)
        ]
        assert runs[0].model.tobytes() == runs[1].model.tobytes()
        for name in ("client", "version", "norm", "samples", "steps", "coefficient"):
            assert np.array_equal(
                runs[0].contributions[name], runs[1].contributions[name]
            )


def test_a_client_remembers_only_rounds_it_took_part_in() -> None:
    """Under partial participation a replayed step spans the rounds since the client was asked
    last."""
    models: dict[int, np.ndarray] = {}
    run = poise.train(
        QUAD,
        QUAD.task,
        SOLVER,
        sampler=Uniform(m=3),
        rounds=20,
        attacks=[StaleReplay((2,))],
        keep="all",
        seed=4,
    )
    mine = [int(c["round"]) for c in run.contributions if c["client"] == 2]
    assert len(mine) >= 3
    assert max(np.diff(mine)) > 1
    models = {n: run.models(n) for n in range(21)}
    norms = [float(c["norm"]) for c in run.contributions if c["client"] == 2]
    for before, now, norm in zip(mine[:-1], mine[1:], norms[1:], strict=True):
        assert norm == pytest.approx(
            np.linalg.norm(models[now] - models[before]), rel=1e-12
        )


def test_declared_sizes_are_the_mean_of_the_fair_clients() -> None:
    alone = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, seed=3)
    fed = poise.federation(
        "digits", "dirichlet", clients=5, alpha=0.5, seed=3, free_riders=4
    )
    assert fed.sizes[:5].tolist() == alone.sizes.tolist()
    assert (fed.sizes[5:] == round(alone.sizes.mean())).all()
    assert all(np.array_equal(fed.client(i)[0], alone.client(i)[0]) for i in range(5))
    assert fed.spec is not None
    assert poise.federation(**fed.spec).digest() == fed.digest()
    assert "free_riders" not in (alone.spec or {})


def test_mistakes_are_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="different client numbers"):
        FreeRider(clients=(1, 1))
    with pytest.raises(InvalidOption, match="gamma"):
        FreeRider(clients=(1,), gamma=-1.0)
    with pytest.raises(IncompatibleParts, match="there is no client 8"):
        poise.train(QUAD, QUAD.task, SOLVER, rounds=1, attacks=[FreeRider((8,))])


def test_attacks_in_an_experiment_file(tmp_path: Path) -> None:
    from faults.support import call

    text = """
[data]
source = "digits"
clients = 6
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 8
[[attacks]]
name = "free-rider"
clients = [1]
[[attacks]]
name = "mimic"
clients = [4]
noise = 0.3
[run]
rounds = 3
"""
    (tmp_path / "exp.toml").write_text(text)
    assert (
        call("run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json").code
        == 0
    )
    run = poise.open_run(tmp_path / "out" / "seed-0")
    norms = run.contributions["norm"].reshape(3, 6)
    assert (norms[:, 1] == 0).all()
    assert (norms[:, [0, 2, 3, 4, 5]] > 0).all()
    run.close()
