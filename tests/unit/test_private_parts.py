"""Clipping and noise: what they are against the updates themselves, and what is left of them at
their limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import poise
from poise.core.equation import combine
from poise.core.errors import InvalidOption
from poise.samplers import Uniform
from poise.servers import Add, Momentum, Noisy
from poise.solvers import SGD
from poise.weightings import Clipped, Proportional

FED = poise.quadratics(
    np.random.default_rng(5).normal(size=(6, 4)), sizes=[1, 2, 3, 4, 5, 6]
)


def trained(out: Path | None = None, rounds: int = 8, **parts: object) -> poise.Run:
    options = {
        "solver": SGD(lr=0.3, steps=2),
        "sampler": Uniform(3),
        "rounds": rounds,
        "out": out,
        "keep": "all",
    }
    return poise.train(FED, FED.task, **{**options, **parts})


def test_clipped_coefficients_are_those_of_updates_that_were_shortened() -> None:
    rng = np.random.default_rng(0)
    deltas, omega = torch.from_numpy(rng.normal(size=(7, 5))), rng.random(7)
    norms = torch.linalg.vector_norm(deltas, dim=1)
    for norm in (0.5, 2.0, 50.0):
        short = torch.stack(
            [
                d if n <= norm else d * norm / n
                for d, n in zip(deltas, norms, strict=True)
            ]
        )
        found = Clipped(norm).coefficients(omega, norms=norms.numpy())
        torch.testing.assert_close(
            combine(found, deltas), combine(omega, short), rtol=1e-14, atol=1e-14
        )


def test_no_client_moves_the_clipped_aggregate_by_more_than_its_weight_times_the_norm() -> (
    None
):
    """By trying: replace a client's update by anything, also by nothing, and see how far the sum
    moves from there."""
    rng, clip = np.random.default_rng(1), 0.7
    for _ in range(300):
        deltas, omega = (
            rng.normal(size=(4, 3)) * 10.0 ** rng.uniform(-3, 3, (4, 1)),
            rng.random(4),
        )

        def summed(rows: np.ndarray, weights: np.ndarray = omega) -> np.ndarray:
            return (
                Clipped(clip).coefficients(weights, norms=np.linalg.norm(rows, axis=1))
                @ rows
            )

        whole, silent = summed(deltas), deltas.copy()
        silent[2] = 0.0
        assert np.linalg.norm(whole - summed(silent)) <= omega[2] * clip * (1 + 1e-12)
        others = np.array([0, 1, 3])
        shared = omega[others] * omega.sum() / omega[others].sum()
        assert np.linalg.norm(whole - summed(deltas[others], shared)) <= 2 * omega[
            2
        ] * clip * (1 + 1e-12)
    long, away = (
        np.array([[1e6, 0.0]]),
        np.array([[-1e6, 0.0]]),
    )  # and both bounds are reached
    coefficient = Clipped(clip).coefficients(np.array([0.5]), norms=np.array([1e6]))[0]
    assert coefficient * 1e6 == pytest.approx(0.5 * clip)
    assert coefficient * np.linalg.norm(long - away) == pytest.approx(2 * 0.5 * clip)


def test_without_a_limit_and_without_noise_nothing_changes() -> None:
    plain = trained(weighting=Proportional(), server=Add(0.5))
    same = trained(weighting=Clipped(float("inf")), server=Noisy(0.0, of=Add(0.5)))
    for n in range(plain.rounds + 1):
        assert plain.models(n).tobytes() == same.models(n).tobytes()


def test_the_engine_hands_the_norms_over() -> None:
    run = trained(weighting=Clipped(0.2))
    c = run.contributions
    assert (c["norm"] > 0.2).any()
    np.testing.assert_allclose(
        c["coefficient"], c["base"] * np.minimum(1, 0.2 / c["norm"]), rtol=1e-12
    )


def test_the_noise_has_the_variance_it_says_and_is_independent_between_rounds_and_seeds() -> (
    None
):
    sigma, theta = 0.3, torch.zeros(40_000, dtype=torch.float64)

    def draws(server: Noisy) -> np.ndarray:
        state, at, found = server.init(theta), theta, []
        for _ in range(3):
            moved, state = server.apply(at, torch.zeros_like(at), state)
            found.append((moved - at).numpy())
            at = moved
        return np.stack(found)

    found = np.concatenate(
        [
            draws(Noisy(sigma).seeded(1)),
            draws(Noisy(sigma).seeded(2)),
            draws(Noisy(sigma, seed=1)),
        ]
    )
    error = 5 / np.sqrt(len(theta))  # five standard errors
    np.testing.assert_allclose(found.var(axis=1) / sigma**2, 1, atol=error * np.sqrt(2))
    np.testing.assert_allclose(found.mean(axis=1) / sigma, 0, atol=error)
    np.testing.assert_allclose(np.corrcoef(found), np.eye(len(found)), atol=error)


def test_noise_goes_through_the_other_server() -> None:
    """The noisy direction is what momentum remembers: the step is that of momentum on direction
    plus noise."""
    noisy, plain, theta = (
        Noisy(0.1, of=Momentum(lr=0.5)),
        Momentum(lr=0.5),
        torch.zeros(3, dtype=torch.float64),
    )
    noises = []
    state, at = Noisy(0.1).init(theta), theta
    for _ in range(4):
        moved, state = Noisy(0.1).apply(at, torch.zeros_like(at), state)
        noises.append(moved - at)
        at = moved
    left, right = (theta, noisy.init(theta)), (theta, plain.init(theta))
    for noise in noises:
        left = noisy.apply(left[0], torch.ones_like(theta), left[1])
        right = plain.apply(right[0], torch.ones_like(theta) + noise, right[1])
    torch.testing.assert_close(left[0], right[0], rtol=1e-14, atol=1e-14)


def test_a_noisy_run_that_was_stopped_goes_on_with_the_same_noise(
    tmp_path: Path,
) -> None:
    parts = {"weighting": Clipped(0.5), "server": Noisy(0.1)}
    whole, seen = trained(tmp_path / "whole", **parts), []
    trained(
        tmp_path / "part", **parts, callbacks=[seen.append], stop=lambda: len(seen) >= 3
    ).close()
    again = poise.resume(tmp_path / "part", federation=FED, task=FED.task)
    assert again.digest == whole.digest
    assert again.model.tobytes() == whole.model.tobytes()
    assert trained(seed=1, **parts).model.tobytes() != whole.model.tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clipped(0.0),
        lambda: Clipped(1.0, of=Add()),
        lambda: Noisy(-1.0),
        lambda: Noisy(1.0, of=Noisy(1.0)),
    ],
)
def test_what_makes_no_sense_is_refused(make: object) -> None:
    with pytest.raises(InvalidOption):
        make()  # type: ignore[operator]


def test_clipping_without_norms_is_refused() -> None:
    with pytest.raises(InvalidOption, match="norms"):
        Clipped(1.0).coefficients(np.ones(2))
