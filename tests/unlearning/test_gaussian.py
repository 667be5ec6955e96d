"""The Gaussian mechanism against numerical integration, and budgets against published numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from poise.core.errors import InvalidOption
from poise.unlearning import Budget, epsilon_at, privacy_curve, sensitivity_budget


def distinguishable(r: float, epsilon: float) -> float:
    """The definition itself: the most that P(S) - e^epsilon Q(S) can be, P = N(r, 1), Q = N(0,
    1)."""

    def more(x: float) -> float:
        return max(0.0, float(norm.pdf(x - r) - np.exp(epsilon) * norm.pdf(x)))

    edge = r / 2 + epsilon / r  # where the two densities weigh the same
    return float(quad(more, edge, max(edge, r) + 12, limit=400, epsabs=1e-13)[0])


@pytest.mark.parametrize("r", [0.05, 0.5, 1.0, 2.856, 3.218, 6.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 10.0])
def test_the_privacy_curve_is_the_definition_in_one_dimension(
    r: float, epsilon: float
) -> None:
    assert privacy_curve(r, epsilon) == pytest.approx(
        distinguishable(r, epsilon), abs=1e-10
    )


def test_the_published_case() -> None:
    """epsilon = 10, delta = 0.01: the classical formula takes too little noise, the exact one does
    not."""
    with pytest.warns(UserWarning, match="gives delta = 0.0405"):
        classical = sensitivity_budget(1.0, 10, 0.01, "classical")
    assert classical == pytest.approx(3.218, abs=5e-4)
    assert privacy_curve(classical, 10) == pytest.approx(0.0406, abs=5e-5)
    assert sensitivity_budget(1.0, 10, 0.01) == pytest.approx(2.856, abs=5e-4)


def test_a_budget_warns_of_the_classical_formula_once_and_names_the_line_that_made_it() -> (
    None
):
    with pytest.warns(UserWarning, match="proved for epsilon < 1") as said:
        assert Budget(
            epsilon=10, delta=0.01, sigma=1.0, calibration="classical"
        ).limit == pytest.approx(3.218, abs=5e-4)
    assert [w.filename for w in said] == [__file__]


def test_the_classical_formula_is_silent_where_it_is_proved() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget = sensitivity_budget(2.0, 0.5, 1e-5, "classical")
    assert budget == pytest.approx(2.0 * 0.5 / np.sqrt(2 * np.log(1.25e5)))
    assert privacy_curve(budget / 2.0, 0.5) <= 1e-5


@given(st.floats(0.001, 50), st.floats(1e-9, 0.9), st.floats(0.001, 100))
def test_the_budget_is_used_up_exactly(
    epsilon: float, delta: float, sigma: float
) -> None:
    limit = sensitivity_budget(sigma, epsilon, delta)
    assert privacy_curve(limit / sigma, epsilon) == pytest.approx(delta, rel=1e-6)
    assert limit == pytest.approx(sigma * sensitivity_budget(1.0, epsilon, delta))


@given(st.floats(0.01, 20), st.floats(1e-6, 0.5))
def test_epsilon_at_undoes_the_curve(r: float, delta: float) -> None:
    epsilon = epsilon_at(r, delta)
    if epsilon == 0:
        assert privacy_curve(r, 0.0) <= delta
    else:
        assert privacy_curve(r, epsilon) == pytest.approx(delta, rel=1e-6)


def test_the_ends() -> None:
    assert privacy_curve(0.0, 1.0) == 0.0
    assert privacy_curve(np.inf, 1.0) == 1.0
    assert epsilon_at(np.inf, 0.01) == np.inf
    assert sensitivity_budget(0.0, 1.0, 0.01) == 0.0


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": np.inf}, "sigma"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 2.5}, "delta must be between 0 and 1, not 2.5"),
        ({"epsilon": "10"}, "epsilon"),
        ({"calibration": "exact"}, "calibration"),
        ({"participation": "none"}, "participation"),
        ({"strong_convexity": -0.1}, "strong_convexity"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(
    values: dict[str, object], what: str
) -> None:
    with pytest.raises(InvalidOption, match=what):
        Budget(**values)  # type: ignore[arg-type]


def test_a_table_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"did you mean 'epsilon'\?"):
        Budget.of({"epsilom": 1.0})


def test_the_budget_that_is_used_where_none_is_given() -> None:
    # the defaults that docs and the experiment files name
    usual = Budget()
    assert (usual.epsilon, usual.delta, usual.sigma) == (10.0, 0.01, 0.05)
    assert (usual.calibration, usual.participation) == ("analytic", "conservative")
    assert usual.strong_convexity is None


def test_the_curve_at_its_ends() -> None:
    assert privacy_curve(0.0, 0.0) == 0.0
    assert privacy_curve(0.0, 3.0) == 0.0
    assert privacy_curve(np.inf, 3.0) == 1.0
    for r, epsilon in ((-1e-9, 1.0), (1.0, -1e-9)):
        with pytest.raises(InvalidOption, match="must not be negative"):
            privacy_curve(r, epsilon)
