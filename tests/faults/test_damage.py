"""Damaged run folders: errors name the damage, good rounds stay readable, resume repairs."""

from __future__ import annotations

import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from faults.support import call, opened, run_into, same, small
from poise.core.errors import LedgerError
from poise.results import open_run
from poise.training import resume

ROUNDS, STOPPED = 14, 9
EXPERIMENT = small(rounds=ROUNDS, keep='"all"', metrics='["client_loss", "train_loss"]')
PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("stopped"), stop_after=STOPPED)


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run, to be damaged."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def model(run: Path, n: int) -> Path:
    return run / "models" / f"{n:08d}.safetensors"


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def alter(file: Path, at: float = 0.5) -> None:
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 0x10
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def alter_header(file: Path) -> None:
    alter(file, 0.0)  # the length of the header; hashes cover tensors, not their names


HARM: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "altered": alter,
    "altered-header": alter_header,
    "empty": empty,
    "missing": Path.unlink,
}


def finish(run: Path, whole: Path) -> None:
    """Resume through the command line and compare with the run that nothing happened to."""
    outcome = call("resume", run, "--go-back", "--json")
    assert outcome.code == 0, outcome.err
    same(run, whole)


# models
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", HARM)
def test_a_harmed_newest_model_is_named_and_made_again(
    harm: str, run: Path, whole: Path
) -> None:
    HARM[harm](model(run, STOPPED))
    with opened(run) as damaged:
        with pytest.raises(LedgerError, match=rf"{STOPPED:08d}\.safetensors"):
            _ = damaged.model
        assert damaged.rounds == STOPPED
        assert np.isfinite(damaged.metric("accuracy")).all()
        assert damaged.models(STOPPED - 1).ndim == 1
    finish(run, whole)
    with opened(run) as repaired:
        events = [
            what
            for (what,) in repaired._ledger.database.execute(
                "SELECT what FROM events ORDER BY id"
            )
        ]
    assert any(
        f"went back to round {STOPPED - 1}" in what
        and f"{STOPPED:08d}.safetensors" in what
        for what in events
    )


def test_several_harmed_models_take_the_run_further_back(
    run: Path, whole: Path
) -> None:
    truncate(model(run, STOPPED))
    alter(model(run, STOPPED - 1))
    model(run, STOPPED - 2).unlink()
    finish(run, whole)


def test_without_any_good_model_the_run_begins_again(run: Path, whole: Path) -> None:
    for n in range(STOPPED + 1):
        truncate(model(run, n))
    finish(run, whole)


def test_a_harmed_model_of_an_earlier_round_is_named_when_it_is_asked_for(
    run: Path,
) -> None:
    alter(model(run, 3))
    with opened(run) as damaged:
        with pytest.raises(
            LedgerError, match=r"00000003\.safetensors is not what the ledger recorded"
        ):
            damaged.models(3)
        with pytest.raises(LedgerError, match=r"00000003\.safetensors"):
            damaged.verify()


def test_an_altered_initial_model_is_noticed(run: Path) -> None:
    alter(model(run, 0))
    with (
        opened(run) as damaged,
        pytest.raises(LedgerError, match=r"00000000\.safetensors"),
    ):
        damaged.models(0)


# the database
# ---------------------------------------------------------------------------------------


def pages(run: Path) -> int:
    return (run / "ledger.sqlite").stat().st_size // PAGE


def scramble(run: Path, page: int) -> None:
    """Random bytes over one page (counted from 0, the header)."""
    with open(run / "ledger.sqlite", "r+b") as file:
        file.seek(page * PAGE)
        file.write(random.Random(page).randbytes(PAGE))


@pytest.mark.thorough
def test_any_page_of_the_database_may_be_lost(tmp_path: Path) -> None:
    """Page by page: reading names the file or keeps to the rounds before the damage; resume ends
    bit-identical."""
    text = small(rounds=42, keep='"all"')
    whole, stopped = (
        run_into(text, tmp_path / "whole"),
        run_into(text, tmp_path / "stopped", stop_after=40),
    )
    with opened(stopped) as good:
        accuracy = good.metric("accuracy")
    kept = []
    for page in range(pages(stopped)):
        run = Path(shutil.copytree(stopped, tmp_path / f"page-{page}"))
        scramble(run, page)
        said = ""
        try:
            with opened(run) as damaged:
                kept.append(damaged.rounds)
                said = damaged.damage
                if damaged.rounds:
                    assert np.array_equal(
                        damaged.metric("accuracy"), accuracy[: damaged.rounds]
                    ), page
        except LedgerError as error:
            said = str(error)
        assert said or kept[-1] == 40, page
        assert (
            "round" in said
            or not said
            or (str(run / "ledger.sqlite") in said and "poise resume" in said)
        ), page
        finish(run, whole)
    assert len(set(kept)) > 3, "some pages hold some of the rounds"


def test_a_lost_header_page_is_named_and_the_run_begins_again(
    run: Path, whole: Path
) -> None:
    scramble(run, 0)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite: file is not a database"):
        open_run(run)
    finish(run, whole)
    assert (run / "ledger.damaged-1.sqlite").exists(), "nothing is thrown away"


def test_a_truncated_database_is_repaired(run: Path, whole: Path) -> None:
    truncate(run / "ledger.sqlite")
    finish(run, whole)


def test_an_empty_database_is_repaired(run: Path, whole: Path) -> None:
    empty(run / "ledger.sqlite")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        open_run(run)
    finish(run, whole)


def test_a_missing_database_is_made_again(run: Path, whole: Path) -> None:
    (run / "ledger.sqlite").unlink()
    finish(run, whole)


def test_a_folder_damaged_twice_keeps_both_databases(run: Path, whole: Path) -> None:
    for _ in range(2):
        scramble(run, 0)
        finish(run, whole)
    assert sorted(p.stem for p in run.glob("ledger.damaged*.sqlite")) == [
        "ledger.damaged-1",
        "ledger.damaged-2",
    ]


def test_a_flipped_bit_in_a_stored_number_is_noticed_by_the_chain(
    run: Path, whole: Path
) -> None:
    """SQLite has no checksum of a page: the digests must see what it does not."""
    with opened(run) as good:
        value = good.metric("loss")[5]
    file = run / "ledger.sqlite"
    content = file.read_bytes()
    stored = struct.pack(">d", value)
    assert content.count(stored) == 1
    file.write_bytes(content.replace(stored, stored[:-1] + bytes([stored[-1] ^ 1])))
    with opened(run) as damaged:
        assert damaged.rounds == STOPPED, "SQLite itself sees nothing wrong"
        assert damaged.damage == "round 5 is not as it was recorded"
        with pytest.raises(
            LedgerError, match=r"ledger\.sqlite: round 5 is not as it was recorded"
        ):
            damaged.verify()
        assert np.isfinite(damaged.metric("loss")[:5]).all()
    finish(run, whole)


ALTERED = {
    "contribution": "UPDATE contributions SET coefficient = coefficient * 1.0000001 WHERE n = 4 "
    "AND row = 0",
    "who": "UPDATE contributions SET client = client + 1 WHERE n = 4 AND row = 0",
    "metric": "UPDATE metrics SET value = 1.0 WHERE n = 4 AND name = 'accuracy'",
    "per-client": "UPDATE metrics SET per_client = zeroblob(80) WHERE n = 4 AND name = "
    "'client_loss'",
    "cut-per-client": "UPDATE metrics SET per_client = x'00ff' WHERE n = 4 AND name = "
    "'client_loss'",
    "time": "UPDATE rounds SET time = 99 WHERE n = 4",
    "text-for-a-number": "UPDATE rounds SET time = 'soon' WHERE n = 4",
    "in_flight": "UPDATE rounds SET in_flight = '[[9.0, 1, 0, 0.5]]' WHERE n = 4",
    "no-json": "UPDATE rounds SET in_flight = '{' WHERE n = 4",
    "model-hash": "UPDATE rounds SET model = replace(model, substr(model, 1, 1), 'x') WHERE n = 4",
    "digest": "UPDATE rounds SET digest = replace(digest, substr(digest, 1, 1), 'x') WHERE n = 4",
    "gone-contribution": "DELETE FROM contributions WHERE n = 4 AND row = 1",
    "gone-metric": "DELETE FROM metrics WHERE n = 4 AND name = 'loss'",
    "gone-round": "DELETE FROM rounds WHERE n = 4",
    "added-refusal": "INSERT INTO refusals VALUES (4, 0, 1, 4, 'never happened', 0)",
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_record_is_named_and_made_again(
    how: str, run: Path, whole: Path
) -> None:
    with sqlite3.connect(run / "ledger.sqlite") as database:
        assert database.execute(ALTERED[how]).rowcount == 1
    database.close()
    with opened(run) as damaged:
        assert damaged.damage.startswith("round 4 "), damaged.damage
        with pytest.raises(LedgerError, match="round 4"):
            damaged.verify()
    finish(run, whole)


def test_a_round_cut_off_the_end_is_made_again(run: Path, whole: Path) -> None:
    """Deleting the newest rows leaves a ledger that is whole, only shorter."""
    with sqlite3.connect(run / "ledger.sqlite") as database:
        for table in (
            "rounds",
            "contributions",
            "metrics",
            "refusals",
            "measurements",
            "timings",
        ):
            database.execute(f"DELETE FROM {table} WHERE n >= 6")
    database.close()
    with opened(run) as shorter:
        assert (shorter.rounds, shorter.damage) == (6, "")
    finish(run, whole)


def test_leftovers_of_a_round_that_was_never_recorded_do_not_stop_a_resume(
    run: Path, whole: Path
) -> None:
    with sqlite3.connect(run / "ledger.sqlite") as database:
        database.execute(
            "INSERT INTO metrics VALUES (?, 'accuracy', 0.5, NULL)", (STOPPED,)
        )
    database.close()
    model(run, STOPPED + 1).write_bytes(b"half of a mod")
    (run / "models" / f"{STOPPED + 1:08d}.part").write_bytes(b"half")
    finish(run, whole)


# the experiment file
# --------------------------------------------------------------------------------


def test_a_missing_experiment_file_is_taken_from_the_ledger(
    run: Path, whole: Path
) -> None:
    (run / "experiment.toml").unlink()
    outcome = call("resume", run, "--json")
    assert outcome.code == 0, outcome.err
    with opened(run) as a, opened(whole) as b:
        assert a.digest == b.digest


def test_an_empty_experiment_file_counts_as_missing(run: Path, whole: Path) -> None:
    """Before poise flushed its files, a power cut could leave an empty one."""
    (run / "experiment.toml").write_bytes(b"")
    with opened(run) as stopped:
        assert "[solver]" in stopped.experiment
    outcome = call("resume", run, "--json")
    assert outcome.code == 0, outcome.err
    with opened(run) as a, opened(whole) as b:
        assert a.digest == b.digest


def test_a_changed_experiment_is_refused(run: Path) -> None:
    file = run / "experiment.toml"
    file.write_text(file.read_text().replace("lr = 0.1", "lr = 0.2"))
    outcome = call("resume", run, "--json")
    assert outcome.code == 2
    assert "[solver] differs from the start of the run" in outcome.err
    assert str(file) in outcome.err


@pytest.mark.parametrize("content", [b"[data\n", b"\xff\xfe\x00"])
def test_a_damaged_experiment_file_is_named(content: bytes, run: Path) -> None:
    (run / "experiment.toml").write_bytes(content)
    outcome = call("resume", run)
    assert outcome.code == 2
    assert str(run / "experiment.toml") in outcome.err
    assert "Traceback" not in outcome.err


def test_reading_a_damaged_run_never_changes_it(run: Path) -> None:
    scramble(run, pages(run) // 2)
    before = (run / "ledger.sqlite").read_bytes()
    with opened(run) as damaged:
        _ = damaged.rounds, damaged.damage
    assert (run / "ledger.sqlite").read_bytes() == before


def test_resume_in_python_repairs_too(run: Path, whole: Path) -> None:
    scramble(run, pages(run) - 1)
    resume(run, go_back=True).close()
    same(run, whole)
