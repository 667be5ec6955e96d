"""The equation: linear in the weights and in the updates; statistics stay averages."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from poise.core.equation import Moving, combine, step
from poise.servers import Add

numbers = st.floats(-100, 100, allow_nan=False, width=32).map(float)
weights = hn.arrays(np.float64, 4, elements=numbers)
stacks = hn.arrays(np.float64, (4, 3), elements=numbers).map(torch.from_numpy)


@given(weights, weights, stacks, numbers)
def test_combine_is_linear_in_the_weights(
    a: np.ndarray, b: np.ndarray, deltas: torch.Tensor, k: float
) -> None:
    both = combine(a + k * b, deltas)
    assert torch.allclose(
        both, combine(a, deltas) + k * combine(b, deltas), rtol=1e-9, atol=1e-6
    )


@given(weights, stacks, stacks, numbers)
def test_combine_is_linear_in_the_updates(
    a: np.ndarray, x: torch.Tensor, y: torch.Tensor, k: float
) -> None:
    assert torch.allclose(
        combine(a, x + k * y), combine(a, x) + k * combine(a, y), rtol=1e-9, atol=1e-6
    )


@given(weights, stacks, st.permutations(range(4)))
def test_combine_does_not_depend_on_the_order_of_clients(
    a: np.ndarray, x: torch.Tensor, order: list[int]
) -> None:
    assert torch.allclose(
        combine(a[order], x[order]), combine(a, x), rtol=1e-9, atol=1e-6
    )


def test_combine_keeps_the_type_and_takes_an_empty_cohort() -> None:
    assert combine(np.ones(2), torch.ones(2, 3)).dtype == torch.float32
    assert torch.equal(combine(np.zeros(0), torch.zeros(0, 3)), torch.zeros(3))


@given(hn.arrays(np.float64, 3, elements=st.floats(0, 4)), st.floats(0.1, 3))
def test_buffers_stay_inside_the_range_they_were_averaged_from(
    omega: np.ndarray, rate: float
) -> None:
    theta = torch.tensor([0.0, 5.0, 2.0], dtype=torch.float64)
    arrived = torch.tensor(
        [[1.0, 5.5, 0.1], [2.0, 6.0, 3.0], [-1.0, 4.0, 2.5]], dtype=torch.float64
    )
    moved, _ = step(
        Moving(theta, 1, {}), combine(omega, arrived - theta), omega, Add(rate)
    )
    around = torch.cat([arrived, theta[None]])
    low, high = around[:, 1:].min(dim=0).values, around[:, 1:].max(dim=0).values
    assert bool((moved[1:] >= low - 1e-9).all())
    assert bool((moved[1:] <= high + 1e-9).all())
    assert torch.isclose(moved[0], theta[0] + rate * combine(omega, arrived - theta)[0])


def test_weights_that_sum_to_one_make_buffers_their_mean() -> None:
    theta = torch.tensor([0.0, 9.0], dtype=torch.float64)
    arrived = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    weights = np.array([0.25, 0.75])
    moved, _ = step(
        Moving(theta, 1, {}), combine(weights, arrived - theta), weights, Add()
    )
    assert torch.allclose(moved, torch.tensor([1.0, 1.75], dtype=torch.float64))


def test_step_leaves_its_arguments_alone() -> None:
    theta, direction, shift = torch.ones(3), torch.ones(3), torch.ones(2)
    step(Moving(theta, 2, {}), direction, np.ones(1), Add(), shift=shift)
    assert torch.equal(theta, torch.ones(3))
    assert torch.equal(direction, torch.ones(3))
    assert torch.equal(shift, torch.ones(2))
