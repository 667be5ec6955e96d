"""Batches: every sample once per epoch, short last batches, and no influence of the cohort."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from poise.core.batches import BatchPlan
from poise.core.rng import keys


def batches_of(plan: BatchPlan, row: int) -> list[list[int]]:
    """The positions of one client's batches, without padding."""
    return [
        plan.positions[k, row, : int(plan.counts[k, row])].tolist()
        for k in range(len(plan))
        if plan.counts[k, row]
    ]


def draw(
    clients: list[int],
    sizes: list[int],
    steps: list[int],
    batch_size: int | None,
    seed: int = 0,
) -> BatchPlan:
    offsets = np.cumsum([0, *sizes])[:-1]
    return BatchPlan.draw(
        keys(seed, "work", 2, np.array(clients), 0),
        np.array(sizes),
        offsets,
        np.array(steps),
        batch_size,
    )


@given(
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 45)),
    st.integers(1, 25),
    st.integers(0, 99),
)
def test_each_epoch_takes_every_sample_once(
    size: int, batch_size: int | None, steps: int, seed: int
) -> None:
    found = batches_of(draw([4], [size], [steps], batch_size, seed), 0)
    b = min(size, batch_size or size)
    per_epoch = -(-size // b)
    assert len(found) == steps
    for epoch in range(0, steps, per_epoch):
        mine = found[epoch : epoch + per_epoch]
        taken = [p for batch in mine for p in batch]
        assert len(taken) == len(set(taken)), "a sample came twice within an epoch"
        assert set(taken) <= set(range(size))
        if len(mine) == per_epoch:
            assert sorted(taken) == list(range(size))
            assert [len(x) for x in mine] == [b] * (per_epoch - 1) + [
                size - b * (per_epoch - 1)
            ]
        else:
            assert all(len(x) == b for x in mine)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_a_clients_batches_do_not_depend_on_the_cohort(
    shapes: list[tuple[int, int]], batch_size: int | None
) -> None:
    shapes = sorted(shapes, key=lambda s: -s[1])
    sizes, steps = [s for s, _ in shapes], [k for _, k in shapes]
    together = draw(list(range(len(shapes))), sizes, steps, batch_size)
    at = 0
    for row, (size, count) in enumerate(shapes):
        alone = draw([row], [size], [count], batch_size)
        shifted = [[p + at for p in batch] for batch in batches_of(alone, 0)]
        assert batches_of(together, row) == shifted
        at += size


def test_epochs_are_shuffled_anew() -> None:
    found = batches_of(draw([0], [50], [3], None), 0)
    assert len({tuple(b) for b in found}) == 3


def test_more_steps_leave_the_first_ones_alone() -> None:
    few, many = draw([1], [23], [3], 5), draw([1], [23], [40], 5)
    assert batches_of(few, 0) == batches_of(many, 0)[:3]


def test_those_still_working_are_a_prefix_and_padding_stays_inside_the_shard() -> None:
    sizes, steps = [9, 4, 12, 2], [6, 5, 2, 1]
    plan = draw([0, 1, 2, 3], sizes, steps, 5)
    ends = np.cumsum(sizes)
    for k, batch in enumerate(plan):
        assert len(batch.counts) == sum(s > k for s in steps)
        assert (
            batch.positions.shape[1] == 5
        )  # the width does not depend on who else still works
        assert batch.full == bool((batch.counts == 5).all())
        for row, positions in enumerate(batch.positions):
            assert int(positions.min()) >= ends[row] - sizes[row]
            assert int(positions.max()) < ends[row]
            tail = positions[int(batch.counts[row]) :]
            assert bool((tail == positions[0]).all()), (
                "a short row repeats its own first sample"
            )


def test_full_batches_are_one_step_per_epoch_of_all_samples() -> None:
    plan = draw([0, 1], [3, 7], [2, 2], None)
    assert [sorted(b) for b in batches_of(plan, 1)] == [list(range(3, 10))] * 2
    assert torch.equal(plan.counts, torch.tensor([[3, 7], [3, 7]]))
