"""The tree of histories: where a request to forget restarts from (E section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from poise.core.types import Floats, Ints

Node: TypeAlias = tuple[int, int]
"""(branch, round): the model after so many aggregations of a branch; branch 0 is the training
itself."""


def influence(psi: Floats, clients: Sequence[int] | Ints) -> Floats:
    """``Psi(n, S) = max_{i in S} Psi(n, i)``, (R + 1,); 0 for no clients (eq. 5.16)."""
    some = psi[:, list(clients)]
    return np.asarray(some.max(axis=1)) if some.shape[1] else np.zeros(len(psi))


def restart(
    psi: Sequence[Floats],
    oracle: Sequence[Node],
    clients: Sequence[int] | Ints,
    limit: float,
    forgotten: Sequence[int] = (),
) -> Node:
    """(zeta_r, T_r): the branch and the round that a request restarts from.

    ``zeta_r`` is the first branch s with a node (s, n) of the oracle where ``Psi_s(n, W_r) >
    Psi*``, else the newest branch; ``T_r = max{n : Psi_zeta(n, W_r) <= Psi*}``.

    The new node takes the place of the old one in its branch, so it also has to cover those
    forgotten before. For sensitivities that only rise it does, since it lies before a node that
    did. Where they fade, or where the old node had noise of its own (``last``), this is looked at:
    T_r is at most the old node's round, and within Psi* for everyone.

    Args:
        psi: Psi_s(n, i) of every branch s, (R_s + 1, N) each, clients numbered as in branch 0.
        oracle: O(r - 1), the nodes of the present history, in order.
        clients: W_r.
        limit: Psi*.
        forgotten: F_{r-1}.

    >>> first = np.array([[0.0, 0.0], [1.0, 0.2], [2.0, 0.4]])
    >>> restart([first], [], [0], limit=1.5), restart([first], [], [1], limit=1.5)
    ((0, 1), (0, 2))

    Source: E eq. 5.17, 5.18.
    """
    beyond = [(s, n) for s, n in oracle if influence(psi[s], clients)[n] > limit]
    branch, end = min(beyond) if beyond else (len(psi) - 1, len(psi[-1]) - 1)
    within = np.flatnonzero(influence(psi[branch], [*clients, *forgotten])[: end + 1] <= limit)
    return branch, int(within[-1])


def grown(oracle: Sequence[Node], node: Node) -> list[Node]:
    """O(r) = {(s, n) in O(r - 1) : s < zeta_r} and (zeta_r, T_r) (eq. 5.19).

    >>> grown([(0, 9), (1, 7)], (1, 4))
    [(0, 9), (1, 4)]
    """
    return [(s, n) for s, n in oracle if s < node[0]] + [node]
