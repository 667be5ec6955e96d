"""The restart nodes of requests, against results worked out by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from poise.unlearning.restart_tree import extended, influence, restart


def rising(*rates: float, rounds: int = 10) -> np.ndarray:
    """Psi(n, i) = rate_i n."""
    return np.arange(rounds + 1)[:, None] * np.array(rates)


def test_three_requests_branch_as_in_the_figure() -> None:
    """[Fraboni 2023, Fig. 5.1]: O(1) = {(0, T1)}, O(2) = {(0, T1), (1, T2)}, and the third goes
    back into branch 1, T3 < T2.

    Psi* = 6. Branch 0: clients 0, 1, 2 rise by 1.0, 0.5, 0.2, so forgetting 0 restarts at T1 = 6,
    where client 1 stands at 3 and client 2 at 1.2: both within. Branch 1: clients 1 and 2 rise by
    0.75 and 2.0: forgetting 1 restarts at T2 = 8, where client 2 stands at 16, beyond. Forgetting 2
    finds node (1, 8) beyond and restarts at T3 = 3.
    """
    limit, psi = 6.0, [rising(1.0, 0.5, 0.2)]
    first = restart(psi, [], [0], limit)
    nodes = extended([], first)
    assert (first, nodes) == ((0, 6), [(0, 6)])
    psi.append(rising(0.0, 0.75, 2.0))
    second = restart(psi, nodes, [1], limit)
    nodes = extended(nodes, second)
    assert (second, nodes) == ((1, 8), [(0, 6), (1, 8)])
    psi.append(rising(0.0, 0.0, 0.1))
    third = restart(psi, nodes, [2], limit)
    nodes = extended(nodes, third)
    assert (third, nodes) == ((1, 3), [(0, 6), (1, 3)])
    psi.append(rising(0.0, 0.0, 0.0))
    assert restart(psi, nodes, [], limit) == (3, 10), (
        "nobody: the newest model of the newest branch"
    )


def test_a_request_beyond_the_first_node_goes_back_to_the_training() -> None:
    psi = [rising(1.0, 2.0), rising(0.0, 0.1)]
    assert restart(psi, [(0, 6)], [1], limit=6.0) == (0, 3)
    assert extended([(0, 6), (1, 4)], (0, 3)) == [(0, 3)]


def test_where_sensitivities_fade_a_later_request_does_not_uncover_an_earlier_one() -> (
    None
):
    """Client 1 has faded by round 10, but there client 0, forgotten from round 2, is beyond; at 1
    it was too."""
    psi = [
        np.array([[0, 0], [9, 2], [3, 8], [9, 7], [9, 1]], dtype=float),
        rising(0.0, 0.1),
    ]
    assert restart(psi, [(0, 2)], [1], limit=4.0, unlearned=[0]) == (0, 0)


def test_a_node_of_last_that_is_given_up_uncovers_its_clients_in_earlier_branches() -> (
    None
):
    """Client 0 is beyond the node of branch 0: only the noise of `last` on branch 1 hid it."""
    first = np.array([[0.0, 0.0], [2.0, 0.0]])
    second = np.array([[0.0, 0.0], [2.0, 2.0]])
    third = np.zeros((2, 2))
    nodes = [(0, 1), (1, 1)]
    found = restart([first, second, third], nodes, [1], limit=1.0, unlearned=[0])
    assert found == (0, 0)
    covered = second * [1.0, 0.0]
    found = restart([first, covered, third], nodes, [1], limit=1.0, unlearned=[0])
    assert found == (2, 1), "the noise of `last` stays"


def test_the_noise_of_a_node_may_hide_less_than_the_budget() -> None:
    first = np.array([[0.0], [0.5]])
    second = np.array([[0.0], [0.5]])
    options = {"clients": [0], "limit": 1.0}
    assert restart([first, second], [(0, 1)], **options) == (1, 1)
    found = restart([first, second], [(0, 1)], **options, node_limits=[0.4])
    assert found == (0, 1)


def test_a_set_counts_as_its_worst_client() -> None:
    psi = rising(1.0, 3.0, 0.0)
    assert influence(psi, [0, 2]).tolist() == psi[:, 0].tolist()
    assert restart([psi], [], [0, 1], limit=6.0) == (0, 2)


def test_a_client_never_seen_restarts_at_the_end() -> None:
    assert restart([rising(1.0, 0.0)], [], [1], limit=0.0) == (0, 10)


@given(
    st.lists(st.floats(0.01, 5), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 5), min_size=3, max_size=3),
    st.floats(0.1, 30),
)
def test_every_node_of_the_oracle_covers_everyone_forgotten(
    a: list[float], b: list[float], limit: float
) -> None:
    """Theorem 5.3's invariant: at each node (s, n) of O(r), every forgotten client is within
    Psi*."""
    psi, nodes, gone = [rising(*a)], [], []
    for client, later in (
        (0, [0.0, *b[1:]]),
        (1, [0.0, 0.0, b[2]]),
        (2, [0.0, 0.0, 0.0]),
    ):
        nodes = extended(nodes, restart(psi, nodes, [client], limit))
        gone.append(client)
        for s, n in nodes:
            assert influence(psi[s], gone)[n] <= limit
        psi.append(rising(*later))
