"""The tree of histories, and the node that a request restarts from [Fraboni 2023, §5.4]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from poise.core.types import Floats, Ints

Node: TypeAlias = tuple[int, int]
"""(branch, round): the model after that many aggregations of a branch; branch 0 is the training."""


def influence(psi: Floats, clients: Sequence[int] | Ints) -> Floats:
    """``Psi(n, S) = max_{i in S} Psi(n, i)``, (R + 1,); 0 for no clients (eq. 5.16)."""
    columns = psi[:, list(clients)]
    if columns.shape[1] == 0:
        return np.zeros(len(psi))
    return np.asarray(columns.max(axis=1))


def restart(
    psi: Sequence[Floats],
    nodes: Sequence[Node],
    clients: Sequence[int] | Ints,
    limit: float,
    unlearned: Sequence[int] = (),
    node_limits: Sequence[float] | None = None,
) -> Node:
    """(zeta_r, T_r): the branch and the round that a request restarts from.

    ``zeta_r`` is the first branch s with a node (s, n) of the history where
    ``Psi_s(n, W_r) > Psi*``, Psi* for the noise of that node, else the newest branch;
    ``T_r = max{n : Psi_zeta(n, W_r) <= Psi*}``.

    The new node replaces the old node of its branch, so it must also cover the clients
    unlearned before. It does where sensitivities only rise, because it lies before a
    node that covered them. Where sensitivities fade, or where the old node had its own
    noise (``last``), `restart` enforces it: T_r is at most the round of the old node,
    and within Psi* for all these clients. The noise of ``last`` covers its clients in
    earlier branches too: where it is given up, their nodes count as well.

    Args:
        psi: Psi_s(n, i) of every branch s, (R_s + 1, N) each, clients numbered as in
            branch 0.
        nodes: O(r - 1), the nodes of the present history, in order.
        clients: W_r.
        limit: Psi*.
        unlearned: F_{r-1}.
        node_limits: Psi* of the noise at every node, where it may be below ``limit``
            (``last``).

    >>> first = np.array([[0.0, 0.0], [1.0, 0.2], [2.0, 0.4]])
    >>> restart([first], [], [0], limit=1.5), restart([first], [], [1], limit=1.5)
    ((0, 1), (0, 2))

    Source: [Fraboni 2023, eq. 5.17, 5.18].
    """
    limits = [limit] * len(nodes) if node_limits is None else node_limits

    def beyond(columns: Sequence[int]) -> list[Node]:
        return [
            (s, n)
            for (s, n), hidden in zip(nodes, limits, strict=True)
            if influence(psi[s], columns)[n] > hidden
        ]

    everyone = [*clients, *unlearned]
    branch = len(psi) - 1
    end = len(psi[-1]) - 1
    if beyond(list(clients)):  # the nodes from here on are given up, with their noise
        branch, end = min(beyond(everyone))
    within = influence(psi[branch], everyone)[: end + 1] <= limit
    return branch, int(np.flatnonzero(within)[-1])


def extended(nodes: Sequence[Node], node: Node) -> list[Node]:
    """O(r) = {(s, n) in O(r - 1) : s < zeta_r} and (zeta_r, T_r) (eq. 5.19).

    >>> extended([(0, 9), (1, 7)], (1, 4))
    [(0, 9), (1, 4)]
    """
    return [(s, n) for s, n in nodes if s < node[0]] + [node]
