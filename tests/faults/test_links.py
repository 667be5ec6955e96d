"""Links in a run folder from elsewhere: poise writes to nothing outside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.support import call, run_into, small
from poise.core import disk
from poise.core.errors import LedgerError
from poise.ledger import lock
from poise.ledger.store import Ledger
from poise.training import resume

EXPERIMENT = small(rounds=6)
KEPT = small(rounds=6, keep='"all"')


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_into(EXPERIMENT, tmp_path / "runs", stop_after=3)


@pytest.mark.parametrize("name", ["lock", "ledger.sqlite", "ledger.sqlite-wal"])
def test_resume_refuses_a_link_in_place_of_a_file(
    name: str, run: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    outcome = call("resume", run, "--json")
    assert outcome.code == 1
    assert f"{run / name} is a link" in outcome.err
    assert outside.read_bytes() == b"mine"


def test_resume_refuses_a_lock_that_is_a_hard_link(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (run / "lock").unlink()
    (run / "lock").hardlink_to(outside)
    outcome = call("resume", run, "--json")
    assert outcome.code == 1
    assert f"{run / 'lock'} is a hard link" in outcome.err
    assert outside.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["ledger.sqlite", "evidence.jsonl"])
def test_resume_changes_no_file_that_is_a_hard_link(
    name: str, run: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.hardlink_to(run / name)
    before = outside.read_bytes()
    outcome = call("resume", run, "--json")
    assert outcome.code == 1
    assert f"{run / name} is a hard link" in outcome.err
    assert outside.read_bytes() == before


def test_resume_refuses_a_folder_of_models_that_is_a_link(
    run: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (run / "models").rename(outside)
    (run / "models").symlink_to(outside)
    (outside / "draft.part").write_bytes(b"mine")
    before = {file: file.read_bytes() for file in outside.iterdir()}
    with pytest.raises(LedgerError, match="is a link"):
        resume(run)
    assert {file: file.read_bytes() for file in outside.iterdir()} == before


def test_a_pipe_in_place_of_the_lock_is_refused_at_once(run: Path) -> None:
    (run / "lock").unlink()
    os.mkfifo(run / "lock")
    outcome = call("resume", run, "--json")
    assert outcome.code == 1
    assert str(run / "lock") in outcome.err


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_replaces_the_lock_meanwhile_is_not_followed(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appears after the check for links."""
    outside = tmp_path / "outside"
    if exists:
        outside.write_bytes(b"mine")
    monkeypatch.setattr(lock, "refuse_link", lambda path: None)
    (tmp_path / "lock").symlink_to(outside)
    with pytest.raises(LedgerError, match="lock"):
        lock.Lock(tmp_path / "lock").acquire()
    assert outside.exists() == exists
    if exists:
        assert outside.read_bytes() == b"mine"


def test_a_link_to_the_lock_of_a_living_process_is_no_lock(tmp_path: Path) -> None:
    one = lock.Lock(tmp_path / "outside")
    one.acquire()
    (tmp_path / "lock").symlink_to(tmp_path / "outside")
    assert lock.held(tmp_path / "outside")
    assert not lock.held(tmp_path / "lock")
    one.release()


@pytest.mark.parametrize("where", [".", "models"])
def test_a_folder_with_the_name_of_a_draft_is_left_alone(run: Path, where: str) -> None:
    folder = run / where / ".x.part"
    folder.mkdir()
    (run / where / ".z.part").write_bytes(b"half a file")
    resume(run).close()
    assert folder.is_dir()
    assert not (run / where / ".z.part").exists()


def test_a_link_with_the_name_of_a_file_is_replaced_and_not_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    target = tmp_path / "model"
    target.symlink_to(outside)
    (tmp_path / "model.part").symlink_to(outside)
    disk.write_files({target: b"new"})
    assert outside.read_bytes() == b"mine"
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()


def test_a_temporary_name_that_is_taken_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    monkeypatch.setattr(disk.secrets, "token_hex", lambda size: "known")
    (tmp_path / ".model.known.part").symlink_to(outside)
    with pytest.raises(FileExistsError):
        disk.write_files({tmp_path / "model": b"new"})
    assert outside.read_bytes() == b"mine"


@pytest.mark.filterwarnings("ignore:.*the run continues from round")
@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
def test_going_back_writes_through_no_link_to_nothing(
    suffix: str, tmp_path: Path
) -> None:
    run = run_into(KEPT, tmp_path / "runs", stop_after=3)
    outside = tmp_path / "outside"
    (run / f"ledger.before-1.sqlite{suffix}").symlink_to(outside)
    (run / "models" / "00000003.safetensors").unlink()
    outcome = call("resume", run, "--json")
    assert outcome.code == 0, outcome.err
    assert not os.path.lexists(outside)
    assert (run / "ledger.before-2.sqlite").is_file()


@pytest.mark.filterwarnings("ignore:.*the run continues from round")
def test_setting_a_damaged_ledger_aside_writes_through_no_link_to_nothing(
    tmp_path: Path,
) -> None:
    run = run_into(KEPT, tmp_path / "runs", stop_after=3)
    outside = tmp_path / "outside"
    (run / "ledger.damaged-1.sqlite").symlink_to(outside)
    (run / "ledger.sqlite").write_bytes(b"no database")
    outcome = call("resume", run, "--go-back", "--json")
    assert outcome.code == 0, outcome.err
    assert not os.path.lexists(outside)
    assert (run / "ledger.damaged-1.sqlite").is_symlink()
    assert (run / "ledger.damaged-2.sqlite").read_bytes() == b"no database"


def test_a_copy_of_the_ledger_needs_a_free_name(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (run / "copy.sqlite").symlink_to(outside)
    ledger = Ledger.open(run, writing=True)
    with pytest.raises(LedgerError, match="File exists"):
        ledger.copy_database(run / "copy.sqlite")
    ledger.close()
    assert not os.path.lexists(outside)
