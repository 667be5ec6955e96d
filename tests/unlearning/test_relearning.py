"""Rounds to relearn, against the closed form of gradient descent on quadratics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise
from poise import solvers
from poise.core.errors import InvalidOption
from poise.unlearning import rounds_to_relearn

OPTIMA = np.array([[0.0], [8.0]])


def trained(rounds: int = 6) -> tuple[Any, Any]:
    """Two quadratics with the optima 0 and 8: every round halves the distance to 4."""
    quad = poise.quadratics(OPTIMA)
    run = poise.train(
        quad, quad.task, solvers.SGD(lr=0.5, steps=1), rounds=rounds, keep="all"
    )
    return quad, run


def loss(theta: float) -> float:
    """The loss of client 1."""
    return 0.5 * (theta - 8.0) ** 2


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_rounds_follow_the_closed_form(rounds: int) -> None:
    """From 0, the model after n rounds is 4 (1 - 2^-n)."""
    quad, run = trained()
    wanted = loss(4 * (1 - 2.0**-rounds))
    needed = rounds_to_relearn(
        run,
        np.zeros(1, np.float32),
        [1],
        level=wanted + 1e-6,
        federation=quad,
        task=quad.task,
    )
    assert needed == rounds


def test_the_default_level_is_that_of_the_training() -> None:
    quad, run = trained()
    given: dict[str, Any] = {"federation": quad, "task": quad.task}
    behind = np.array([run.model[0] - 0.5 * (4 - run.model[0])], np.float32)
    assert rounds_to_relearn(run, run, [1], **given) == 0
    assert rounds_to_relearn(run, behind, [1], **given) == 1


def test_none_if_the_rounds_do_not_suffice() -> None:
    quad, run = trained()
    needed = rounds_to_relearn(
        run,
        np.zeros(1, np.float32),
        [1],
        level=loss(4.5),
        max_rounds=7,
        federation=quad,
        task=quad.task,
    )
    assert needed is None


def test_accuracy_is_measured_on_the_named_clients_only() -> None:
    fed = poise.federation("digits", "one-class", clients=10)
    run = poise.train(
        fed, poise.task("logistic"), solvers.SGD(lr=0.5, steps=5), rounds=15
    )
    gone = poise.unlearn(
        run, [2], method="scratch", target=0.5, min_rounds=5, max_rounds=20
    )
    needed = rounds_to_relearn(run, gone.run, [2], max_rounds=60)
    assert needed is not None
    assert needed > 0
    assert rounds_to_relearn(run, gone.run, [2], level=0.0) == 0


def test_unknown_clients_are_refused() -> None:
    quad, run = trained(1)
    with pytest.raises(InvalidOption, match="there is no client 5"):
        rounds_to_relearn(run, run, [5], federation=quad, task=quad.task)
