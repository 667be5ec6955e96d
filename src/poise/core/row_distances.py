"""Squared distances between the rows of a similarity matrix, kept up to date exactly.

Ward's method needs the distance of every pair of rows, O(N^3) anew. When m clients
change, m rows and columns of the matrix do, and the products of rows can be corrected
in O(N^2 m). In floating point the corrected products would depend on the past. So the
matrix is put on a grid of whole numbers that are small enough for every product of two
rows to stay below 2^52: then sums are exact in any order, and products that were
corrected a thousand times equal products made anew, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isqrt

import numpy as np
import torch

from poise.core.errors import PoiseError
from poise.core.similarity import Measure
from poise.core.types import Floats, Ints

EXACT = 2**52
"""Products stay below this, so that |a|^2 + |b|^2 - 2 a.b is exact as well."""

BLOCK = 2**20
"""Entries of a block of rows of the matrix."""


@dataclass
class RowDistances:
    """The products of the rows of ``alike``, a symmetric matrix (N, N), on a grid.

    The step of the grid is ``bound / L``, where ``L`` is the largest whole number with
    ``N L^2 < 2^52`` (angles of 5,000 clients: 3e-6). ``bound`` is pi for angles, and
    otherwise the power of two above the largest similarity; where it changes, all
    products are made anew.

    >>> alike = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> distances = RowDistances(alike, "L1")
    >>> distances.changed([0, 1])
    >>> distances.refresh()
    >>> distances.condensed(np.array([0, 1])).round(6)
    array([1.414214])
    """

    alike: Floats
    measure: Measure
    bound: float = 0.0
    _stale: set[int] = field(default_factory=set)
    _products: torch.Tensor | None = field(default=None)
    # the matrix on the grid, as it was when the products were made
    _grid: torch.Tensor | None = field(default=None)

    @property
    def largest(self) -> int:
        """The largest whole number on the grid."""
        return min(2**24, isqrt((EXACT - 1) // max(1, len(self.alike))))

    def changed(self, clients: Iterable[int]) -> None:
        """Note that the similarities of these clients changed."""
        self._stale.update(clients)

    def refresh(self) -> None:
        """Bring the products up to date with ``alike``."""
        if not self._stale:
            return
        bound = self._present_bound()
        # correcting costs two products of all pairs per client, making them anew N / 2
        many = 4 * len(self._stale) > len(self.alike)
        if self._products is None or bound != self.bound or many:
            self.bound = bound
            self._make()
        else:
            self._correct(np.array(sorted(self._stale)))
        self._stale = set()

    def condensed(self, rows: Ints) -> Floats:
        """Return the distances of these rows, pair by pair as `scipy` orders them."""
        count = len(rows)
        distances = np.zeros(count * (count - 1) // 2)
        if self._products is None or not self.bound:
            return distances
        products = self._products.numpy()
        if count < len(products):
            products = products[np.ix_(rows, rows)]
        squares = products.diagonal().copy()
        start = 0
        for row in range(count - 1):
            line = distances[start : start + count - row - 1]
            np.multiply(products[row, row + 1 :], -2.0, out=line)
            line += squares[row + 1 :]
            line += squares[row]
            start += len(line)
        np.sqrt(distances, out=distances)
        distances *= self.bound / self.largest
        return distances

    def _present_bound(self) -> float:
        if self.measure == "arccos":
            return float(np.pi)
        largest = float(self.alike.max(initial=0.0))
        if not np.isfinite(largest):
            raise PoiseError(
                f"ClusteredBySimilarity: an {self.measure} distance of two updates "
                f"is {largest}",
                "use measure='arccos', or smaller steps",
            )
        return float(2.0 ** np.ceil(np.log2(largest))) if largest > 0 else 0.0

    def _make(self) -> None:
        """Make all products; a matrix of zeros needs no work."""
        clients = len(self.alike)
        self._products = torch.zeros((clients, clients), dtype=torch.float64)
        self._grid = torch.zeros((clients, clients), dtype=torch.float32)
        for rows in self._row_blocks():
            self._grid[rows] = self._on_grid(self.alike[rows])
        active = np.flatnonzero(self.alike.any(axis=1))
        self._multiply(active)

    def _correct(self, changed: Ints) -> None:
        """Replace what the changed rows and columns add to the products."""
        assert self._products is not None
        assert self._grid is not None
        index = torch.from_numpy(changed)
        before = self._grid[:, index].double()
        after = self._on_grid(self.alike[:, changed])
        self._grid[:, index] = after
        self._grid[index] = after.T
        new = torch.cat([after.double(), before], dim=1)
        old = torch.cat([after.double(), -before], dim=1)
        for rows in self._row_blocks():
            self._products[rows].addmm_(new[rows], old.T)
        self._multiply(changed)

    def _multiply(self, changed: Ints) -> None:
        """Multiply the changed rows with all rows."""
        assert self._products is not None
        assert self._grid is not None
        index = torch.from_numpy(changed)
        factors = self._grid[index].double().T
        columns = torch.empty((len(self.alike), len(changed)), dtype=torch.float64)
        for rows in self._row_blocks():
            torch.mm(self._grid[rows].double(), factors, out=columns[rows])
        self._products[:, index] = columns
        self._products[index] = columns.T

    def _on_grid(self, values: Floats) -> torch.Tensor:
        if not self.bound:
            return torch.zeros(values.shape, dtype=torch.float32)
        scaled = np.rint(values * (self.largest / self.bound))
        return torch.from_numpy(scaled.astype(np.float32))

    def _row_blocks(self) -> list[slice]:
        clients = len(self.alike)
        step = max(1, BLOCK // max(1, clients))
        return [slice(row, row + step) for row in range(0, clients, step)]
