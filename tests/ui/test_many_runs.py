"""A console of many runs: pages of the list, and names that look like options."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from poise.apps.ui.actions import operand
from poise.apps.ui.api.runs import SIZE
from poise.apps.ui.jobs import ConsoleJobs
from poise.ledger.store import DATABASE, EXPERIMENT
from poise.ledger.summary import RunSummary, read_summary
from ui.support import client, copied


def many(made: Path, folder: Path, count: int) -> Path:
    """Copies of the ledger of one run: ``exp-000/seed-0``, …."""
    for number in range(count):
        run = folder / f"exp-{number:04d}" / "seed-0"
        run.mkdir(parents=True)
        for name in (DATABASE, EXPERIMENT):
            shutil.copyfile(made / name, run / name)
    return folder


def test_the_list_has_pages(made: Path, tmp_path: Path) -> None:
    runs = many(made, tmp_path / "runs", SIZE + 5)
    browser = client(runs)
    first, second = (browser.get(f"/api/runs?page={n}") for n in (1, 2))
    assert [len(answer.json()) for answer in (first, second)] == [SIZE, 5]
    assert first.headers["x-pages"] == "2"
    names = [line["name"] for answer in (first, second) for line in answer.json()]
    assert names == sorted(set(names))
    assert browser.get("/api/runs?page=3").json() == []
    page = browser.get("/").text
    assert f"page 1 of 2 ({SIZE + 5} runs)" in page
    assert 'page=2" rel="next"' in page
    assert f"exp-{SIZE:04d}" not in page
    assert f"exp-{SIZE:04d}" in browser.get("/?page=2").text
    assert browser.get("/?page=0").status_code == 422


def test_finding_runs_looks_at_names_and_tags_of_all_pages(
    made: Path, tmp_path: Path
) -> None:
    runs = many(made, tmp_path / "runs", SIZE + 5)
    browser = client(runs)
    last = f"exp-{SIZE + 4:04d}/seed-0"
    browser.put(f"/api/tags/{last}", json={"tags": ["Golden"]})
    for words in (last, "golden", "GOLD exp"):
        found = browser.get("/api/runs", params={"find": words}).json()
        assert [line["name"] for line in found] == [last]
        assert last.partition("/")[0] in browser.get("/", params={"find": words}).text
    nothing = browser.get("/", params={"find": "<b>absent"})
    assert nothing.status_code == 200
    assert "<b>absent" not in nothing.text
    assert "No run on this page" in nothing.text


def test_means_count_the_seeds_on_the_next_page(made: Path, tmp_path: Path) -> None:
    runs = many(made, tmp_path / "runs", SIZE - 1)
    for seed in range(3):
        folder = runs / "last" / f"seed-{seed}"
        folder.mkdir(parents=True)
        shutil.copyfile(made / DATABASE, folder / DATABASE)
        text = (made / EXPERIMENT).read_text().replace("lr = 0.1", "lr = 0.2")
        (folder / EXPERIMENT).write_text(text)
        with closing(sqlite3.connect(folder / DATABASE)) as database, database:
            database.execute(
                "UPDATE meta SET value = ? WHERE key = 'seed'", (str(seed),)
            )
    line = client(runs).get("/api/runs").json()[-1]
    assert line["name"] == "last/seed-0"
    assert {interval["n"] for interval in line["over_seeds"].values()} == {3}


def test_a_page_by_name_reads_the_ledgers_of_that_page_only(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = many(made, tmp_path / "runs", 3 * SIZE)
    read: list[Path] = []
    summarise = read_summary

    def counted(folder: Path) -> RunSummary:
        read.append(folder)
        return summarise(folder)

    monkeypatch.setattr("poise.apps.ui.library.read_summary", counted)
    browser = client(runs)
    assert len(browser.get("/api/runs?page=2").json()) == SIZE
    assert len(read) == SIZE
    assert len(browser.get("/api/runs?page=2").json()) == SIZE
    assert len(read) == SIZE, "the second time from the cache"
    browser.get("/api/runs?sort=accuracy")
    assert len(read) == 3 * SIZE, "a score sorts all runs"


def test_all_pages_are_sorted_together(made: Path, tmp_path: Path) -> None:
    runs = many(made, tmp_path / "runs", SIZE + 3)
    scores = {}
    for number, name in enumerate(sorted(p.name for p in runs.iterdir())):
        scores[f"{name}/seed-0"] = (37 * number) % (SIZE + 3)
        folder = runs / name / "seed-0"
        text = (folder / EXPERIMENT).read_text()
        (folder / EXPERIMENT).write_text(text.replace("lr = 0.1", f"lr = {1 + number}"))
        with closing(sqlite3.connect(folder / DATABASE)) as database, database:
            database.execute(
                "UPDATE metrics SET value = ? WHERE name = 'accuracy'",
                (scores[f"{name}/seed-0"],),
            )
    browser = client(runs)
    for order, down in (("up", False), ("down", True)):
        address = f"/api/runs?sort=accuracy&order={order}"
        pages = [browser.get(f"{address}&page={n}").json() for n in (1, 2)]
        names = [line["name"] for page in pages for line in page]
        assert names == sorted(scores, key=lambda name: scores[name], reverse=down)
    page = browser.get("/?sort=accuracy&order=down").text
    assert page.index(names[0]) < page.index(names[1])
    assert 'aria-sort="descending"' in page
    assert browser.get("/?sort=accuracy&order=sideways").status_code == 422
    assert browser.get("/?sort=<b>nothing").status_code == 200


@pytest.mark.thorough
def test_a_thousand_runs_are_listed_within_a_second(made: Path, tmp_path: Path) -> None:
    runs = many(made, tmp_path / "runs", 1000)
    browser = client(runs)
    browser.get("/unlock")  # loads the templates
    times: dict[str, list[float]] = {}
    sort = "/?sort=accuracy"
    for address in ("/", "/", "/?page=10", "/api/runs?page=5", sort, sort):
        began = time.process_time()  # other processes do not count
        assert browser.get(address).status_code == 200
        times.setdefault(address, []).append(time.process_time() - began)
    print({address: [f"{t:.3f} s" for t in found] for address, found in times.items()})
    assert times["/"][0] < 1.0
    assert times[sort][1] < 1.0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of the commands that the console would start."""
    commands: list[list[str]] = []

    def spawn(folder: Path, arguments: list[str], lock: int) -> int:
        commands.append(arguments)
        return os.getpid()

    monkeypatch.setattr("poise.apps.ui.jobs._spawn", spawn)
    return commands


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/api/graph/{}", None),
        ("/api/forget/{}", {"clients": "3"}),
        ("/api/verification/1/{}", None),
        ("/api/without/{}", None),
    ],
)
def test_a_name_that_looks_like_an_option_is_none(
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[list[str]],
    address: str,
    body: dict[str, Any] | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "--version"
    copied(kept / "past" / "seed-0", tmp_path / name)
    browser = client(Path())
    decision = {"client": 1, "who": "me", "why": "a test"}
    browser.post(f"/api/decision/{name}", json=decision).raise_for_status()
    answer = browser.post(address.format(name), json=body)
    assert answer.status_code == 200, answer.text
    (command,) = started
    names = [argument for argument in command if name in argument]
    assert names
    assert all(not argument.startswith("-") for argument in names)


def test_a_path_that_begins_with_a_dash_is_still_the_path() -> None:
    assert operand(Path("-x")) == "./-x"
    assert Path(operand(Path("--to/a"))) == Path("--to/a")
    assert operand(Path("/a/-x")) == "/a/-x"


def linked(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize("where", ["console", "console/jobs", "console/jobs/lock"])
def test_jobs_are_not_written_through_links(
    made: Path, tmp_path: Path, started: list[list[str]], where: str
) -> None:
    run = copied(made, tmp_path / "run")
    outside = tmp_path / "outside"
    if where.endswith("lock"):
        outside.write_text("precious")
    else:
        outside.mkdir()
    linked(run / where, outside)
    from poise.core.errors import LedgerError

    with pytest.raises(LedgerError):
        ConsoleJobs(run).start("run", "a title", arguments=["list"])
    assert started == []
    if outside.is_dir():
        assert list(outside.iterdir()) == []
    else:
        assert outside.read_text() == "precious"


@pytest.mark.parametrize("where", ["console", "console/quarantine.jsonl"])
def test_decisions_are_not_written_through_links(
    made: Path, tmp_path: Path, where: str
) -> None:
    run = copied(made, tmp_path / "runs" / "run")
    outside = tmp_path / "outside"
    if where == "console":
        outside.mkdir()
    else:
        outside.write_text("")
    linked(run / where, outside)
    form = {"client": 1, "who": "me", "why": "a test"}
    answer = client(tmp_path / "runs").post("/api/decision/run", json=form)
    assert answer.status_code == 409, answer.text
    if outside.is_dir():
        assert list(outside.iterdir()) == []
    else:
        assert outside.read_text() == ""


def test_a_job_leaves_no_temporary_file(
    made: Path, tmp_path: Path, started: list[list[str]]
) -> None:
    run = copied(made, tmp_path / "run")
    job = ConsoleJobs(run).start("run", "a title", arguments=["list"])
    assert (job.state, job.pid) == ("failed", os.getpid())  # it printed nothing
    assert [p.name for p in (run / "console/jobs" / job.id).iterdir()] == ["job.json"]
