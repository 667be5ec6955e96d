"""`ClusteredBySimilarity`: one client from each of m groups of similar updates."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.errors import IncompatibleParts, InvalidOption, require
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.parts import part
from poise.core.row_distances import RowDistances
from poise.core.sampling_distributions import (
    SamplingDistributions,
    checked_sizes,
    cohort,
    distributions_by_group,
    units_of,
    whole_units,
)
from poise.core.similarity import Measure
from poise.core.statistics import WeightStatistics
from poise.core.traits import SamplerTraits
from poise.core.types import Cohort, Floats, Ints, Setting


@part("sampler", "clustered-by-similarity")
class ClusteredBySimilarity:
    """One client from each of m distributions of similar clients; ``omega_i = count_i/m``.

    The sampler clusters the clients by Ward's method [Ward 1963] on the rows of the
    similarity matrix of their last updates (zero for a client that never worked).
    Groups are the largest subtrees that fit into one distribution. Unbiased, with the
    variance of any clustered scheme. It costs no communication, but the server keeps
    the last update of every client.

    Args:
        m: number of sampling distributions, and draws per round.
        measure: ``arccos`` (angle), ``L2`` (squared distance) or ``L1``.
        independent_draws: a client drawn twice works twice, each time on other batches.
        ahead: cluster while clients work, so that a round never waits for it; the
            groups then lack the updates of the round before.

    Source: [Fraboni 2023, §3.5, Alg. 3], with clients above 1/m handled as its last
    paragraph says.

    >>> two_directions = [[1, 0], [0, 1], [2, 0], [0, 3]]
    >>> ClusteredBySimilarity(2).distributions([1, 1, 1, 1], two_directions)
    array([[0.5, 0. , 0.5, 0. ],
           [0. , 0.5, 0. , 0.5]])
    """

    m: int
    measure: Measure = "arccos"
    independent_draws: bool = False
    ahead: bool = False

    needs = frozenset({"gradients"})

    def __post_init__(self) -> None:
        require(
            self.m >= 1,
            f"ClusteredBySimilarity: m must be at least 1, not {self.m}",
            where="m",
        )

    @property
    def traits(self) -> SamplerTraits:
        """Declare draws that depend on the clients' updates."""
        return SamplerTraits(repeats_clients=self.independent_draws)

    def fit(self, setting: Setting) -> None:
        """Refuse populations on demand, whose updates the server cannot keep."""
        if setting.on_demand:
            raise IncompatibleParts(
                (
                    f"ClusteredBySimilarity: {setting.clients:,} clients are made on demand; their "
                    "updates cannot be kept"
                ),
                "use ClusteredBySize(m)",
            )
        units_of(setting, self.m)

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: History
    ) -> Cohort:
        """Draw one client from each distribution of the present clustering."""
        units: Ints = setting.once((self, "units"), lambda: units_of(setting, self.m))
        if past.gradients is None:
            none = self._distances(None, len(units))
            sampling_distributions = self._sampling_distributions(units, none)
        else:
            sampling_distributions = past.gradients.sampling_distributions(
                lambda distances: self._sampling_distributions(units, distances),
                self.ahead,
            )
        return cohort(sampling_distributions.draw(rng), self.independent_draws)

    def distributions(self, sizes: ArrayLike, gradients: ArrayLike) -> Floats:
        """Return r_ki, (m, N), for client sizes (N,) and last updates (N, d).

        Rows sum to 1, column i sums to m p_i.
        """
        n = checked_sizes(np.asarray(sizes), self.m)
        distances = self._distances(gradients, len(n))
        return self._sampling_distributions(n, distances).distributions(len(n))

    def similarity(self, gradients: ArrayLike, clients: int) -> Floats:
        """Return the similarity matrix of these updates, (N, N)."""
        rows = np.asarray(gradients, dtype=np.float64)
        require(
            rows.ndim == 2 and len(rows) == clients,
            f"ClusteredBySimilarity: gradients must have shape ({clients}, d), not {rows.shape}",
        )
        infinite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(infinite):
            raise InvalidOption(
                f"ClusteredBySimilarity: the gradient of client {infinite[0]} is not finite"
            )
        last_updates = Gradients(clients, self.measure)
        last_updates.add(range(clients), torch.from_numpy(rows.copy()))
        return last_updates.refreshed()

    def statistics(
        self, importance: Floats, gradients: ArrayLike | None = None
    ) -> WeightStatistics:
        """Return the closed forms of [Fraboni 2023, App. A.1.7] for these last updates.

        Without ``gradients`` they hold for the first round, before any client has
        worked.
        """
        n = len(importance)
        distances = self._distances(gradients, n)
        return self._sampling_distributions(
            whole_units(importance, self.m), distances
        ).statistics(n)

    def _distances(self, gradients: ArrayLike | None, clients: int) -> RowDistances:
        """Return the distances for these last updates; None before any work."""
        if gradients is None:
            return RowDistances(np.zeros((clients, clients)), self.measure)
        distances = RowDistances(self.similarity(gradients, clients), self.measure)
        distances.changed(range(clients))
        distances.refresh()
        return distances

    def _sampling_distributions(
        self, units: Ints, distances: RowDistances
    ) -> SamplingDistributions:
        groups = subtrees(units, distances, m=self.m)
        return distributions_by_group(units, groups, m=self.m)


def subtrees(units: Ints, distances: RowDistances, m: int) -> list[Ints]:
    """Cut Ward's tree of the clients into groups that fit into one distribution.

    The groups are the largest subtrees with m sum n_i <= M.
    """
    room = int(units.sum())
    rest = (m * units) % room
    # clients that fill whole distributions alone are not clustered
    leaves = np.flatnonzero(rest)
    if len(leaves) < 2:
        return [leaves]
    # imported here: slow, and only used here
    from scipy.cluster.hierarchy import linkage

    tree = linkage(distances.condensed(leaves), "ward")
    members: list[list[int] | None] = [[int(i)] for i in leaves]
    totals = [int(rest[i]) for i in leaves]
    groups: list[Ints] = []
    for left, right in tree[:, :2].astype(np.int64):
        total = totals[left] + totals[right]
        left_members = members[left]
        right_members = members[right]
        if left_members is not None and right_members is not None and total <= room:
            members.append(left_members + right_members)
        else:  # branches that still fit cannot grow any more
            for branch in (left_members, right_members):
                if branch is not None:
                    groups.append(np.array(branch))
            members.append(None)
        totals.append(total)
    last = members[-1]
    if last is None:
        return groups
    return [np.array(last)]
