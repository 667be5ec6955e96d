"""Run folders that poise did not write: links, pipes, programs, wrong types and sizes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

SECRET = "the secret outside the run folders"


def crafted(sample: Path, folder: Path) -> list[Path]:
    """Make one folder for each entry of `CRAFTS`, from a run with a fulfilled request."""
    outside = folder.parent / "outside"
    outside.mkdir(parents=True, exist_ok=True)
    for name in OUTSIDE:
        (outside / name).write_text(SECRET)
    made = []
    for name, craft in CRAFTS.items():
        run = folder / name
        shutil.copytree(sample, run)
        craft(run, outside)
        made.append(run)
    return made


OUTSIDE = (
    "secret.txt",
    "secret.json",
    "job.json",
    "log.txt",
    "out.json",
    "request.json",
)

Craft = Callable[[Path, Path], None]


def sql(*statements: str) -> Craft:
    """Change the ledger; constraints of the schema do not stop it."""

    def craft(run: Path, outside: Path) -> None:
        with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                database.execute(statement)
            database.commit()

    return craft


def link(name: str) -> Craft:
    """Put a link to a file outside in the place of a file."""

    def craft(run: Path, outside: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside.resolve() / "secret.json")

    return craft


def folder_link(name: str) -> Craft:
    """Put a link to a folder outside in the place of a folder."""

    def craft(run: Path, outside: Path) -> None:
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).symlink_to(outside.resolve())

    return craft


def pipe(name: str) -> Craft:
    """Put a pipe, which blocks whoever opens it, in the place of a file."""

    def craft(run: Path, outside: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return craft


def endless(name: str) -> Craft:
    """Put a link to a file that never ends in the place of a file."""

    def craft(run: Path, outside: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to("/dev/zero")

    return craft


def content(name: str, text: str | bytes) -> Craft:
    """Replace the content of a file."""

    def craft(run: Path, outside: Path) -> None:
        if isinstance(text, str):
            written = text.encode()
        else:
            written = text
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(written)

    return craft


def replaced(name: str, old: str, new: str) -> Craft:
    """Replace words of a file."""

    def craft(run: Path, outside: Path) -> None:
        text = (run / name).read_text()
        assert old in text, (name, old)
        (run / name).write_text(text.replace(old, new))

    return craft


def hollow(name: str) -> Craft:
    """Make a file 64 GB long without writing anything."""

    def craft(run: Path, outside: Path) -> None:
        os.truncate(run / name, 2**36)

    return craft


def in_circles(run: Path, outside: Path) -> None:
    """Let every page of the ledger refer to one page, which refers to itself."""
    file = run / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'rounds'"
        ).fetchone()
    cells = 300
    page = bytearray(size)
    page[0] = 5  # an inner page of a table
    page[3:5] = cells.to_bytes(2)
    start = 12 + 2 * cells
    page[5:7] = start.to_bytes(2)
    page[8:12] = int(root).to_bytes(4)
    for cell in range(cells):
        page[12 + 2 * cell : 14 + 2 * cell] = (start + 6 * cell).to_bytes(2)
        place = start + 6 * cell
        page[place : place + 4] = int(root).to_bytes(4)
        page[place + 4 : place + 5] = bytes([cell % 128])
    with file.open("r+b") as stream:
        stream.seek((int(root) - 1) * size)
        stream.write(page)


def linked_job(run: Path, outside: Path) -> None:
    """A finished job whose output and log are links."""
    job = run / "console" / "jobs" / "20260101-000000-abcdef"
    job.mkdir(parents=True)
    facts = {"kind": "run", "title": "t", "command": "poise", "began": "now"}
    (job / "job.json").write_text(json.dumps({**facts, "about": {}, "pid": None}))
    (job / "log.txt").symlink_to(outside.resolve() / "secret.txt")
    (job / "out.json").symlink_to(outside.resolve() / "secret.json")


def odd_job(run: Path, outside: Path) -> None:
    """Jobs whose facts have wrong types, or whose growing run is a folder outside."""
    for number, facts in enumerate(
        [
            [1, 2],
            {"kind": 3, "title": [], "command": {}, "began": None, "about": 7},
            {"unknown": 1},
            {
                "kind": "run",
                "title": "t",
                "command": "c",
                "began": "b",
                "about": {"grows": str(outside.resolve()), "of": "x"},
                "pid": 1,
            },
        ]
    ):
        job = run / "console" / "jobs" / f"20260101-00000{number}-abcdef"
        job.mkdir(parents=True)
        (job / "job.json").write_text(json.dumps(facts))
        (job / "out.json").write_text("[" * 100_000)


ENDLESS = (
    "CREATE VIEW rounds AS WITH RECURSIVE endless(n) AS (SELECT 0 UNION ALL SELECT "
    "n + 1 FROM endless) SELECT n, 0.0 AS time, 0 AS bytes_up, 0 AS bytes_down, '[]' AS "
    "in_flight, '' AS model, '' AS state, '' AS clients, '' AS digest, '' AS updates "
    "FROM endless"
)
GENERATED = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at TEXT, n INTEGER, "
    "what TEXT AS (hex(zeroblob(100000000))))"
)
BRANCH = "unlearning/001"
DEEP = "[" * 100_000 + "]" * 100_000

CRAFTS: dict[str, Craft] = {
    "link-ledger": link("ledger.sqlite"),
    "link-experiment": link("experiment.toml"),
    "link-lock": link("lock"),
    "link-certificate": link(f"{BRANCH}/certificate.json"),
    "link-request": link(f"{BRANCH}/request.json"),
    "link-explanation": link("explanation.json"),
    "link-quarantine": link("console/quarantine.jsonl"),
    "link-graph": link("console/graph.safetensors"),
    "link-job": linked_job,
    "link-models": folder_link("models"),
    "link-branch": folder_link(BRANCH),
    "link-jobs": folder_link("console/jobs"),
    "pipe-ledger": pipe("ledger.sqlite"),
    "pipe-log": pipe("ledger.sqlite-wal"),
    "pipe-experiment": pipe("experiment.toml"),
    "pipe-lock": pipe("lock"),
    "pipe-certificate": pipe(f"{BRANCH}/certificate.json"),
    "pipe-model": pipe("models/00000000.safetensors"),
    "pipe-job-lock": pipe("console/jobs/lock"),
    "pipe-request": pipe(f"{BRANCH}/request.json"),
    "pipe-branch-ledger": pipe(f"{BRANCH}/ledger.sqlite"),
    "pipe-branch-model": pipe(f"{BRANCH}/models/00000000.safetensors"),
    "pipe-nested-request": pipe("x/y/request.json"),
    "endless-request": endless(f"{BRANCH}/request.json"),
    "endless-certificate": endless(f"{BRANCH}/certificate.json"),
    "endless-nested-request": endless("x/y/request.json"),
    "link-nested-folder": folder_link("x/y"),
    "odd-nested-request": content("x/y/request.json", '{"node": [0, "first"]}'),
    "deep-nested-request": content("x/y/request.json", DEEP),
    "view": sql("ALTER TABLE rounds RENAME TO kept", ENDLESS),
    "trigger": sql(
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM rounds; END"
    ),
    "generated": sql(
        "DROP TABLE events", GENERATED, "INSERT INTO events (n) VALUES (1)"
    ),
    "circles": in_circles,
    "text-for-number": sql(
        "UPDATE contributions SET client = 'x', norm = 'y'",
        "UPDATE rounds SET time = 'later'",
    ),
    "negative-clients": sql("UPDATE contributions SET client = -3"),
    "far-clients": sql("UPDATE contributions SET client = 4000000000"),
    "many-clients": sql(
        "UPDATE meta SET value = '1000000000000' WHERE key = 'clients'"
    ),
    "unlisted-clients": sql(
        "UPDATE meta SET value = '200000' WHERE key = 'clients'",
        "DELETE FROM arrays",
    ),
    "no-clients": sql("UPDATE meta SET value = 'many' WHERE key = 'clients'"),
    "blob-meta": sql("UPDATE meta SET value = x'ff00fe'"),
    "no-meta": sql("DELETE FROM meta WHERE key != 'schema'"),
    "far-round": sql("UPDATE rounds SET n = 9000000000000000000 WHERE n = 3"),
    "short-blobs": sql(
        "UPDATE metrics SET per_client = x'0102', value = NULL",
        "UPDATE arrays SET data = x'01'",
        "UPDATE measurements SET data = x'0102', width = 77777",
    ),
    "huge-shape": sql("UPDATE arrays SET shape = '4000000000,4000000000', dtype = 'O'"),
    "not-finite": sql(
        "UPDATE rounds SET time = 9e999, bytes_up = -5",
        "UPDATE metrics SET value = -9e999",
        "UPDATE contributions SET coefficient = 9e999, norm = -1",
    ),
    "not-utf8": sql(
        "UPDATE events SET what = CAST(x'ff80' AS TEXT)",
        "UPDATE meta SET value = CAST(x'ff80' AS TEXT) WHERE key = 'poise'",
        "UPDATE OR REPLACE metrics SET name = CAST(x'ff80' AS TEXT)",
    ),
    "deep-json": lambda run, outside: (
        [
            content(name, DEEP)(run, outside)
            for name in (
                f"{BRANCH}/request.json",
                f"{BRANCH}/certificate.json",
                "explanation.json",
                "console/quarantine.jsonl",
            )
        ]
        and None
    ),
    "odd-job": odd_job,
    "odd-experiment": content(
        "experiment.toml",
        'run = "all"\ndata = [1, 2]\nsampler = 5\nattacks = {a = 1}\n',
    ),
    "binary-experiment": content("experiment.toml", b"\xff\xfe\x00"),
    "far-plan": replaced(
        "experiment.toml", "rounds = 4", "rounds = 99999999999999999999"
    ),
    "hollow-ledger": hollow("ledger.sqlite"),
    "hollow-experiment": hollow("experiment.toml"),
    "hollow-model": hollow("models/00000000.safetensors"),
    "hollow-certificate": hollow(f"{BRANCH}/certificate.json"),
    "hollow-evidence": hollow("evidence.jsonl"),
    "link-evidence": link("evidence.jsonl"),
    "pipe-evidence": pipe("evidence.jsonl"),
    "pipe-signature": pipe(f"{BRANCH}/certificate.dsse"),
    "odd-signature": content(f"{BRANCH}/certificate.dsse", '{"payload": [1]}'),
    "pipe-countersignatures": pipe("countersignatures.jsonl"),
    "deep-flights": sql(f"UPDATE rounds SET in_flight = '{'[' * 5000}'"),
    "deep-experiment": content("experiment.toml", "x = " + "[" * 20_000),
    "many-keys": content(
        "experiment.toml", "[run]\n" + "".join(f"k{k} = 1\n" for k in range(60_000))
    ),
    "long-meta": sql(
        "UPDATE meta SET value = CAST(zeroblob(100000000) AS TEXT) WHERE key = 'poise'"
    ),
    "odd-shapes": sql("UPDATE arrays SET shape = '-1'"),
    "odd-virtual": sql(
        "DROP TABLE events", "CREATE VIRTUAL TABLE events USING rtree(id, n, what)"
    ),
}
"""Sixty-seven folders: what is wrong with each, by name."""
