"""Several processes and one run: one writer, readers at any time, Ctrl-C after a round."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from faults.support import Command, call, opened, run_into, same, small
from poise.core.errors import LedgerError, RunLocked
from poise.ledger.lock import Lock
from poise.training import resume

ROUNDS = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(small(rounds=ROUNDS), tmp_path_factory.mktemp("whole"))


@pytest.fixture
def live(tmp_path: Path) -> Command:
    """A run that is going on, past its first rounds."""
    (tmp_path / "exp.toml").write_text(small(rounds=ROUNDS))
    command = Command(tmp_path, "run", tmp_path / "exp.toml", "--out", tmp_path / "out")
    wait_for_rounds(tmp_path / "out" / "seed-0", 3)
    return command


def wait_for_rounds(run: Path, rounds: int) -> int:
    """Read the run again and again until it has that many rounds."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with opened(run) as now:
                if now.rounds >= rounds:
                    return now.rounds
        except LedgerError:
            pass  # not begun yet
        time.sleep(0.001)
    raise AssertionError(f"{run} did not reach {rounds} rounds")


def test_a_second_writer_is_refused_with_the_first_ones_pid_and_host(
    live: Command, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "out" / "seed-0"
    os.kill(
        live.pid, signal.SIGSTOP
    )  # so that it is not over before the second one comes
    with pytest.raises(
        RunLocked, match=f"process {live.pid} on {re.escape(socket.gethostname())}"
    ):
        resume(run)
    refused = call("resume", run, "--json")
    assert refused.code == 1
    assert (
        f"process {live.pid} on {socket.gethostname()}"
        in json.loads(refused.out)["error"]
    )
    os.kill(live.pid, signal.SIGCONT)
    assert live.wait().code == 0, "the first one was not disturbed"
    same(run, whole)


def test_reading_works_while_the_run_goes_on(
    live: Command, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "out" / "seed-0"
    grown = [wait_for_rounds(run, n) for n in (10, 30, 60)]
    with opened(run) as now, opened(whole) as end:
        seen = now.rounds
        assert (
            now.metric("accuracy").tobytes() == end.metric("accuracy")[:seen].tobytes()
        )
        assert len(now.times) == len(now.weights) == seen
        assert now.damage == ""
        assert now.meta["status"] == "running"
        time.sleep(0.05)  # the run goes on; what was read stays as it was
        digest = now.digest
        assert now.rounds == seen
        assert digest == now.digest
    assert grown == sorted(grown)
    assert live.wait().code == 0
    same(run, whole)


def test_the_lock_of_a_dead_process_does_not_hold(
    tmp_path: Path, live: Command, whole: Path
) -> None:
    live.kill()
    assert str(live.pid) in (tmp_path / "out" / "seed-0" / "lock").read_text()
    assert call("resume", tmp_path / "out" / "seed-0", "--json").code == 0
    same(tmp_path / "out" / "seed-0", whole)


def test_a_lock_is_let_go_and_taken_again(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(RunLocked, match=f"process {os.getpid()} on"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_lock_without_a_readable_holder_still_holds(tmp_path: Path) -> None:
    first = Lock(tmp_path / "lock")
    first.acquire()
    (tmp_path / "lock").write_text("no json")
    with pytest.raises(RunLocked, match="another process"):
        Lock(tmp_path / "lock").acquire()
    first.release()


@pytest.mark.parametrize("quiet", [False, True], ids=["text", "json"])
def test_ctrl_c_stops_at_the_end_of_the_round(
    quiet: bool, live: Command, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "out" / "seed-0"
    os.kill(live.pid, signal.SIGINT)
    outcome = live.wait()
    assert outcome.code == 0
    assert f"continue with: poise resume {run}" in outcome.err
    assert "Traceback" not in outcome.err
    with opened(run) as stopped:
        assert 3 <= stopped.rounds < ROUNDS
        assert stopped.meta["status"] == "stopped"
        stopped.verify()
    finished = call("resume", run, *(["--json"] if quiet else []))
    assert finished.code == 0, finished.err
    same(run, whole)


def test_ctrl_c_leaves_later_seeds_alone_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(small(rounds=ROUNDS, seeds="[0, 1, 2]"))
    command = Command(
        tmp_path, "run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json"
    )
    wait_for_rounds(tmp_path / "out" / "seed-0", 3)
    os.kill(command.pid, signal.SIGINT)
    outcome = command.wait()
    assert outcome.code == 0
    (only,) = json.loads(outcome.out)["runs"]
    assert (only["seed"], only["status"]) == (0, "stopped")
    assert "seeds not started: 1,2; start them with: poise run" in outcome.err
    assert not (tmp_path / "out" / "seed-1").exists()


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    """One round that lasts long: the second Ctrl-C does not wait for its end."""
    text = small(rounds=2, metrics='["client_loss"]').replace(
        "steps = 2", "steps = 100000"
    )
    (tmp_path / "exp.toml").write_text(text)
    command = Command(
        tmp_path, "run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json"
    )
    wait_for_rounds(tmp_path / "out" / "seed-0", 0)
    for _ in range(2):
        time.sleep(0.3)
        os.kill(command.pid, signal.SIGINT)
    outcome = command.wait()
    assert outcome.code == 130, "the code of a program that Ctrl-C ended"
    assert "the run is saved" in outcome.err
    assert "Traceback" not in outcome.err
    assert "error" in json.loads(outcome.out)
