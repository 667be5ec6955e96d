"""A similarity depends on its two vectors alone, to the bit: a resumed run computes more rows at
once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.core import similarity
from poise.core.similarity import MEASURES, Measure, to_all


@pytest.mark.parametrize("measure", MEASURES)
def test_rows_computed_together_and_one_by_one_are_the_same_bits(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        similarity, "BLOCK", 4 * 1000
    )  # several blocks of four rows, the last one shorter
    rows = torch.randn(11, 1000, generator=torch.Generator().manual_seed(0))
    rows[3] = 0.0
    norms = torch.linalg.vector_norm(rows, dim=1).double()
    together = to_all(measure, list(rows), rows, norms)
    alone = np.concatenate([to_all(measure, [row], rows, norms) for row in rows])
    assert np.array_equal(together, alone)


def test_measures_by_hand() -> None:
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]])
    norms = torch.linalg.vector_norm(rows, dim=1).double()
    assert to_all("arccos", [rows[0]], rows, norms) == pytest.approx(
        np.array([[0, np.pi / 2, np.pi]]), abs=1e-7
    )
    assert to_all("L2", [rows[0]], rows, norms).tolist() == [[0.0, 25.0, 16.0]]
    assert to_all("L1", [rows[0]], rows, norms).tolist() == [[0.0, 7.0, 4.0]]
