"""Distances of rows: those of SciPy, and the same bits after any number of corrections."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from poise.core import row_distances
from poise.core.errors import PoiseError
from poise.core.row_distances import RowDistances
from poise.core.similarity import MEASURES, Measure
from poise.core.types import Floats, Ints


def symmetric(clients: int, rng: np.random.Generator, scale: float = 1.0) -> Floats:
    values = scale * rng.uniform(0, np.pi, (clients, clients))
    alike: Floats = np.triu(values, 1) + np.triu(values, 1).T
    return alike


def fresh(alike: Floats, measure: Measure) -> RowDistances:
    distances = RowDistances(alike, measure)
    distances.changed(range(len(alike)))
    distances.refresh()
    return distances


def change(alike: Floats, clients: Ints, rng: np.random.Generator) -> None:
    for client in clients:
        row = rng.uniform(0, np.pi, len(alike))
        row[client] = 0.0
        alike[client, :] = row
        alike[:, client] = row


@pytest.mark.parametrize("measure", MEASURES)
def test_distances_are_those_of_scipy_within_the_grid(measure: Measure) -> None:
    rng = np.random.default_rng(1)
    alike = symmetric(120, rng)
    found = fresh(alike, measure).condensed(np.arange(120))
    # every entry moves by half a step at most, so a row by sqrt(N) / 2 steps
    step = 4.0 / RowDistances(alike, measure).largest
    assert np.abs(found - pdist(alike)).max() <= np.sqrt(120) * step
    rows = np.array([3, 17, 60, 119])
    some = fresh(alike, measure).condensed(rows)
    assert (
        some.tolist()
        == squareform(found)[np.ix_(rows, rows)][np.triu_indices(4, 1)].tolist()
    )


@pytest.mark.parametrize("measure", MEASURES)
def test_corrected_products_are_those_made_anew_to_the_bit(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_distances, "BLOCK", 7 * 60)  # several blocks of rows
    rng = np.random.default_rng(2)
    alike = symmetric(60, rng)
    distances = fresh(alike, measure)
    everyone = np.arange(60)
    for _ in range(40):
        clients = rng.choice(60, 4, replace=False)
        change(alike, clients, rng)
        distances.changed(clients.tolist())
        distances.refresh()
    assert distances.condensed(everyone).tobytes() == (
        fresh(alike, measure).condensed(everyone).tobytes()
    )


@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_another_bound_makes_all_products_anew(factor: float) -> None:
    rng = np.random.default_rng(3)
    alike = symmetric(30, rng)
    distances = fresh(alike, "L2")
    alike *= factor
    distances.changed([0])  # every row changed, but the new bound is enough to see it
    distances.refresh()
    assert distances.condensed(np.arange(30)) == pytest.approx(pdist(alike), rel=1e-5)


@pytest.mark.parametrize("clients", [2, 3, 40, 300])
def test_products_of_the_largest_rows_stay_exact(clients: int) -> None:
    largest = RowDistances(np.zeros((clients, clients)), "arccos").largest
    assert clients * largest**2 < 2**52
    assert largest <= 2**24  # exact in the single precision of the grid
    alike = np.full((clients, clients), np.pi)
    np.fill_diagonal(alike, 0.0)
    exact = np.sqrt(2.0) * np.pi  # rows differ in two entries
    assert fresh(alike, "arccos").condensed(np.arange(clients)) == pytest.approx(
        np.full(clients * (clients - 1) // 2, exact), rel=1e-14
    )


def test_equal_rows_have_distance_zero() -> None:
    alike = np.array([[0.0, 0.0, 1.3], [0.0, 0.0, 1.3], [1.3, 1.3, 0.0]])
    found = fresh(alike, "L1").condensed(np.arange(3))
    assert found[0] == 0.0
    assert found[1] == found[2] > 0


def test_no_work_yet_is_distance_zero() -> None:
    for measure in MEASURES:
        nobody = RowDistances(np.zeros((4, 4)), measure)
        assert nobody.condensed(np.arange(4)).tolist() == [0.0] * 6
        assert fresh(np.zeros((4, 4)), measure).condensed(np.arange(4)).max() == 0.0


def test_the_tree_is_that_of_exact_distances() -> None:
    """400 clients with updates in 12 noisy directions: every merge is the same."""
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(12, 50))
    updates = centres[rng.integers(0, 12, 400)] + 0.5 * rng.normal(size=(400, 50))
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    alike = np.arccos(np.clip(unit @ unit.T, -1, 1))
    alike = (alike + alike.T) / 2
    np.fill_diagonal(alike, 0.0)
    found = linkage(fresh(alike, "arccos").condensed(np.arange(400)), "ward")
    exact = linkage(pdist(alike), "ward")
    assert np.array_equal(found[:, [0, 1, 3]], exact[:, [0, 1, 3]])


def test_infinite_similarities_are_named() -> None:
    alike = np.array([[0.0, np.inf], [np.inf, 0.0]])
    with pytest.raises(PoiseError, match=r"an L2 distance of two updates is inf"):
        fresh(alike, "L2")
