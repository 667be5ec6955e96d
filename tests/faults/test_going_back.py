"""Resuming never takes recorded rounds back silently, and keeps the ledger that had them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from faults.support import call, opened, run_into, same, small
from poise.core.errors import RoundsLost
from poise.training import resume

ROUNDS = 12
STOPPED = 9
EXPERIMENT = small(rounds=ROUNDS, keep='"all"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_into(EXPERIMENT, tmp_path, stop_after=STOPPED)


def lose(run: Path, *versions: int) -> None:
    for version in versions:
        (run / "models" / f"{version:08d}.safetensors").unlink()


def content(run: Path) -> dict[str, bytes]:
    """The records and models of a run; the lock file changes with its holder."""
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in run.rglob("*")
        if file.is_file() and file.name != "lock" and "ledger.sqlite-" not in file.name
    }


def rounds_in(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as database:
        (count,) = database.execute("SELECT count(*) FROM rounds").fetchone()
        return int(count)


def test_one_round_back_is_said_and_the_old_ledger_stays(
    run: Path, whole: Path
) -> None:
    lose(run, STOPPED)
    with pytest.warns(UserWarning, match=f"continues from round {STOPPED - 1}"):
        resume(run).close()
    assert rounds_in(run / "ledger.before-1.sqlite") == STOPPED
    same(run, whole)


def test_more_than_one_round_back_is_refused_and_changes_nothing(run: Path) -> None:
    lose(run, STOPPED, STOPPED - 1)
    before = content(run)
    with pytest.raises(RoundsLost, match=f"from round {STOPPED - 2} of {STOPPED}"):
        resume(run)
    outcome = call("resume", run)
    assert outcome.code == 1
    assert "--go-back" in outcome.err
    assert "Traceback" not in outcome.err
    assert content(run) == before


def test_go_back_allows_it_and_keeps_the_old_records(run: Path, whole: Path) -> None:
    lose(run, STOPPED, STOPPED - 1)
    outcome = call("resume", run, "--go-back", "--json")
    assert outcome.code == 0, outcome.err
    assert rounds_in(run / "ledger.before-1.sqlite") == STOPPED
    same(run, whole)


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(
    answer: bool, run: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = []

    def confirm(question: str, **options: Any) -> bool:
        questions.append(question)
        return answer

    lose(run, STOPPED, STOPPED - 1)
    monkeypatch.setattr("poise.apps.cli.run.typer.confirm", confirm)
    monkeypatch.setattr("poise.apps.cli.run.sys.stdin.isatty", lambda: True)
    outcome = call("resume", run)
    assert len(questions) == 1
    assert "Compute 2 rounds again?" in questions[0]
    if answer:
        assert outcome.code == 0, outcome.err
        same(run, whole)
    else:
        assert outcome.code == 1
        with opened(run) as stopped:
            assert stopped.rounds == STOPPED


def test_a_ledger_that_cannot_be_read_at_all_is_not_begun_anew_silently(
    run: Path,
) -> None:
    """The models say how many rounds it had."""
    for suffix in ("-wal", "-shm"):
        (run / f"ledger.sqlite{suffix}").unlink(missing_ok=True)
    (run / "ledger.sqlite").write_bytes(b"no database")
    with pytest.raises(RoundsLost, match=f"from round 0 of {STOPPED}"):
        resume(run)
    assert (run / "ledger.sqlite").read_bytes() == b"no database"
