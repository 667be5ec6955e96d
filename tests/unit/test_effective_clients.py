"""`SoftMax(effective=…)` raises T in rounds with too few effective clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poise
from poise.analysis.explain.advice import effective_advice
from poise.core.errors import InvalidOption

LOSSES = st.lists(st.floats(0, 50), min_size=2, max_size=12)


def weights(losses: list[float], **options: float) -> np.ndarray:
    base = np.full(len(losses), 1 / len(losses))
    soft = poise.weightings.SoftMax(**options)
    return soft.coefficients(base, loss_before=np.array(losses))


def test_two_clients_by_hand():
    """0.8 · 2 effective clients: c² + (1 − c)² = 1/1.6, so c = 3/4."""
    assert np.allclose(weights([0.0, 5.0], effective=0.8), [0.25, 0.75])
    mirrored = poise.weightings.SoftMin(effective=0.8)
    found = mirrored.coefficients(np.full(2, 0.5), loss_before=np.array([0.0, 5.0]))
    assert np.allclose(found, [0.75, 0.25])


@given(LOSSES, st.floats(0.05, 1.0))
def test_no_round_has_fewer_effective_clients(losses, share):
    found = weights(losses, effective=share)
    assert 1 / (found @ found) >= share * len(losses) * (1 - 1e-9)
    assert found.sum() == pytest.approx(1)


@given(LOSSES)
def test_a_round_that_is_mild_enough_keeps_the_temperature(losses):
    plain = weights(losses, temperature=2.0)
    mild = weights(losses, temperature=2.0, effective=0.5)
    if 1 / (plain @ plain) >= 0.5 * len(losses):
        assert np.array_equal(plain, mild)
    else:
        assert 1 / (mild @ mild) == pytest.approx(0.5 * len(losses), rel=1e-6)


def test_losses_that_hardly_differ_are_not_magnified():
    """T never falls below `temperature`: noise of 1e-6 must not choose the clients."""
    found = weights([1.0, 1.0 + 1e-6], temperature=0.2, effective=0.5)
    assert np.allclose(found, 0.5, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(InvalidOption, match="SoftMax: effective"):
        poise.weightings.SoftMax(effective=share)


def test_explain_advises_the_temperature_that_leaves_half_of_the_clients():
    """Four clients with the losses 0, 0, 0, 1, by hand.

    With x = e^(1/T), 1/Σ c² = (3 + x)²/(3 + x²). T = 0.2: 1.04. It is 2 for x² − 6x = 3,
    so x = 3 + 2·√3 and T = 1/ln x = 0.536.
    """
    losses = np.array([0.0, 0.0, 0.0, 1.0])
    tilt = poise.weightings.SoftMax(0.2).traits.tilt
    (advice,) = effective_advice(np.full(4, 0.25), tilt, losses)
    assert "0.2 leaves 1 of 4 effective clients" in advice
    assert "0.536 leaves half" in advice
    mild = poise.weightings.SoftMax(0.6).traits.tilt
    assert not list(effective_advice(np.full(4, 0.25), mild, losses))
    reversed_losses = poise.weightings.SoftMin(0.2).traits.tilt
    assert list(effective_advice(np.full(4, 0.25), reversed_losses, 1 - losses)) == [
        advice
    ]


def test_explain_says_so_for_a_run():
    quad = poise.quadratics([[0.0], [0.0], [0.0], [4.0]])
    solver = poise.solvers.SGD(lr=0.1, steps=1)
    text = str(
        poise.explain(
            quad,
            quad.task,
            solver=solver,
            weighting=poise.weightings.SoftMax(0.01),
            rounds=3,
        )
    )
    assert "effective clients (1/Σ c²) at these losses" in text
