"""The dp accountant against closed forms and numerical integration, and its certificates."""

from __future__ import annotations

import sys
from math import erf, exp, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise.clocks import Asynchronous
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError, PoiseError
from poise.samplers import MD, Binomial, Full, Optimal, Poisson, Uniform
from poise.servers import Add, Noisy
from poise.solvers import SGD, Scaffold
from poise.unlearning import epsilon_at, privacy_spent, verify
from poise.unlearning.privacy_accounting import (
    Release,
    by_distributions,
    epsilon_of,
    releases,
    rounded_up,
)
from poise.weightings import Clipped, Proportional, SoftMax

SIZES = np.array([1, 2, 3, 4, 5, 5])
FED = poise.quadratics(np.random.default_rng(3).normal(size=(6, 4)), sizes=SIZES)
C, SIGMA, ROUNDS = 0.4, 0.3, 9
P = SIZES / SIZES.sum()


def trained(out: Path | None = None, **options: Any) -> poise.Run:
    given = {
        "solver": SGD(lr=0.2, steps=2),
        "rounds": ROUNDS,
        "weighting": Clipped(C),
        "server": Noisy(SIGMA),
        **options,
    }
    return poise.train(FED, FED.task, out=out, **given)


def forget(run: poise.Run, clients: list[int], **options: Any) -> Any:
    given = {
        "method": "dp",
        "min_rounds": 3,
        "max_rounds": 4,
        "target": 0.0,
        "delta": 0.01,
        **options,
    }
    return poise.unlearn(run, clients, federation=FED, task=FED.task, **given)


def test_with_everyone_in_every_round_it_is_exact_gaussian_composition() -> None:
    spent = privacy_spent(trained(), range(6), delta=0.01)
    for client, epsilon in spent.items():
        assert epsilon == pytest.approx(
            epsilon_at(sqrt(ROUNDS) * P[client] * C / SIGMA, 0.01), rel=1e-12
        )


@pytest.mark.parametrize(
    ("ratio", "count"), [(0.05, 400), (0.4, 9), (1.0, 4), (2.0, 1)]
)
def test_the_accountant_of_the_package_agrees_with_the_closed_form(
    ratio: float, count: int
) -> None:
    exact = epsilon_at(sqrt(count) * ratio, 0.01)
    assert exact <= by_distributions((Release(ratio, count),), 0.01) <= exact * 1.001


def delta_of_one_draw(ratio: float, chance: float, epsilon: float) -> float:
    """The larger hockey-stick divergence between N(0, 1) and (1 - q) N(0, 1) + q N(r, 1), on a fine
    grid."""
    x = np.linspace(-12, 12 + ratio, 400_001)
    alone = np.exp(-(x**2) / 2) / sqrt(2 * np.pi)
    mixed = (1 - chance) * alone + chance * np.exp(-((x - ratio) ** 2) / 2) / sqrt(
        2 * np.pi
    )
    width = x[1] - x[0]
    return max(
        float(np.maximum(a - exp(epsilon) * b, 0).sum() * width)
        for a, b in ((mixed, alone), (alone, mixed))
    )


@pytest.mark.parametrize(("ratio", "chance"), [(1.0, 0.3), (2.0, 0.1), (0.5, 0.9)])
def test_a_sampled_round_against_the_two_densities(ratio: float, chance: float) -> None:
    epsilon = epsilon_of([Release(ratio, 1, chance)], 0.01)
    assert delta_of_one_draw(ratio, chance, epsilon) == pytest.approx(0.01, rel=1e-3)
    total_variation = chance * erf(ratio / 2 / sqrt(2))
    assert delta_of_one_draw(ratio, chance, 0.0) == pytest.approx(
        total_variation, rel=1e-5
    ), "the oracle itself"


def test_chance_helps_and_certainty_is_no_chance() -> None:
    certain, sure = (
        epsilon_of([Release(0.3, 50)], 0.01),
        epsilon_of([Release(0.3, 50, chance=1.0)], 0.01),
    )
    assert epsilon_of([Release(0.3, 50, chance=0.2)], 0.01) < certain == sure
    assert epsilon_of([], 0.01) == epsilon_of([Release(0.0, 5)], 0.01) == 0.0


@pytest.mark.parametrize("sampler", [Uniform(2), MD(3), MD(3, independent_draws=True)])
def test_draws_that_are_not_independent_count_the_rounds_that_were(
    sampler: Any,
) -> None:
    run = trained(sampler=sampler, rounds=20)
    c = run.contributions
    for client in range(6):
        squares = sum(
            c["base"][(c["round"] == n) & (c["client"] == client)].sum() ** 2
            for n in range(run.rounds)
        )
        expected = epsilon_at(sqrt(squares) * C / SIGMA, 0.01)
        assert privacy_spent(run, [client])[client] == pytest.approx(
            expected, rel=1e-10
        )


def test_independent_draws_are_amplified() -> None:
    poisson, binomial = trained(sampler=Poisson(3)), trained(sampler=Binomial(2))
    for client in range(6):
        (one,), (two,) = releases(poisson, client), releases(binomial, client)
        assert (one.count, two.count) == (ROUNDS, ROUNDS), "whether it was drawn or not"
        assert (one.chance, two.chance) == (
            pytest.approx(3 * P[client]),
            pytest.approx(2 / 6),
        )
        assert one.ratio == pytest.approx(C / 3 / SIGMA)
        assert two.ratio == pytest.approx(3 * P[client] * C / SIGMA)


def test_the_weights_of_the_ledger_bound_what_each_client_added() -> None:
    run = trained(keep_updates=True, sampler=Uniform(3))
    for n in range(run.rounds):
        rows = run.contributions[run.contributions["round"] == n]
        added = np.linalg.norm(rows["coefficient"][:, None] * run.updates(n), axis=1)
        assert (added <= rows["base"] * C * (1 + 1e-12)).all()


def test_the_certificate_promises_what_was_spent_on_everyone_forgotten_so_far(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path / "run")
    first = forget(run, [1], epsilon=10.0)
    second = forget(run, [5], epsilon=0.01)
    said = first.certificate["guarantee"]
    assert said["promised"]
    assert said["met"]
    assert said["asked epsilon"] == 10.0
    assert said["epsilon"] == rounded_up(privacy_spent(run, [1])[1])
    assert first.restart == (0, ROUNDS)
    assert first.run.models(0).tobytes() == run.model.tobytes(), "no more noise"
    said = second.certificate["guarantee"]
    assert not said["met"]
    assert said["epsilon of each"]["1"] == first.certificate["guarantee"]["epsilon"]
    later = 5 / (SIZES.sum() - 2)  # its weight when client 1 was gone
    squares = ROUNDS * P[5] ** 2 + first.run.rounds * later**2
    assert said["epsilon"] == pytest.approx(
        epsilon_at(sqrt(squares) * C / SIGMA, 0.01), rel=1e-5
    )
    shared = said["had the others shared its weight"]["epsilon"]
    assert shared == pytest.approx(
        epsilon_at(2 * sqrt(squares) * C / SIGMA, 0.01), rel=1e-5
    )
    for made in (first, second):
        assert verify(made.path)


def test_an_epsilon_that_is_spent_to_the_last_digit_is_met() -> None:
    run = trained(rounds=2)
    told = forget(run, [1]).certificate["guarantee"]
    for spent in (told, told["had the others shared its weight"]):
        asked = spent["epsilon"]
        again = forget(trained(rounds=2), [1], epsilon=asked).certificate["guarantee"]
        shared = again["had the others shared its weight"]
        assert again["met"] == (again["epsilon"] <= asked)
        assert shared["met"] == (shared["epsilon"] <= asked)
        assert asked in (again["epsilon"], shared["epsilon"])


def test_the_branch_draws_noise_of_its_own() -> None:
    """The same noise twice would cancel in the difference of two models."""
    flat = poise.quadratics(
        np.zeros((3, 500))
    )  # nothing to learn: a model is the sum of its noises
    run = poise.train(
        flat,
        flat.task,
        SGD(lr=1e-9, steps=1),
        weighting=Clipped(C),
        server=Noisy(SIGMA),
        rounds=2,
        keep="all",
    )
    done = poise.unlearn(
        run,
        [0],
        "dp",
        federation=flat,
        task=flat.task,
        min_rounds=2,
        max_rounds=2,
        target=0.0,
    ).run
    noises = np.stack([np.diff([r.models(0), r.model], axis=0)[0] for r in (run, done)])
    np.testing.assert_allclose(noises.std(axis=1), SIGMA * sqrt(2), rtol=0.2)
    assert abs(np.corrcoef(noises)[0, 1]) < 0.25


def test_sampled_training_is_certified_with_the_accountant_named(
    tmp_path: Path,
) -> None:
    done = forget(trained(tmp_path / "run", sampler=Poisson(2)), [2])
    said = done.certificate["guarantee"]
    assert "dp-accounting" in said["accountant"]
    assert "amplification" in said["sampling"]
    assert verify(done.path)
    other = forget(trained(sampler=Uniform(2)), [2]).certificate["guarantee"]
    assert "exact" in other["accountant"]
    assert "no amplification" in other["sampling"]


def test_a_missing_accountant_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_distributions.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(PoiseError, match=r"poise\[dp\]"):
        privacy_spent(trained(sampler=Poisson(2)), [0])
    assert privacy_spent(trained(), [0])[0] > 0, (
        "not needed where nothing is left to chance"
    )


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"weighting": Proportional()}, "Clipped"),
        ({"server": Add()}, "Noisy"),
        ({"server": Noisy(0.0)}, "not trained with clipping and noise"),
        ({"weighting": Clipped(float("inf"))}, "not trained with clipping and noise"),
        ({"weighting": Clipped(C, of=SoftMax(1.0))}, "SoftMax"),
    ],
)
def test_a_run_that_was_not_trained_so_is_refused(
    parts: dict[str, Any], word: str
) -> None:
    with pytest.raises(IncompatibleParts, match=word):
        forget(trained(**parts), [0], heuristic=True)


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"solver": Scaffold(lr=0.1, steps=2)}, "Scaffold"),
        ({"sampler": Optimal(3)}, "Optimal"),
        ({"clock": Asynchronous("F80")}, "Asynchronous"),
    ],
)
def test_what_gets_out_without_noise_is_no_guarantee_but_may_be_a_heuristic(
    parts: dict[str, Any], word: str
) -> None:
    run = trained(**parts)
    with pytest.raises(IncompatibleParts, match=word):
        forget(run, [0])
    done = forget(run, [0], heuristic=True)
    assert word in done.certificate["grounds"]["not proved"][0]


def test_a_ledger_with_an_update_that_was_not_clipped_is_not_believed() -> None:
    run = trained(sampler=Full())
    run.contributions["coefficient"][3] *= 1.5 * C / run.contributions["norm"][3] + 2
    with pytest.raises(LedgerError, match="was not clipped"):
        privacy_spent(run, [0])


def test_it_does_not_mix_with_other_methods() -> None:
    with pytest.raises(IncompatibleParts, match="dp"):
        forget(forget(trained(), [0]).run, [1], method="scratch")
    with pytest.raises(IncompatibleParts, match="scratch"):
        forget(forget(trained(), [0], method="scratch").run, [1])


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("chance", [0.5, 1.0])
def test_a_delta_that_is_no_chance_is_refused(delta: float, chance: float) -> None:
    with pytest.raises(InvalidOption, match="delta must be between 0 and 1"):
        epsilon_of([Release(0.1, 10, chance)], delta)


def test_releases_of_ratio_chance_or_count_zero_spend_nothing() -> None:
    nothing = [Release(0.0, 5), Release(0.5, 0), Release(0.5, 5, chance=0.0)]
    assert epsilon_of(nothing, 0.01) == 0.0
    assert epsilon_of([Release(0.7), *nothing], 0.01) == epsilon_at(0.7, 0.01)
