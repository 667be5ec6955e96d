"""Two writers where the lock is void: one survives, the other stops and changes nothing."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.support import Command, call, opened, run_into, same, small
from faults.test_kill import rounds_on_disk
from parameters import thorough_except
from poise.core.errors import LedgerError, RunTaken
from poise.core.types import Record
from poise.ledger import recovery, store
from poise.training import resume

ROUNDS = 24
EXPERIMENT = small(rounds=ROUNDS, keep='"all"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("whole"))


@pytest.fixture(autouse=True)
def every_round_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poise.ledger.store.GROUPED", 0.0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_into(EXPERIMENT, tmp_path, stop_after=6)


def first_time(action: Callable[[], object]) -> Callable[[Record], None]:
    """A callback that does something after the first round."""
    done = []

    def callback(record: Record) -> None:
        if not done:
            done.append(record)
            action()

    return callback


def second_writer(run: Path, rounds: int | None = None) -> None:
    """Resume a run although another process writes to it."""
    (run / "lock").unlink()
    seen: list[Record] = []
    resume(
        run,
        callbacks=[seen.append],
        stop=lambda: rounds is not None and len(seen) >= rounds,
    ).close()


@pytest.mark.parametrize("rounds", [None, 1, 5], ids=["to-the-end", "one", "some"])
def test_the_writer_whose_rounds_came_second_stops(
    rounds: int | None, run: Path, whole: Path
) -> None:
    taken = first_time(lambda: second_writer(run, rounds))
    with pytest.raises(RunTaken, match="another process has written"):
        resume(run, callbacks=[taken])
    if rounds is not None:
        resume(run).close()
    same(run, whole)
    with opened(run) as survivor:
        assert not any("failed" in event for event in survivor._ledger.events())


def test_a_writer_that_lost_the_run_changes_no_file(run: Path) -> None:
    files: dict[Path, bytes] = {}

    def take() -> None:
        second_writer(run)
        files.update({f: f.read_bytes() for f in run.rglob("*.safetensors")})
        files[run / "experiment.toml"] = (run / "experiment.toml").read_bytes()

    with pytest.raises(RunTaken):
        resume(run, callbacks=[first_time(take)])
    assert {f: f.read_bytes() for f in files} == files
    with opened(run) as survivor:
        assert survivor.rounds == ROUNDS
        assert survivor.meta["status"] == "done"


def test_a_writer_whose_database_was_replaced_stops(run: Path, tmp_path: Path) -> None:
    """Its open file is another one now, so its own records look right to it."""

    def replace() -> None:
        (run / "ledger.sqlite").rename(run / "ledger.old.sqlite")
        shutil.copy(run / "ledger.old.sqlite", run / "ledger.sqlite")

    with pytest.raises(RunTaken):
        resume(run, callbacks=[first_time(replace)])


def test_a_writer_whose_files_the_other_one_deleted_is_not_sent_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process writes between reading the records and reading their model."""
    text = EXPERIMENT.replace('"all"', '"last"')
    whole = run_into(text, tmp_path / "whole")
    run = run_into(text, tmp_path / "run", stop_after=6)
    read = recovery._last_restart

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        second_writer(run)
        return read(*arguments)

    monkeypatch.setattr(recovery, "_last_restart", late)
    with pytest.raises(RunTaken, match="since round 6"):
        resume(run)
    same(run, whole)


def test_a_writer_that_begins_second_leaves_the_experiment_of_the_first(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found an empty folder when the first one begins its run there."""
    checked = []

    def late(path: Path) -> None:
        checked.append(path)
        if len(checked) == 2:  # the last check before the second one writes
            monkeypatch.undo()
            (path / "lock").unlink()
            run_into(EXPERIMENT, tmp_path)

    monkeypatch.setattr(store, "_refuse_taken", late)
    other = EXPERIMENT.replace("lr = 0.1", "lr = 0.2")
    with pytest.raises(LedgerError, match="holds a run already"):
        run_into(other, tmp_path)
    same(tmp_path / "seed-0", whole)


PAIRS = 6
LONG = 300


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = tmp_path_factory.mktemp("long")
    return {
        keep: run_into(small(rounds=LONG, keep=f'"{keep}"'), where / keep)
        for keep in ("last", "all", "unlearnable")
    }


@pytest.mark.parametrize("number", thorough_except([0], range(PAIRS)))
def test_processes_without_a_lock_leave_one_whole_run(
    number: int, long_runs: dict[str, Path], tmp_path: Path
) -> None:
    """Real processes, rounds in groups: two, or three, begin at different rounds."""
    keep = sorted(long_runs)[number % 3]
    file = tmp_path / "exp.toml"
    file.write_text(small(rounds=LONG, keep=f'"{keep}"'))
    run = tmp_path / "out" / "seed-0"
    writers = [Command(tmp_path, "run", file, "--out", tmp_path / "out")]
    for _ in range(1 + number % 2):
        begin = random.Random(number).randrange(1, LONG // 2)
        while writers[0].alive and rounds_on_disk(run) < begin:
            time.sleep(0.001)
        (run / "lock").unlink(missing_ok=True)
        writers.append(Command(tmp_path, "resume", run))
    outcomes = [writer.wait() for writer in writers]
    assert {outcome.code for outcome in outcomes} <= {0, 1}
    assert not any("Traceback" in outcome.err for outcome in outcomes)
    assert call("resume", run, "--json").code == 0  # whichever of them survived
    same(run, long_runs[keep])
