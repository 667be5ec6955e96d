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


def learning(text: str, steps: int = 10) -> str:
    """The same experiment with more data and local work: models of more than 80 %."""
    more = {
        "samples = 300": "samples = 1000",
        "test_samples = 60": "test_samples = 300",
        "steps = 2": f"steps = {steps}",
        'metrics = ["client_loss"]': 'metrics = ["client_loss", "client_accuracy"]',
    }
    for old, new in more.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def plain(folder: Path, text: str = "") -> Path:
    """Ten clients, four of them in each round, whose models are kept for requests to forget."""
    return run_into(text or provable(rounds=6, keep='"unlearnable"'), folder)


def attacked(folder: Path, text: str = "") -> Path:
    """The same with everyone in every round, three of whom only pretend."""
    text = text or small(rounds=12, keep='"unlearnable"')
    return run_into(text.replace('"uniform"\nm = 4', '"full"') + ATTACKED, folder)


def forgetful(folder: Path, text: str = "") -> Path:
    """A run that has honoured a request."""
    run = plain(folder, text)
    assert call("unlearn", run, "--clients", "1", *FAST, "--json").code == 0
    return run
