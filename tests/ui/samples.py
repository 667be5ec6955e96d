"""Small runs that the tests of the console look at."""

from __future__ import annotations

from pathlib import Path

from faults.support import call, provable, run_into, small

FAST = ("--min-rounds", "2", "--max-rounds", "4", "--target", "2")
"""Options of a request that is honoured in moments."""

ATTACKED = """
[[attacks]]
name = "free-rider"
clients = [2, 7]

[[attacks]]
name = "stale-replay"
clients = [5]
"""


def plain(folder: Path, rounds: int = 6) -> Path:
    """Ten clients, four of them in each round, whose models are kept for requests to forget."""
    return run_into(provable(rounds=rounds, keep='"unlearnable"'), folder)


def attacked(folder: Path, rounds: int = 12) -> Path:
    """The same with everyone in every round, three of whom only pretend."""
    text = small(rounds=rounds, keep='"unlearnable"').replace(
        '"uniform"\nm = 4', '"full"'
    )
    return run_into(text + ATTACKED, folder)


def forgetful(folder: Path) -> Path:
    """A run that has honoured a request."""
    run = plain(folder)
    assert call("unlearn", run, "--clients", "1", *FAST, "--json").code == 0
    return run
