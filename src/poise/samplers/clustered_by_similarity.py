"""One client from each of m groups whose updates look alike."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.errors import IncompatibleParts, InvalidOption, require
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.parts import part
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
    """One client from each of m distributions that keep clients with similar updates together;
    ``omega_i = count_i/m``.

    Clients are clustered by Ward's method [Ward 1963] on the rows of the similarity matrix of their
    last
    updates (zero for a client that never worked); groups are the largest subtrees that fit into one
    distribution. Unbiased, with the variance of any clustered scheme; it costs no communication,
    but the server keeps the last update of every client.

    Args:
        m: distributions, and draws per round.
        measure: ``arccos`` (angle), ``L2`` (squared distance) or ``L1``.
        independent_draws: a client drawn twice works twice, on batches of its own each time.
        ahead: cluster while clients work, so that a round never waits for it; the groups then do
            not know the updates of the round before yet.

    Source: [Fraboni 2023, §3.5, Alg. 3], with clients above 1/m handled as its last paragraph says.

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
            self.m >= 1, f"ClusteredBySimilarity: m must be at least 1, not {self.m}", where="m"
        )

    @property
    def traits(self) -> SamplerTraits:
        """Groups are made from the clients' updates."""
        return SamplerTraits(repeats_clients=self.independent_draws)

    def fit(self, setting: Setting) -> None:
        """Clients must come back, or there is nothing to compare."""
        if setting.on_demand:
            raise IncompatibleParts(
                (
                    f"ClusteredBySimilarity: {setting.clients:,} clients are made on demand; their "
                    "updates cannot be kept"
                ),
                "use ClusteredBySize(m)",
            )
        units_of(setting, self.m)

    def draw(self, setting: Setting, rng: np.random.Generator, round: int, past: History) -> Cohort:
        """One client from each distribution of the present clustering."""
        units: Ints = setting.once((self, "units"), lambda: units_of(setting, self.m))
        if past.gradients is None:
            urns = self._urns(units, np.zeros((len(units), len(units))))
        else:
            urns = past.gradients.sampling_distributions(
                lambda alike: self._urns(units, alike), self.ahead
            )
        return cohort(urns.draw(rng), self.independent_draws)

    def distributions(self, sizes: ArrayLike, gradients: ArrayLike) -> Floats:
        """r_ki for these client sizes and last updates (N, d), (m, N): rows sum to 1, column i to m
        p_i.
        """
        n = checked_sizes(np.asarray(sizes), self.m)
        return self._urns(n, self.similarity(gradients, len(n))).distributions(len(n))

    def similarity(self, gradients: ArrayLike, clients: int) -> Floats:
        """The similarity matrix of these updates, (N, N)."""
        rows = np.asarray(gradients, dtype=np.float64)
        require(
            rows.ndim == 2 and len(rows) == clients,
            f"gradients must be a table with {clients} rows",
        )
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise InvalidOption(f"the gradient of client {bad[0]} is not finite")
        seen = Gradients(clients, self.measure)
        seen.add(range(clients), torch.from_numpy(rows.copy()))
        return seen.refreshed()

    def statistics(
        self, importance: Floats, gradients: ArrayLike | None = None
    ) -> WeightStatistics:
        """The closed forms of [Fraboni 2023, App. A.1.7], for known updates; before any is known
        where none are given.
        """
        n = len(importance)
        alike = np.zeros((n, n)) if gradients is None else self.similarity(gradients, n)
        return self._urns(whole_units(importance, self.m), alike).statistics(n)

    def _urns(self, units: Ints, alike: Floats) -> SamplingDistributions:
        return distributions_by_group(units, subtrees(units, alike, self.m), self.m)


def subtrees(units: Ints, alike: Floats, m: int) -> list[Ints]:
    """Ward's tree on the rows of ``alike``, cut into the largest subtrees that fit into one urn, m
    sum n_i <= M.
    """
    room = int(units.sum())
    rest = (m * units) % room
    leaves = np.flatnonzero(rest)  # whoever fills urns alone takes no part
    if len(leaves) < 2:
        return [leaves]
    from scipy.cluster.hierarchy import linkage  # here: other samplers start without it
    from scipy.spatial.distance import pdist

    tree = linkage(pdist(alike[leaves]), "ward")
    members: list[list[int] | None] = [[int(i)] for i in leaves]
    totals = [int(rest[i]) for i in leaves]
    groups: list[Ints] = []
    for left, right in tree[:, :2].astype(np.int64):
        total = totals[left] + totals[right]
        a, b = members[left], members[right]
        if a is not None and b is not None and total <= room:
            members.append(a + b)
        else:  # the branches that still fit are as large as they can be
            groups += [np.array(branch) for branch in (a, b) if branch is not None]
            members.append(None)
        totals.append(total)
    last = members[-1]
    return groups if last is None else [np.array(last)]
