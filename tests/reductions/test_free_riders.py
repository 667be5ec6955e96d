"""Plain free-riders are a fair run with a smaller server rate."""

from __future__ import annotations

import numpy as np
import pytest

import poise

FAIR = [[0.0, 1.0], [2.0, -1.0], [5.0, 0.5]]


def trained(optima: list[list[float]], rounds: int = 12, **parts) -> poise.Run:
    quad = poise.quadratics(
        optima, curvature=[0.5, 1.0, 2.0, *[1.0] * 30][: len(optima)]
    )
    solver = poise.solvers.SGD(lr=0.3, steps=4)
    return poise.train(quad, quad.task, solver, rounds=rounds, keep="all", **parts)


@pytest.mark.parametrize("riders", [1, 3, 27])
def test_plain_free_riders_only_slow_the_server_down(riders: int) -> None:
    """Their update is 0, so the direction is (1 − M_K/N) times that of the fair clients."""
    clients = list(range(3, 3 + riders))
    attacked = trained(
        FAIR + [[9.0, 9.0]] * riders, attacks=[poise.attacks.FreeRider(clients)]
    )
    share = riders / (3 + riders)
    fair = trained(FAIR, server=poise.servers.Add(lr=1 - share))
    for n in range(attacked.rounds + 1):
        assert np.allclose(attacked.models(n), fair.models(n), rtol=1e-12, atol=1e-14)


def test_nine_tenths_of_riders_need_more_than_ten_times_the_rounds() -> None:
    """One dimension, by hand: a round shrinks the distance by (1 − 0.1)⁵ locally.

    With rate 1 the factor per round is q = 0.9⁵ = 0.590, with rate 1/10 it is
    1 − (1 − q)/10 = 0.959. To shrink by 1,000 takes ⌈ln 1000/−ln q⌉ = 14 and 166 rounds.
    """
    factor = 0.9**5
    counts = {}
    for riders in (0, 9):
        quad = poise.quadratics([[1.0]] * (1 + riders))
        attacks = []
        if riders:
            attacks = [poise.attacks.FreeRider(list(range(1, 1 + riders)))]
        run = poise.train(
            quad,
            quad.task,
            poise.solvers.SGD(lr=0.1, steps=5),
            rounds=200,
            keep="all",
            attacks=attacks,
        )
        distances = np.array([abs(run.models(n)[0] - 1) for n in range(201)])
        counts[riders] = int(np.flatnonzero(distances <= 1e-3)[0])
    slow = 1 - (1 - factor) / 10
    by_hand = {
        k: int(np.ceil(np.log(1000) / -np.log(q))) for k, q in ((0, factor), (9, slow))
    }
    assert counts == by_hand == {0: 14, 9: 166}
