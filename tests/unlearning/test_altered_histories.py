"""No certificate rests on an altered ledger, on other data, or on the branches of another run."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import files
from poise import samplers, solvers
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError, PoiseError
from poise.ledger.limits import LimitedConnection
from poise.training import resume
from poise.unlearning import fulfilment, verify

SHORT: dict[str, Any] = {
    "sigma": 0.1,
    "target": 2.0,
    "min_rounds": 2,
    "max_rounds": 3,
    "noise": "seeded",
}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file with its content, but not the lock and SQLite's notes about readers."""
    notes = ("lock", "ledger.sqlite-shm", "ledger.sqlite-wal")
    found = files(folder).items()
    return {name: content for name, content in found if Path(name).name not in notes}


def trained(out: Path, **options: Any) -> Path:
    chosen = {
        "solver": solvers.SGD(lr=0.01, steps=2, batch_size=16),
        "sampler": samplers.Uniform(3),
        "rounds": 6,
        "keep": "all",
        **options,
    }
    fed = poise.federation("digits", "dirichlet", clients=6, alpha=0.5, samples=300)
    poise.train(fed, poise.task("logistic"), out=out, **chosen).close()
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def once(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one finished request."""
    run = Path(shutil.copytree(folder, tmp_path_factory.mktemp("once") / "run"))
    poise.unlearn(run, [1], **SHORT)
    return run


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "run"))


@pytest.fixture
def unlearned(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "run"))


# the ledger, cell by cell
# ----------------------------------------------------------------------------------------


def cells(ledger: Path) -> Iterator[tuple[str, str, str]]:
    """(table, column, condition): every column, and every row of metadata and arrays."""
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (table,) in database.execute(query).fetchall():
            columns = [
                row[1] for row in database.execute(f"PRAGMA table_info({table})")
            ]
            name = {"meta": "key", "arrays": "name"}.get(table)
            rows = ["n = 2"]
            if name is not None:
                keys = database.execute(f"SELECT {name} FROM {table}").fetchall()
                rows = [f"{name} = '{key}'" for (key,) in keys]
            for row in rows:
                for column in columns:
                    yield table, column, row


def altered(value: Any, column: str) -> Any:
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, int | float):
        return value + (50 if column in ("n", "row") else 1)
    if value is None:
        return 0.5
    return f"1{value}" if value[:1].isdigit() else f"{value}x"


def alter(ledger: Path, table: str, column: str, row: str) -> bool:
    """Change one cell; false where there is none."""
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        query = f"SELECT {column} FROM {table} WHERE {row} LIMIT 1"
        found = database.execute(query).fetchone()
        if found is None:
            return False
        key = "name" if table in ("metrics", "measurements", "arrays") else "row"
        if table in ("contributions", "metrics", "measurements"):
            row += f" AND {key} = (SELECT min({key}) FROM {table} WHERE {row})"
        update = f"UPDATE {table} SET {column} = ? WHERE {row}"
        database.execute(update, (altered(found[0], column),))
        database.commit()
    return True


HARMLESS = {
    "timings",
    "events",
    "label_counts",
    "mkl",
    "poise",
    "status",
    "keep",
    "began",
    "tensors",  # names and shapes, for exports
    "sample form",  # for predictions
}
"""What a guarantee does not depend on. The evidence still covers it, once it is certified."""

UNCOVERED = {"curvature convexity", "curvature smoothness", "curvature kind"}
"""Bounds that only reading the data again could check; certificates state them."""


def test_no_altered_cell_of_a_training_is_certified(run: Path, tmp_path: Path) -> None:
    accepted = set()
    for number, (table, column, row) in enumerate(cells(run / "ledger.sqlite")):
        copy = Path(shutil.copytree(run, tmp_path / str(number)))
        if not alter(copy / "ledger.sqlite", table, column, row):
            continue
        before = contents(copy)
        try:
            done = poise.unlearn(copy, [1], **SHORT)
            accepted |= {table} if table == "timings" else {row.split("'")[1]}
            verify(str(done.path))
        except PoiseError:
            assert contents(copy) == before, "a refused request writes nothing"
        shutil.rmtree(copy)
    assert accepted <= HARMLESS | UNCOVERED


@pytest.mark.parametrize("ledger", ["ledger.sqlite", "unlearning/001/ledger.sqlite"])
def test_no_altered_cell_of_a_certified_history_is_accepted(
    ledger: str, unlearned: Path, tmp_path: Path
) -> None:
    for number, cell in enumerate(cells(unlearned / ledger)):
        copy = Path(shutil.copytree(unlearned, tmp_path / str(number)))
        if alter(copy / ledger, *cell):
            for clients in ([2], [1]):
                with pytest.raises(PoiseError):
                    poise.unlearn(copy, clients, **SHORT)
        shutil.rmtree(copy)


def test_a_ledger_altered_during_the_request_is_not_certified(run: Path) -> None:
    def meanwhile(record: Any) -> None:
        alter(run / "ledger.sqlite", "contributions", "norm", "n = 4")

    with pytest.raises(LedgerError, match="round 4 is not as it was recorded"):
        poise.unlearn(run, [1], callbacks=[meanwhile], **SHORT)
    assert not (run / "unlearning" / "001" / "certificate.json").exists()


def test_metadata_altered_during_the_request_are_not_certified(run: Path) -> None:
    def meanwhile(record: Any) -> None:
        alter(run / "ledger.sqlite", "meta", "value", "key = 'curvature smoothness'")

    with pytest.raises(LedgerError, match="changed during the request"):
        poise.unlearn(run, [1], callbacks=[meanwhile], **SHORT)
    assert not (run / "unlearning" / "001" / "certificate.json").exists()


def test_a_branch_that_is_damaged_before_its_certificate_is_retrained(
    unlearned: Path, tmp_path: Path
) -> None:
    """Its start model stays: a new database must not name the task's own initial model."""
    place = unlearned / "unlearning" / "001"
    certificate = place / "certificate.json"
    before = json.loads(certificate.read_bytes())
    certificate.unlink()
    alter(place / "ledger.sqlite", "contributions", "norm", "n = 2")
    done = poise.unlearn(unlearned, [1], **SHORT)
    assert verify(str(done.path))
    for key in ("start", "model"):
        assert done.certificate["evidence"][key] == before["evidence"][key]


@pytest.mark.parametrize("name", ["00000000", "00000003"])
def test_a_lost_model_of_an_unfinished_branch_is_made_again(
    unlearned: Path, name: str
) -> None:
    place = unlearned / "unlearning" / "001"
    certificate = place / "certificate.json"
    before = json.loads(certificate.read_bytes())
    certificate.unlink()
    model = place / "models" / f"{name}.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x7f")
    done = poise.unlearn(unlearned, [1], **SHORT)
    assert verify(str(done.path))
    assert done.certificate["evidence"]["model"] == before["evidence"]["model"]


# the experiment and the data
# -------------------------------------------------------------------------------------


def test_an_altered_experiment_is_not_certified(run: Path) -> None:
    """A smaller learning rate in the file would pass the check of eta <= 1/L."""
    file = run / "experiment.toml"
    file.write_text(re.sub(r"lr = 0\.01", "lr = 0.001", file.read_text()))
    with pytest.raises(IncompatibleParts, match=r"\[solver\] differs"):
        poise.unlearn(run, [1], **SHORT)
    assert not (run / "unlearning").exists()


def test_a_missing_experiment_is_taken_from_the_ledger(run: Path) -> None:
    (run / "experiment.toml").unlink()
    assert verify(str(poise.unlearn(run, [1], **SHORT).path))


def test_other_data_are_refused(run: Path, tmp_path: Path) -> None:
    other = poise.federation("digits", "iid", clients=6, samples=300, seed=5)
    with pytest.raises(PoiseError, match=r"differs|another"):
        poise.unlearn(run, [1], federation=other, **SHORT)
    quadratics = [poise.quadratics(np.eye(4) * k) for k in (1.0, 2.0)]
    solver = solvers.SGD(lr=0.1, steps=1)
    out = tmp_path / "quadratics"
    task = quadratics[0].task
    poise.train(quadratics[0], task, solver=solver, rounds=3, out=out, keep="all")
    with pytest.raises(LedgerError, match="another 'federation'"):
        poise.unlearn(out, [1], federation=quadratics[1], task=task, **SHORT)
    assert poise.unlearn(out, [1], federation=quadratics[0], task=task, **SHORT).path


# folders
# ---------------------------------------------------------------------------------------


def test_branches_of_another_training_are_refused(
    folder: Path, run: Path, tmp_path: Path
) -> None:
    other = trained(tmp_path / "other", seed=9)
    shared = tmp_path / "shared"
    poise.unlearn(run, [1], out=shared, **SHORT)
    before = contents(shared)
    for clients in ([2], [1]):
        with pytest.raises(LedgerError, match="rests on another training"):
            poise.unlearn(other, clients, out=shared, **SHORT)
    assert contents(shared) == before
    assert poise.unlearn(run, [2], out=shared, **SHORT).certificate


def test_a_branch_without_its_request_is_not_overwritten(unlearned: Path) -> None:
    (unlearned / "unlearning" / "001" / "request.json").unlink()
    before = contents(unlearned)
    with pytest.raises(LedgerError, match=r"has certificate\.json, but no request"):
        poise.unlearn(unlearned, [2], **SHORT)
    assert contents(unlearned) == before


def test_an_altered_request_is_noticed_by_the_next_one(unlearned: Path) -> None:
    file = unlearned / "unlearning" / "001" / "request.json"
    whole = file.read_bytes()
    document = json.loads(whole)
    changes: list[dict[str, Any]] = [
        {"clients": [3]},
        {"min_rounds": 1},
        {"sigma": 1.0},
    ]
    for change in changes:
        file.write_text(json.dumps({**document, **change}, indent=1))
        with pytest.raises(LedgerError):
            poise.unlearn(unlearned, [2], **SHORT)
    file.write_bytes(whole)
    assert poise.unlearn(unlearned, [2], **SHORT).certificate


def test_a_damaged_restart_model_leaves_no_request_behind(run: Path) -> None:
    model = run / "models" / "00000006.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x7f")
    before = contents(run)
    with pytest.raises(LedgerError, match="is not what the ledger recorded"):
        poise.unlearn(run, [1], method="last", **SHORT)
    assert contents(run) == before
    assert poise.unlearn(run, [2], method="scratch", **SHORT).certificate


@pytest.mark.parametrize("index", [1, 2])
def test_a_lost_certificate_leaves_its_branch_as_it_was(run: Path, index: int) -> None:
    """Also where the target ended retraining early: later certificates cover the ledger."""
    options = {**SHORT, "target": 0.01, "max_rounds": 30}
    for client in (1, 2):
        assert poise.unlearn(run, [client], **options).reached
    before = contents(run)
    (run / "unlearning" / f"00{index}" / "certificate.json").unlink()
    poise.unlearn(run, [index], **options, measure_forgotten=index == 1)
    assert contents(run) == before


def test_a_branch_that_a_later_certificate_covers_is_not_repaired(run: Path) -> None:
    for client in (1, 2):
        poise.unlearn(run, [client], **SHORT)
    place = run / "unlearning" / "001"
    (place / "certificate.json").unlink()
    for harm in (
        lambda: alter(place / "ledger.sqlite", "contributions", "norm", "n = 1"),
        lambda: (place / "models" / "00000003.safetensors").unlink(),
    ):
        harm()
        before = contents(place / "models")
        with pytest.raises(LedgerError):
            poise.unlearn(run, [1], **SHORT)
        assert contents(place / "models") == before
        assert not (place / "certificate.json").exists()


def test_a_measured_score_survives_the_loss_of_its_certificate(run: Path) -> None:
    first = poise.unlearn(run, [1], measure_forgotten=True, **SHORT)
    assert first.certificate["result"]["on forgotten clients"] is not None
    assert verify(str(first.path))
    Path(str(first.path)).unlink()
    assert poise.unlearn(run, [1], **SHORT).certificate == first.certificate


def test_a_training_that_went_on_honours_further_requests(unlearned: Path) -> None:
    resume(unlearned, rounds=8).close()
    second = poise.unlearn(unlearned, [2], **SHORT)
    for index in ("001", "002"):
        assert verify(unlearned / "unlearning" / index / "certificate.json")
    assert second.certificate["evidence"]["training"]["rounds"] == 8


@pytest.mark.parametrize("keep", ["last", "unlearnable"])
def test_a_training_that_goes_on_keeps_the_models_of_its_certificates(
    keep: str, tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", keep=keep)
    done = poise.unlearn(run, [1], method="last", **SHORT)
    seen: list[int] = []
    unfinished = poise.unlearn(
        run,
        [2],
        method="last",
        **SHORT,
        callbacks=[lambda record: seen.append(record.index)],
        stop=lambda: bool(seen),
    )
    assert not unfinished.certificate
    resume(run, rounds=9).close()
    assert verify(str(done.path))
    second = poise.unlearn(run, [2], method="last", **SHORT)
    assert verify(str(second.path))


def test_a_request_names_any_branch_of_its_training(unlearned: Path) -> None:
    done = poise.unlearn(unlearned / "unlearning" / "001", [2], **SHORT)
    assert str(done.path).endswith("unlearning/002/certificate.json")
    again = poise.unlearn(unlearned / "unlearning" / "002", [2], **SHORT)
    assert again.certificate == done.certificate


def test_a_reader_of_the_branch_does_not_harm_its_certificate(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps its log while others read: the certificate must hold when they leave."""
    monkeypatch.setattr("poise.ledger.store.GROUPED", 0.0)
    readers: list[Any] = []

    def look(record: Any) -> None:
        readers.append(poise.open_run(run / "unlearning" / "001"))
        assert readers[-1].rounds

    done = poise.unlearn(run, [1], callbacks=[look], **SHORT)
    for reader in readers:
        reader.close()
    assert verify(str(done.path))


class FullDisk(LimitedConnection):
    """A connection that has no space to merge the log of a ledger."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if "wal_checkpoint" in arguments[0]:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(*arguments)


def test_a_full_disk_is_not_taken_for_a_reader(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is idle keeps SQLite from merging the log by itself."""
    connect = sqlite3.connect
    readers: list[sqlite3.Connection] = []

    def look(record: Any) -> None:
        if not readers:
            readers.append(connect(run / "unlearning" / "001" / "ledger.sqlite"))
            readers[0].execute("SELECT * FROM rounds").fetchall()

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **{**options, "factory": FullDisk})

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", full)
        with pytest.raises(LedgerError, match="disk I/O error") as failure:
            poise.unlearn(run, [1], callbacks=[look], **SHORT)
    assert "free some space, then repeat the unlearning request" in str(failure.value)
    readers[0].close()
    assert verify(str(poise.unlearn(run, [1], **SHORT).path))


def test_a_reader_in_the_middle_of_a_query_is_waited_for(run: Path) -> None:
    readers: list[sqlite3.Connection] = []

    def look(record: Any) -> None:
        if not readers:
            readers.append(
                sqlite3.connect(run / "unlearning" / "001" / "ledger.sqlite")
            )
            readers[0].execute("BEGIN")
            readers[0].execute("SELECT * FROM rounds").fetchall()

    with pytest.raises(LedgerError, match="another program is reading"):
        poise.unlearn(run, [1], callbacks=[look], **SHORT)
    readers[0].close()
    assert verify(str(poise.unlearn(run, [1], **SHORT).path))


def test_the_log_of_a_killed_training_is_merged_before_it_is_certified(
    run: Path,
) -> None:
    database = sqlite3.connect(run / "ledger.sqlite")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
    database.commit()
    names = ("ledger.sqlite", "ledger.sqlite-wal")
    killed = {name: (run / name).read_bytes() for name in names}
    database.close()
    for name, content in killed.items():
        (run / name).write_bytes(content)
    done = poise.unlearn(run, [1], **SHORT)
    assert done.certificate["evidence"]["training"]["file"] is not None
    assert verify(str(done.path))


# clients
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clients", [[1, 1], [1.0], [True], [[1]], b"\x01", "1", [None]]
)
def test_what_is_no_list_of_clients_is_no_repetition_of_a_request(
    unlearned: Path, clients: Any
) -> None:
    with pytest.raises(InvalidOption, match="client"):
        poise.unlearn(unlearned, clients, **SHORT)


def test_a_distance_that_was_not_measured_counts_as_infinite(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a number compares as false: it must not pass for small."""
    measured = poise.Run.measurement
    read: Callable[..., Any] = lambda self, name: np.full_like(
        measured(self, name), np.nan
    )
    monkeypatch.setattr(poise.Run, "measurement", read)
    contributed = poise.open_run(run).contributions
    client = int(contributed["client"][contributed["round"] == 1][0])
    first = int(contributed["round"][contributed["client"] == client].min())
    done = poise.unlearn(run, [client], **SHORT)
    assert done.restart == (0, first)
    with pytest.raises(IncompatibleParts, match="stopped tracking"):
        poise.unlearn(run, [client], method="last", out=run / "other", **SHORT)


def test_the_same_request_at_the_same_moment_returns_the_first_result(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = fulfilment.Histories.of
    asked: list[Any] = []

    def quick_in_between(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        if not asked:
            asked.append(None)
            asked.append(poise.unlearn(run, [1], **SHORT))
        return found

    monkeypatch.setattr(fulfilment.Histories, "of", quick_in_between)
    assert poise.unlearn(run, [1], **SHORT).certificate == asked[1].certificate
