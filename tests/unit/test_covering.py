"""`Covering` visits every client in N/m rounds, and each round has the law of `Uniform`."""

from __future__ import annotations

from itertools import combinations
from math import ceil, comb

import numpy as np
import pytest

import poise
from poise.core.history import History
from poise.core.rng import generator
from poise.core.types import Record, Refusal, Setting


def asked_in_turns(setting: Setting, m: int, rounds: int, seed: int) -> list[list[int]]:
    past = History()
    cohorts = []
    for n in range(rounds):
        rng = generator(seed, "sampler", n)
        clients = poise.samplers.Covering(m).draw(setting, rng, n, past).clients
        cohorts.append(clients.tolist())
        for client in cohorts[-1]:
            past.asked[client] = past.asked.get(client, 0) + 1
    return cohorts


@pytest.mark.parametrize(("clients", "m"), [(12, 3), (10, 4), (5, 5), (7, 1)])
def test_a_run_hears_of_every_client_in_the_least_number_of_rounds(clients, m):
    quad = poise.quadratics(np.arange(clients, dtype=float).reshape(-1, 1))
    solver = poise.solvers.SGD(lr=0.1, steps=1)
    run = poise.train(
        quad,
        quad.task,
        solver=solver,
        sampler=poise.samplers.Covering(m),
        rounds=4 * ceil(clients / m),
    )
    times = (run.weights > 0).cumsum(axis=0)
    assert (times.max(axis=1) - times.min(axis=1)).max() <= 1
    assert times[ceil(clients / m) - 1].min() == 1


def test_every_cohort_is_equally_likely_in_every_round():
    """Chi-square with 10 cohorts of 5 clients; the bound is the 99.9 % quantile at 9."""
    setting = Setting(5, np.ones(5, int), np.full(5, 0.2))
    draws = 4000
    runs = [asked_in_turns(setting, 2, 4, seed) for seed in range(draws)]
    expected = draws / comb(5, 2)
    for n in range(4):
        counts = dict.fromkeys(combinations(range(5), 2), 0)
        for run in runs:
            counts[tuple(run[n])] += 1
        statistic = sum((c - expected) ** 2 / expected for c in counts.values())
        assert statistic < 27.88


def test_clients_that_are_refused_do_not_come_back_first():
    past = History()
    refusal = Refusal(client=3, version=0, reason="not finite")
    past.add(Record(0, 1.0, (), {}, 0, 0, refusals=(refusal,)))
    setting = Setting(4, np.ones(4, int), np.full(4, 0.25))
    drawn = poise.samplers.Covering(3).draw(setting, generator(0, "x"), 1, past)
    assert drawn.clients.tolist() == [0, 1, 2]


def test_explain_says_that_rounds_depend_on_each_other():
    quad = poise.quadratics(np.arange(6.0).reshape(-1, 1))
    parts = {"solver": poise.solvers.SGD(lr=0.1, steps=1), "rounds": 5}
    sampler = poise.samplers.Covering(2)
    explanation = poise.explain(quad, quad.task, sampler=sampler, **parts)
    assert explanation.unbiased
    assert "the rounds draw independently of each other" in str(explanation)
    other = poise.explain(quad, quad.task, sampler=poise.samplers.Uniform(2), **parts)
    assert "the rounds draw independently of each other" not in str(other)
