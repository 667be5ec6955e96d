"""Run folders of somebody else: nothing outside is read or written, nothing hangs, and one
bad folder is a problem of that folder alone."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from faults.crafted import CRAFTS, OUTSIDE, SECRET, crafted
from faults.support import Outcome, call, limited, opened, provable, run_into
from poise.core.errors import LedgerError
from poise.ledger import foreign, schema
from poise.ledger.limits import LimitedConnection
from poise.ledger.summary import read_summary

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SLOW = 2.0
"""Seconds of the processor within which the console answers."""

HANGS = 20
"""Seconds after which an answer counts as hanging, also on a busy machine."""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with a fulfilled request."""
    text = provable(rounds=4, keep='"unlearnable"')
    run = run_into(text, tmp_path_factory.mktemp("sample"))
    assert call("unlearn", run, "--clients", "2").code == 0
    return run


@pytest.fixture
def folders(sample: Path, tmp_path: Path) -> dict[str, Path]:
    """The crafted folders by name, new for each test."""
    return {run.name: run for run in crafted(sample, tmp_path / "runs")}


@pytest.fixture(scope="module")
def looked_at(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crafted folders that tests only read."""
    folder = tmp_path_factory.mktemp("crafted") / "runs"
    crafted(sample, folder)
    return folder


def untouched(outside: Path) -> None:
    assert sorted(p.name for p in outside.iterdir()) == sorted(OUTSIDE)
    assert {p.read_text() for p in outside.iterdir()} == {SECRET}


def test_there_are_forty_crafted_folders() -> None:
    assert len(CRAFTS) >= 40


ROUTES = (
    *(
        f"/{page}/{{}}"
        for page in ("run", "client", "federation", "unlearning", "audit")
    ),
    *(
        f"/api/{kind}/{{}}"
        for kind in (
            "run",
            "client",
            "client-figures",
            "federation",
            "federation-figures",
            "graph-figures",
            "unlearning",
            "unlearning-figures",
            "audit",
            "audit-figures",
            "quarantine",
            "jobs",
            "health",
            "job/20260101-000000-abcdef",
            "figures/curves",
            "figures/weights",
            "figures/cohorts",
            "figures/losses",
            "figures/times",
            "figures/promises",
            "figures/clients",
        )
    ),
    "/api/live/{}?events=1",
    "/api/compare?run={}",
    "/api/compare/figures?run={}",
    "/compare?run={}",
    "/api/unlearning-cost/{}?clients=1",
    "/unlearning/{}?method=sifu&clients=1",
)
QUICK_ROUTES = ("/run/{}", "/client/{}", "/api/jobs/{}", "/unlearning/{}")


def ask_console(runs: Path, routes: tuple[str, ...], sample: Path) -> tuple[int, float]:
    """Ask a console for all crafted folders; return the number of requests and the
    seconds that the processor took for the slowest.

    Other processes do not count as slowness, but an answer that waits is noticed.
    """
    pytest.importorskip("fastapi")
    from ui.support import client

    for route in routes:  # loads the modules that pages load on first use
        assert client(sample).get(route.format(sample.name)).status_code < 500
    browser = client(runs)
    slowest = 0.0
    addresses = [route.format(name) for name in CRAFTS for route in routes]
    for address in (*addresses, "/", "/api/runs"):
        began = time.process_time()
        with limited(HANGS):
            answer = browser.get(address)
        assert answer.status_code < 500, (address, answer.text)
        assert SECRET not in answer.text, address
        taken = time.process_time() - began
        assert taken < SLOW, address
        slowest = max(slowest, taken)
    listed = set()
    for page in range(1, int(browser.get("/api/runs").headers["x-pages"]) + 1):
        answer = browser.get(f"/api/runs?page={page}")
        assert answer.status_code == 200, answer.text
        listed |= {line["name"] for line in answer.json()}
    assert listed >= set(CRAFTS)
    return len(addresses) + 3, slowest


def test_the_console_answers_about_every_folder(looked_at: Path, sample: Path) -> None:
    ask_console(looked_at, QUICK_ROUTES, sample=sample)
    untouched(looked_at.parent / "outside")


@pytest.mark.thorough
def test_a_thousand_requests_about_crafted_folders(
    looked_at: Path, sample: Path
) -> None:
    asked, slowest = ask_console(looked_at, ROUTES, sample=sample)
    assert asked > 1000
    print(f"{asked} requests, {len(CRAFTS)} folders: no 500, slowest {slowest:.2f} s")
    untouched(looked_at.parent / "outside")


def commands(run: Path, out: Path) -> list[tuple[object, ...]]:
    """Commands that read a run folder."""
    return [
        ("report", run, "--out", out / "report.html"),
        ("compare", run, run),
        ("audit", run, "--out", out / "audit.html"),
        ("explain", run),
        ("verify", run / "unlearning" / "001" / "certificate.json"),
        ("unlearn", run, "--clients", "3", "--plan"),
        ("inspect", run / "experiment.toml", "--out", out / "inspection.html"),
        ("export", run, "--out", out / "exported"),
        ("unlearn", run, "--clients", "1", "--max-rounds", "2"),
        ("resume", run),
        ("resume", run, "--rounds", 6),
    ]


def told(arguments: tuple[object, ...]) -> Outcome:
    """Run a command and check that it ends in time, with a result or one error."""
    with limited(60):
        outcome = call(*arguments)
    assert outcome.code in (0, 1, 2), (arguments, outcome)
    assert "Traceback" not in outcome.err + outcome.out, arguments
    if outcome.code:
        assert "error: " in outcome.err.lower(), (arguments, outcome)
    return outcome


QUICK_CRAFTS = (
    "link-ledger",
    "link-experiment",
    "link-certificate",
    "pipe-ledger",
    "pipe-experiment",
    "pipe-certificate",
    "view",
    "circles",
    "text-for-number",
    "many-clients",
    "deep-json",
    "odd-experiment",
)


def test_commands_end_with_one_error(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in QUICK_CRAFTS:
        for arguments in commands(folders[name], tmp_path)[1:6:2]:
            told(arguments)
    untouched(tmp_path / "outside")


NESTED = (
    "pipe-request",
    "pipe-branch-ledger",
    "pipe-branch-model",
    "pipe-nested-request",
    "endless-request",
    "endless-nested-request",
    "link-nested-folder",
    "odd-nested-request",
    "deep-nested-request",
)


@pytest.mark.parametrize("name", NESTED)
def test_training_on_reads_no_pipe_and_no_link_in_inner_folders(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    outcome = told(("resume", folders[name], "--rounds", 6))
    assert outcome.code == 0, outcome.err
    untouched(tmp_path / "outside")


@pytest.mark.thorough
def test_two_hundred_commands_end_without_a_traceback(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    count = 0
    for run in folders.values():
        for arguments in commands(run, tmp_path):
            told(arguments)
            count += 1
    assert count >= 200
    print(f"{count} commands on {len(folders)} folders: no traceback")
    untouched(tmp_path / "outside")


REFUSED = [
    ("link-ledger", "a link"),
    ("link-experiment", "a link"),
    ("link-models", "a link"),
    ("link-branch", "a link"),
    ("pipe-ledger", "not a regular file"),
    ("pipe-log", "not a regular file"),
    ("pipe-model", "a link or a pipe"),
    ("view", "view"),
    ("trigger", "trigger"),
    ("generated", "generated column"),
]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_a_run_is_refused_with_the_reason(
    looked_at: Path, name: str, words: str
) -> None:
    with limited(20), pytest.raises(LedgerError, match=words):
        opened(looked_at / name).__enter__()
    summary = read_summary(looked_at / name)
    assert summary.state == "damaged"
    assert words in summary.trouble


def test_statements_on_pages_in_circles_end(looked_at: Path) -> None:
    summary = read_summary(looked_at / "circles")
    assert summary.state in ("damaged", "done")
    with limited(20), opened(looked_at / "circles") as run:
        assert run.rounds == 0
        assert run.damage


@pytest.mark.parametrize(
    "name", ["text-for-number", "negative-clients", "far-clients", "many-clients"]
)
def test_numbers_that_cannot_be_are_named(looked_at: Path, name: str) -> None:
    with opened(looked_at / name) as run, pytest.raises(LedgerError):
        _ = run.weights


@pytest.mark.parametrize("read", ["metric", "array"])
def test_blobs_of_a_wrong_length_are_named(looked_at: Path, read: str) -> None:
    with opened(looked_at / "short-blobs") as run, pytest.raises(LedgerError):
        getattr(run, read)({"metric": "client_loss", "array": "sizes"}[read])


def test_a_run_folder_may_itself_be_a_link(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(sample)
    with opened(tmp_path / "named") as run:
        assert run.rounds == 4


def test_long_statements_on_sound_ledgers_are_not_ended(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    connection = LimitedConnection(file, isolation_level=None)
    connection.limit(file)  # before the file grows
    with closing(connection):
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, x REAL)")
        rows = ((n, float(n)) for n in range(400_000))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
        connection.execute("COMMIT")
        query = "SELECT sum(x), count(DISTINCT n % 7) FROM numbers"
        assert connection.execute(query).fetchone()[1] == 7
        endless = "WITH RECURSIVE e(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM e) "
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            connection.execute(endless + "SELECT max(n) FROM e").fetchone()
        assert connection.execute("SELECT 1").fetchone() == (1,)


FUNCTIONS_RUN = [
    "CREATE TABLE t (n, at DEFAULT (spy()))",
    "CREATE TABLE t (n CHECK (spy()))",
    "CREATE TABLE t (n); CREATE INDEX i ON t (n, spy())",
]


@pytest.mark.parametrize("statements", FUNCTIONS_RUN)
def test_the_schema_of_a_database_runs_no_function(
    statements: str, tmp_path: Path
) -> None:
    calls: list[None] = []

    def spy(connection: sqlite3.Connection) -> None:
        connection.create_function(
            "spy", 0, lambda: calls.append(None) or 1, deterministic=True
        )

    file = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as maker:
        spy(maker)
        maker.executescript(statements)
    with closing(schema.connect(file, writing=True)) as connection:
        spy(connection)
        with pytest.raises(sqlite3.DatabaseError, match="unsafe use of spy"):
            connection.execute("INSERT INTO t (n) VALUES (1)")
    assert not calls


def ten_bytes(path: Path) -> bytes:
    return foreign.read_bytes(path, 10)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    with limited(20), pytest.raises(OSError):
        ten_bytes(tmp_path / "odd")


def test_links_are_not_followed_and_sizes_are_limited(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert ten_bytes(tmp_path / "file") == b"0123456789"
    (tmp_path / "file").write_bytes(b"0123456789a")
    with pytest.raises(OSError, match="larger than 10"):
        ten_bytes(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="link"):
        ten_bytes(tmp_path / "link")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"x")
    (tmp_path / "here").symlink_to(tmp_path / "there")
    assert foreign.read_bytes(tmp_path / "here" / "file") == b"x"
    with pytest.raises(OSError):
        foreign.read_bytes(tmp_path / "here" / "file", below=1)


def test_hard_links_are_read_but_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "name").hardlink_to(tmp_path / "file")
    assert ten_bytes(tmp_path / "name") == b"0123456789"
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(OSError, match="a hard link to another file"):
            foreign.open_regular(tmp_path / "name", flags)


def test_checking_a_folder_is_quick(sample: Path) -> None:
    times = []
    for _ in range(20):
        began = time.process_time()
        foreign.check_folder(sample)
        times.append(time.process_time() - began)
    assert min(times) < 0.005


def test_an_experiment_without_end_is_refused(tmp_path: Path) -> None:
    with limited(HANGS):
        outcome = call("explain", "/dev/zero")
    assert outcome.code == 2
    assert "longer than 16777216 characters" in outcome.err
