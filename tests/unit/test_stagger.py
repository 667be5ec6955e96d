"""Staggered windows: the weights of a window sum to 1, and the long run stays unbiased."""

from __future__ import annotations

import numpy as np
import pytest

import poise
from poise.core.errors import InvalidOption

TAU = [0.4, 0.4, 1.0, 1.0, 1.0, 1.0]


def trained(stagger: bool, rounds: int = 8) -> poise.Run:
    quad = poise.quadratics(np.arange(6.0).reshape(-1, 1))
    return poise.train(
        quad,
        quad.task,
        solver=poise.solvers.SGD(lr=0.1, steps=1),
        clock=poise.clocks.FixedWindow(0.5, TAU, stagger=stagger),
        weighting=poise.weightings.TimeBased(),
        rounds=rounds,
    )


def test_all_clients_of_two_windows_answer_together_without_turns():
    """By hand: 2 fast clients of weight 1/6, and 4 of weight 2/6 in every second window."""
    sums = trained(stagger=False).weights.sum(axis=1)
    assert np.allclose(sums, [1 / 3, 5 / 3] * 4)


def test_the_weights_of_a_window_sum_to_one_with_turns():
    run = trained(stagger=True)
    assert np.allclose(run.weights.sum(axis=1), [1 / 3] + [1.0] * 7)
    # windows 1 to 6 are three whole periods: every client has its importance
    assert np.allclose(run.weights[1:7].mean(axis=0), 1 / 6)


def test_a_client_starts_its_first_turn_from_the_model_of_that_window():
    run = trained(stagger=True)
    table = run.contributions
    first = {c: table[table["client"] == c][0] for c in (2, 3)}
    assert [(int(first[c]["round"]), int(first[c]["version"])) for c in (2, 3)] == [
        (1, 0),
        (2, 1),
    ]


def test_three_windows_have_three_turns():
    clock = poise.clocks.FixedWindow(1.0, [2.5] * 6, stagger=True)
    steps = [s.clients.tolist() for s in clock.timeline(aggregations=8)]
    assert steps == [[], [], [0, 3], [1, 4], [2, 5], [0, 3], [1, 4], [2, 5]]


def test_turns_change_nothing_where_every_client_needs_one_window():
    plain = poise.clocks.FixedWindow(1.0, TAU).timeline(aggregations=5)
    turns = poise.clocks.FixedWindow(1.0, TAU, stagger=True).timeline(aggregations=5)
    assert list(plain) == list(turns)


def test_explain_finds_the_staggered_clock_unbiased():
    quad = poise.quadratics(np.arange(6.0).reshape(-1, 1))
    explanation = poise.explain(
        quad,
        quad.task,
        solver=poise.solvers.SGD(lr=0.1, steps=1),
        clock=poise.clocks.FixedWindow(0.5, TAU, stagger=True),
        weighting=poise.weightings.TimeBased(),
        rounds=20,
    )
    assert explanation.unbiased


def test_random_times_have_no_turns():
    with pytest.raises(InvalidOption, match="stagger needs durations that are numbers"):
        poise.clocks.FixedWindow(0.5, poise.clocks.Exponential([1.0]), stagger=True)
