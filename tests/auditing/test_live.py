"""The audit during a run: warnings, quarantine, records and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.attacks import FreeRider
from poise.auditing.live import LiveAudit
from poise.core.errors import InvalidOption
from poise.solvers import SGD

FED = poise.federation("digits", clients=10, samples=400)
OPTIONS: dict[str, Any] = {
    "solver": SGD(lr=0.1, steps=4, batch_size=8),
    "rounds": 14,
    "attacks": [FreeRider((2,), "disguised"), FreeRider((5,))],
}
TASK = poise.task("logistic")


def test_a_warning_is_an_event_and_changes_nothing() -> None:
    plain = poise.train(FED, TASK, **OPTIONS)
    with pytest.warns(UserWarning, match="audit: after round") as said:
        watched = poise.train(FED, TASK, audit="warn", **OPTIONS)
    assert watched.digest == plain.digest
    events = [e for e in watched.events if e.startswith("audit:")]
    assert {2, 5} == {int(e.partition("client ")[2].split()[0]) for e in events}
    assert events == [
        str(w.message) for w in said if str(w.message).startswith("audit:")
    ]
    assert any("empty update" in e for e in events)
    assert any("noise" in e for e in events)


def test_quarantine_gives_weight_0_and_the_others_the_rest() -> None:
    plain = poise.train(FED, TASK, **OPTIONS)
    with pytest.warns(UserWarning, match="quarantined"):
        run = poise.train(FED, TASK, audit="quarantine", **OPTIONS)
    out = [e for e in run.events if "quarantined" in e]
    since = {
        int(e.partition("client ")[2].split()[0]): int(
            e.partition("round ")[2].split(",")[0]
        )
        for e in out
    }
    assert set(since) == {2, 5}
    np.testing.assert_allclose(
        run.weights.sum(axis=1), plain.weights.sum(axis=1), rtol=1e-14
    )
    for client, n in since.items():
        assert (run.weights[: n + 1, client] > 0).all(), (
            "up to the round after which it was found"
        )
        assert (run.weights[n + 1 :, client] == 0).all()
    assert (run.weights[:, [i for i in range(10) if i not in since]] > 0).all()
    norms = run.contributions["norm"].reshape(14, 10)
    assert (norms[:, 2] > 0).all(), "it goes on sending, and what it sends is recorded"


@pytest.mark.parametrize("after", thorough_except([6], [1, 6, 11]))
@pytest.mark.filterwarnings("ignore:audit")
def test_a_quarantine_survives_a_resume(after: int, tmp_path: Path) -> None:
    whole = poise.train(
        FED, TASK, audit="quarantine", out=tmp_path / "whole", **OPTIONS
    )
    done: list[Any] = []
    stop = {"callbacks": [done.append], "stop": lambda: len(done) >= after}
    poise.train(
        FED, TASK, audit="quarantine", out=tmp_path / "part", **stop, **OPTIONS
    ).close()
    again = poise.resume(tmp_path / "part")
    assert again.digest == whole.digest
    events = [
        [e for e in run.events if e.startswith("audit:")] for run in (again, whole)
    ]
    assert events[0] == events[1], "each said once"


def test_over_many_looks_the_limits_add_up_to_the_alarm() -> None:
    k = np.arange(1, 10_000)
    assert (0.01 * 6 / (np.pi * k) ** 2).sum() < 0.01


def test_honest_clients_are_left_alone() -> None:
    options = {**OPTIONS, "attacks": [], "rounds": 30}
    run = poise.train(FED, TASK, audit="quarantine", **options)
    assert not [e for e in run.events if e.startswith("audit:")]
    assert run.digest == poise.train(FED, TASK, **options).digest


def test_first_rounds_without_answers_count_as_versions() -> None:
    run = poise.train(
        FED.without(range(4, 10)),
        TASK,
        SGD(lr=0.1, steps=2),
        sampler=poise.samplers.Uniform(1),
        clock=poise.clocks.Synchronous([9.0, 9.0, 0.5, 0.5], deadline=1.0),
        rounds=10,
        audit="warn",
    )
    assert run.contributions["round"][0] > 0, "nobody answered in the first round"


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(InvalidOption, match="known: quarantine, warn"):
        poise.train(FED, TASK, audit="arrest", **OPTIONS)  # type: ignore[arg-type]
    assert LiveAudit("warn", 10).excluded == frozenset()


@pytest.mark.filterwarnings("ignore:audit")
def test_an_experiment_file_may_ask_for_it(tmp_path: Path) -> None:
    from faults.support import call

    text = """
[data]
source = "digits"
clients = 8
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 8
[[attacks]]
name = "free-rider"
clients = [1]
[run]
rounds = 5
audit = "quarantine"
"""
    (tmp_path / "exp.toml").write_text(text)
    assert (
        call("run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json").code
        == 0
    )
    run = poise.open_run(tmp_path / "out" / "seed-0")
    assert run.weights[-1, 1] == 0
    assert 'audit = "quarantine"' in run.experiment
    assert "client 1 is quarantined" in run.events[0]
    run.close()
