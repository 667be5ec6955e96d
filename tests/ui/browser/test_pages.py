"""The console's pages in a real browser, with real runs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from faults.support import opened, run_into, small
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse
from poise.ledger.store import GROUPED
from ui.browser.conftest import Open
from ui.samples import learning

Start = Callable[[Path], str]
pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments of two seeds; one of them asynchronous."""
    runs = tmp_path_factory.mktemp("console") / "runs"
    mild = small(rounds=60).replace("alpha = 0.3", "alpha = 1.0")
    late = learning(mild, steps=20).replace('name = "uniform"\nm = 4', 'name = "full"')
    late = late.replace("lr = 0.1", "lr = 0.5")
    late += (
        '[clock]\nname = "asynchronous"\ndurations = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n'
    )
    for run in run_experiment(parse(learning(mild)), runs / "uniform", [0, 1]):
        run.close()
    for run in run_experiment(parse(late), runs / "asynchronous", [0, 1]):
        run.close()
    return runs


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages name folders as seen from where the console was started."""
    monkeypatch.chdir(folder.parent)


def test_the_list_shows_filters_and_sorts(
    folder: Path, console: Start, visit: Open, picture: Any
) -> None:
    page = visit(console(folder))
    rows = page.locator("#runs tr[data-run]")
    assert rows.count() == 4
    assert [row.is_visible() for row in rows.all()] == [False] * 4, "seeds are folded"
    heads = page.locator("#runs tr.experiment")
    assert heads.locator("[data-unfold]").all_inner_texts() == [
        "asynchronous",
        "uniform",
    ]
    assert heads.locator(".state.done").all_inner_texts() == ["2 done", "2 done"]
    assert "2 seeds" in page.locator("[data-over-seeds]").first.inner_text()
    differs = heads.first.locator("th small").inner_text()
    assert differs == "sampler=full", "one option tells it from the other"
    assert "batch_size" not in differs, "both have the same"
    assert page.get_by_role("region", name="Runs").evaluate(
        "region => region.scrollWidth <= region.clientWidth"
    ), "all columns are in sight at a width of 1280"
    picture(page, "runs")
    heads.first.locator("[data-unfold]").click()
    assert [row.is_visible() for row in rows.all()] == [True, True, False, False]
    assert "took" in rows.first.locator("[data-cell=began]").inner_text()
    heads.first.locator("[data-unfold]").click()
    page.get_by_label("Filter").fill("asynchronous seed-1")
    assert [
        row.get_attribute("data-run") for row in rows.all() if row.is_visible()
    ] == ["asynchronous/seed-1"]
    assert page.locator("[data-count]").inner_text() == "1 of 4 runs"
    page.get_by_label("Filter").fill("")
    page.locator("[data-filter-state]").select_option("failed")
    assert not any(row.is_visible() for row in rows.all())
    page.locator("[data-filter-state]").select_option("")
    means = {}
    for name in ("uniform", "asynchronous"):
        values = []
        for seed in (0, 1):
            with opened(folder / name / f"seed-{seed}") as run:
                values.append(run.metric("loss")[-1])
        means[name] = sum(values) / 2
    head = page.get_by_role("columnheader", name="loss")
    for way, backwards in (("ascending", False), ("descending", True)):
        head.get_by_role("link").click()
        page.wait_for_url(f"**order={'down' if backwards else 'up'}*")
        assert head.get_attribute("aria-sort") == way
        assert heads.locator("[data-unfold]").all_inner_texts() == sorted(
            means, key=lambda name: means[name], reverse=backwards
        )
    page.get_by_label("Sort by").select_option("duration")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url("**sort=duration*")
    assert rows.count() == 4


def test_the_page_of_a_run_draws_everything(
    folder: Path, console: Start, visit: Open, drawn: Any, picture: Any
) -> None:
    page = visit(f"{console(folder)}/run/asynchronous/seed-0")
    assert page.locator("h1").inner_text() == "asynchronous/seed-0"
    assert drawn(page) >= 9
    titles = page.locator("figure h3").all_inner_texts()
    for title in (
        "Accuracy",
        "Loss over the clients",
        "Staleness",
        "Client timeline",
        "Classes of each cohort",
    ):
        assert title in titles
    assert any(
        title.startswith("Weight of each client in each aggregation")
        for title in titles
    )
    assert page.locator("h2", has_text="Time and staleness").count() == 1
    picture(page, "run")
    first = page.locator("figure").first
    shown = "document.querySelector('figure .canvas').layout.xaxis.title.text"
    assert "aggregations" in page.evaluate(shown)
    first.get_by_label("bytes sent").check()
    assert "bytes" in page.evaluate(shown)
    page.get_by_role("button", name="Check the ledger").click()
    page.get_by_text("all 60 rounds are intact").wait_for()


def test_what_is_written_arrives_within_two_seconds_without_a_reload(
    tmp_path: Path, console: Start, visit: Open, drawn: Any
) -> None:
    written: Queue[float] = Queue()
    go = threading.Semaphore(1)

    def pause(record: object) -> None:
        written.put(time.monotonic())
        go.acquire(timeout=60)

    run = lambda: run_experiment(
        parse(small(rounds=5)), tmp_path / "live", [0], lambda seed, made: [pause]
    )
    writer = threading.Thread(target=run)
    writer.start()
    written.get(timeout=60)
    written.get(timeout=60)  # two rounds are there, the third waits
    page = visit(f"{console(tmp_path)}/run/live/seed-0")
    drawn(page)
    page.evaluate("window.never = 'reloaded'")
    page.evaluate("scrollTo(0, 0)")
    assert page.locator("[data-field=state]").inner_text() == "running"
    delays = []
    for n in (3, 4, 5):
        time.sleep(1.5 * GROUPED)  # rounds that are closer are written together
        go.release()
        at = written.get(timeout=60)
        page.locator("[data-field=rounds]", has_text=str(n)).wait_for(timeout=10_000)
        delays.append(time.monotonic() - at)
        while (
            page.evaluate(
                "document.querySelector('figure .canvas')._fullData[0].x.length"
            )
            < n
        ):
            assert time.monotonic() - at < 10.0, "the curve did not grow"
    assert statistics.median(delays) < 2.0, "one round may fall on a busy moment"
    go.release()
    writer.join(60)
    page.locator("[data-field=state]", has_text="done").wait_for(timeout=10_000)
    assert page.evaluate("window.never") == "reloaded"


def test_two_experiments_compare(
    folder: Path, console: Start, visit: Open, drawn: Any, picture: Any
) -> None:
    page = visit(console(folder))
    page.get_by_role("button", name="Compare selected").click()
    assert page.locator("[data-count]").inner_text() == "select runs first"
    page.get_by_label("compare all seeds of uniform").check()
    page.locator("[data-unfold]").first.click()
    for seed in (0, 1):
        page.get_by_label(f"compare asynchronous/seed-{seed}").check()
    assert page.get_by_label("compare all seeds of asynchronous").is_checked()
    page.get_by_role("button", name="Compare selected").click()
    page.wait_for_url("**/compare?**")
    assert page.locator("h1").inner_text() == "Comparison"
    text = page.locator("main").inner_text()
    assert "paired over 2 seeds" in text
    assert text.index("Ranking by final accuracy") < text.index("paired over 2 seeds")
    assert drawn(page) >= 3
    page.locator("figure").first.get_by_label("simulated time").check()
    picture(page, "compare")


def test_what_is_not_there_has_a_page(
    folder: Path, console: Start, visit: Open
) -> None:
    page = visit(f"{console(folder)}/run/unifrom/seed-0", expected=404)
    assert "did you mean 'uniform/seed-0'?" in page.locator("main").inner_text()
    page.get_by_role("link", name="All runs").click()
    assert page.locator("h1").inner_text() == "Runs"


def test_a_corrupted_run_has_a_page(
    tmp_path: Path, console: Start, visit: Open
) -> None:
    broken = run_into(small(rounds=2), tmp_path / "broken")
    (broken / "ledger.sqlite").write_bytes(b"no database" * 1000)
    address = console(tmp_path)
    page = visit(f"{address}/run/broken/seed-0", expected=409)
    assert "poise resume" in page.locator("main").inner_text()
    assert visit(address).locator(".state.damaged").count() == 1


def test_tags_need_the_token_and_are_there_the_next_time(
    tmp_path: Path, console: Start, visit: Open
) -> None:
    run_into(small(rounds=2), tmp_path / "tagged")
    address = console(tmp_path)
    page = visit(address, logged_in=False)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert "not the token" in page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill("the-token")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="tags of tagged/seed-0").click()
    page.keyboard.type("baseline, to keep")
    page.keyboard.press("Enter")
    page.locator(".tag").nth(1).wait_for()
    assert visit(address).locator(".tag").all_inner_texts() == ["baseline", "to keep"]
