"""The contract of samplers."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from poise.core.capabilities import HasCoins, HasStatistics
from poise.core.errors import IncompatibleParts
from poise.core.history import History
from poise.core.parts import option_names, with_options
from poise.core.protocols import Sampler
from poise.core.rng import generator
from poise.core.sensitivity import SENSITIVITY
from poise.core.traits import SamplerTraits, traits_of, undeclared
from poise.core.types import LOSS_REPORTS, Cohort, Floats, Setting
from poise.testing.clauses import fits, holds, quietly, refused, setting_of

SIGMAS = 5.0
"""Half-width of the Monte-Carlo intervals in standard errors: 1 false alarm in 1.7
million per number."""


class _SamplerWithStatistics(Sampler, HasStatistics, Protocol):
    """A sampler with closed forms of the moments of its weights."""


def check_sampler(
    sampler: Sampler,
    setting: Setting | None = None,
    *,
    draws: int = 6000,
    seed: int = 0,
    symmetric: bool = True,
    replacement: bool = True,
) -> None:
    """Check the contract of samplers.

    Clauses: clients are in range; weights are finite and not negative; the same stream
    gives the same cohort; the setting is not modified. If ``statistics`` exists, mean,
    variance, covariance, variance of the sum and expected number of clients agree with
    ``draws`` simulated rounds within 5 standard errors, and permuting the clients
    permutes them. Declared traits are true (all clients are drawn with weight p_i;
    draws do not depend on the past; no client is drawn twice; clients are drawn
    independently, with the chances of ``coins``).

    Args:
        sampler: the sampler.
        setting: the federation to draw from; eight clients of unequal sizes by default.
        draws: simulated rounds.
        seed: of the simulation.
        symmetric: whether permuting the importance must permute the statistics.
        replacement: false if ``fit`` must refuse m above the number of clients.
    """
    where = setting or setting_of()
    fits(sampler, where)
    holds(
        set(sampler.needs) <= LOSS_REPORTS | {"gradients", SENSITIVITY},
        sampler,
        "says what it looks back on",
        sampler.needs,
    )
    _valid_cohorts(sampler, where, seed)
    _addressed(sampler, where, seed)
    _leaves_setting_alone(sampler, where, seed)
    _too_many(sampler, where, seed, replacement)
    _traits_hold(sampler, where, draws, seed)
    if isinstance(sampler, HasStatistics):
        _consistent_statistics(sampler, where)
        _statistics_by_simulation(sampler, where, draws, seed)
        if symmetric:
            _symmetric_statistics(sampler, where, seed)


def _valid(sampler: Sampler, setting: Setting, cohort: Cohort) -> None:
    clients = np.asarray(cohort.clients)
    weights = np.asarray(cohort.weights)
    holds(
        clients.ndim == 1 and clients.shape == weights.shape,
        sampler,
        "one weight per client",
        weights.shape,
    )
    holds(
        np.issubdtype(clients.dtype, np.integer),
        sampler,
        "clients are whole numbers",
        clients.dtype,
    )
    holds(
        ((clients >= 0) & (clients < setting.clients)).all(),
        sampler,
        "clients in range",
        clients,
    )
    holds(weights.dtype == np.float64, sampler, "weights are float64", weights.dtype)
    holds(
        np.isfinite(weights).all() and (weights >= 0).all(),
        sampler,
        "weights finite, not negative",
        weights,
    )


def _valid_cohorts(sampler: Sampler, setting: Setting, seed: int) -> None:
    for n in range(50):
        _valid(
            sampler,
            setting,
            sampler.draw(setting, generator(seed, "sampler", n), n, History()),
        )


def _addressed(sampler: Sampler, setting: Setting, seed: int) -> None:
    """Check that a draw depends on its stream alone, not on earlier draws."""
    first = [
        sampler.draw(setting, generator(seed, "sampler", n), n, History())
        for n in range(5)
    ]
    again = [
        sampler.draw(setting, generator(seed, "sampler", n), n, History())
        for n in reversed(range(5))
    ][::-1]
    for n, (a, b) in enumerate(zip(first, again, strict=True)):
        same = np.array_equal(a.clients, b.clients) and np.array_equal(
            a.weights, b.weights
        )
        holds(same, sampler, "same stream, same cohort", f"round {n}: {a} then {b}")


def _leaves_setting_alone(sampler: Sampler, setting: Setting, seed: int) -> None:
    importance = setting.importance.copy()
    sizes = setting.sizes.copy()
    cohort = sampler.draw(setting, generator(seed, "sampler", 0), 0, History())
    holds(
        not np.shares_memory(cohort.weights, setting.importance),
        sampler,
        "weights are its own array",
    )
    same = np.array_equal(importance, setting.importance) and np.array_equal(
        sizes, setting.sizes
    )
    holds(same, sampler, "the setting is not modified")


def _too_many(sampler: Sampler, setting: Setting, seed: int, replacement: bool) -> None:
    """Check that ``fit`` refuses m above the number of clients, or draws are valid."""
    if "m" not in option_names(sampler):
        return
    try:
        many = with_options(sampler, m=setting.clients + 1)
    except Exception:
        return
    if not replacement:
        with refused(many, "fit refuses m > N", IncompatibleParts):
            many.fit(setting)
        return
    try:
        many.fit(setting)
    except IncompatibleParts:
        return
    cohort = quietly(
        lambda: many.draw(setting, generator(seed, "sampler", 0), 0, History()),
        many,
        "what fits can be drawn",
    )
    _valid(many, setting, cohort)


def _consistent_statistics(sampler: HasStatistics, setting: Setting) -> None:
    s = sampler.statistics(setting.importance)
    n = setting.clients
    c = np.asarray(s.covariance)
    holds(
        s.mean.shape == s.variance.shape == (n,) and c.shape == (n, n),
        sampler,
        "statistics have N entries",
    )
    holds(
        (s.variance >= -1e-15).all(), sampler, "variances are not negative", s.variance
    )
    holds(np.allclose(c, c.T, atol=1e-14), sampler, "the covariance is symmetric")
    holds(
        np.allclose(np.diag(c), s.variance, atol=1e-14),
        sampler,
        "the covariance has the variances on its diagonal",
    )
    holds(
        np.linalg.eigvalsh(c).min() > -1e-12,
        sampler,
        "the covariance is positive semi-definite",
    )
    holds(
        np.isclose(c.sum(), s.sum_variance, atol=1e-12),
        sampler,
        "Var sum = sum of covariances",
        (c.sum(), s.sum_variance),
    )
    holds(
        np.isclose(s.sigma, s.variance.sum(), atol=1e-14),
        sampler,
        "sigma = sum of variances",
    )
    holds(
        0 < s.expected_clients <= n + 1e-12,
        sampler,
        "expected clients between 0 and N",
        s.expected_clients,
    )


def simulated_weights(
    sampler: Sampler, setting: Setting, draws: int, seed: int
) -> tuple[Floats, Floats]:
    """Simulate rounds; return weights (draws, N) and numbers of clients (draws,)."""
    omega = np.zeros((draws, setting.clients))
    distinct = np.zeros(draws)
    rng = generator(seed, "simulation")
    for n in range(draws):
        cohort = sampler.draw(setting, rng, n, History())
        np.add.at(omega[n], cohort.clients, cohort.weights)
        distinct[n] = len(np.unique(cohort.clients))
    return omega, distinct


def _statistics_by_simulation(
    sampler: _SamplerWithStatistics, setting: Setting, draws: int, seed: int
) -> None:
    s = sampler.statistics(setting.importance)
    omega, distinct = simulated_weights(sampler, setting, draws, seed)
    centred = omega - s.mean
    products = centred[:, :, None] * centred[:, None, :]
    totals = omega.sum(axis=1) - s.mean.sum()
    _agree(sampler, "E[omega]", omega, s.mean)
    _agree(sampler, "Cov(omega)", products, np.asarray(s.covariance))
    _agree(sampler, "Var(sum omega)", totals**2, np.asarray(s.sum_variance))
    _agree(sampler, "E[number of clients]", distinct, np.asarray(s.expected_clients))


def _agree(sampler: Sampler, quantity: str, values: Floats, exact: Floats) -> None:
    """Check that a simulated mean is within `SIGMAS` standard errors of the exact."""
    error = values.std(axis=0) / np.sqrt(len(values))
    gap = np.abs(values.mean(axis=0) - exact)
    worst: tuple[np.intp, ...] = ()
    if np.ndim(exact):
        worst = np.unravel_index(int(np.argmax(gap - SIGMAS * error)), np.shape(exact))
    detail = (
        f"at {tuple(map(int, worst))}: closed form {exact[worst]:.6g}, simulated "
        f"{values.mean(axis=0)[worst]:.6g}"
    )
    holds(
        (gap <= SIGMAS * error + 1e-9).all(),
        sampler,
        f"{quantity} agrees with simulation (5 sigma)",
        detail,
    )


def _symmetric_statistics(sampler: HasStatistics, setting: Setting, seed: int) -> None:
    order = generator(seed, "permutation").permutation(setting.clients)
    s = sampler.statistics(setting.importance)
    t = sampler.statistics(setting.importance[order])
    same = np.allclose(t.mean, s.mean[order]) and np.allclose(
        t.covariance, np.asarray(s.covariance)[np.ix_(order, order)]
    )
    holds(same, sampler, "permuting the importance permutes the statistics")


def _traits_hold(sampler: Sampler, setting: Setting, draws: int, seed: int) -> None:
    """Check the declared traits that draws can show."""
    traits = traits_of(sampler, SamplerTraits)
    if traits.selects_everyone:
        _selects_everyone(sampler, setting, seed)
    if not traits.data_dependent:
        _ignores_the_past(sampler, setting, seed)
    if not traits.repeats_clients and not undeclared(sampler, SamplerTraits):
        for n in range(50):
            clients = sampler.draw(
                setting, generator(seed, "sampler", n), n, History()
            ).clients
            once = len(np.unique(clients)) == len(clients)
            holds(
                once,
                sampler,
                "declared without repeats_clients: nobody is drawn twice",
                clients,
            )
    if traits.independent:
        _flips_coins(sampler, setting, draws, seed)


def _selects_everyone(sampler: Sampler, setting: Setting, seed: int) -> None:
    for n in range(5):
        cohort = sampler.draw(setting, generator(seed, "sampler", n), n, History())
        omega = np.zeros(setting.clients)
        omega[cohort.clients] = cohort.weights
        all_of_them = len(cohort.clients) == setting.clients and np.allclose(
            omega, setting.importance, rtol=1e-12
        )
        holds(
            all_of_them,
            sampler,
            "declared selects_everyone: everyone is drawn with weight p_i",
            cohort,
        )


def _ignores_the_past(sampler: Sampler, setting: Setting, seed: int) -> None:
    rng = generator(seed, "past")
    for n in range(5):
        values = dict(enumerate(rng.random(setting.clients).tolist()))
        past = History(
            lowest_loss=values,
            last_loss=values,
            last_norm=values,
            reached={"accuracy": 0.5},
        )
        new = sampler.draw(setting, generator(seed, "sampler", n), n, History())
        old = sampler.draw(setting, generator(seed, "sampler", n), n, past)
        same = np.array_equal(new.clients, old.clients) and np.array_equal(
            new.weights, old.weights
        )
        holds(
            same,
            sampler,
            "declared not data_dependent: draws do not depend on what clients sent",
            n,
        )


def _flips_coins(sampler: Sampler, setting: Setting, draws: int, seed: int) -> None:
    omega, _ = simulated_weights(sampler, setting, draws, seed)
    drawn = (omega > 0).astype(np.float64)
    chances = drawn.mean(axis=0)
    if isinstance(sampler, HasCoins):
        coins = sampler.coins(setting.importance)
        chances = coins.chances
        _agree(sampler, "the chance of each coin", drawn, chances)
        weights = np.where(drawn > 0, omega - coins.weights, 0.0)
        holds(
            np.abs(weights).max() < 1e-12,
            sampler,
            "coins: whoever is drawn counts its weight",
            coins.weights,
        )
    apart = drawn - chances
    together = apart[:, :, None] * apart[:, None, :]
    upper = np.triu_indices(setting.clients, 1)
    _agree(
        sampler,
        "declared independent: the covariance of two coins",
        together[:, *upper],
        np.zeros(len(upper[0])),
    )
