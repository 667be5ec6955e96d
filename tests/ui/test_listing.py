"""Runs as lines of a list."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from faults.support import opened, run_into, small
from poise.analysis.reports import scores
from poise.apps.experiments.runner import run_experiment
from poise.apps.ui.views.listing import BRANCHES, line_of, lines
from poise.config.experiment import parse
from poise.ledger.lock import Lock, held
from poise.ledger.store import Ledger
from poise.ledger.summary import RunSummary, read_summary
from poise.unlearning import histories
from ui.support import client, copied


def test_a_glance_tells_what_the_run_does(made: Path) -> None:
    seen = read_summary(made)
    with opened(made) as run:
        assert (seen.state, seen.rounds, seen.time) == (
            "done",
            run.rounds,
            run.times[-1],
        )
        assert seen.scores == {
            name: scores.final(run, name) for name in ("accuracy", "loss")
        }
        assert seen.experiment == run.experiment
        assert seen.meta == run.meta
        assert seen.pace == pytest.approx(run.seconds.mean())


def test_scores_are_those_of_the_last_measurement(tmp_path: Path) -> None:
    folder = run_into(
        small(rounds=5, evaluate_every=2, metrics='["train_loss"]'),
        tmp_path,
        stop_after=3,
    )
    with opened(folder) as run:
        assert math.isnan(run.metric("accuracy")[-1])
        assert read_summary(folder).scores == {
            n: scores.final(run, n) for n in ("accuracy", "loss", "train_loss")
        }


def status(folder: Path, value: str) -> None:
    ledger = Ledger.open(folder, writing=True)
    ledger.set("status", value)
    ledger.close()


def test_a_run_that_says_it_is_running_runs_only_as_long_as_somebody_writes_it(
    runs: Path,
) -> None:
    folder = runs / "small" / "seed-0"
    status(folder, "running")
    assert read_summary(folder).state == "stopped", "its process let go of the lock"
    lock = Lock(folder / "lock")
    lock.acquire()
    assert read_summary(folder).state == "running"
    lock.release()
    assert read_summary(folder).state == "stopped"


def test_a_killed_process_holds_no_run(runs: Path) -> None:
    folder = runs / "small" / "seed-0"
    status(folder, "running")
    code = (
        "import sys, pathlib, poise.ledger.lock as l; "
        "l.Lock(pathlib.Path(sys.argv[1])).acquire(); input(1)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, folder / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.read(1)
    assert (held(folder / "lock"), read_summary(folder).state) == (True, "running")
    child.kill()
    child.wait()
    assert json.loads((folder / "lock").read_text())["pid"] == child.pid, (
        "it left its name"
    )
    assert (held(folder / "lock"), read_summary(folder).state) == (False, "stopped")


def test_a_number_that_was_given_away_again_is_no_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    assert held(lock)
    os.utime(lock, (1e9, 1e9))  # written long before this process began
    assert not held(lock)
    lock.write_text(json.dumps({"pid": 1, "host": "another.example"}))
    assert held(lock), "nobody here can tell"
    for text in ("", "{}", "[]", "null", "no json"):
        lock.write_text(text)
        assert not held(lock)
    assert not held(tmp_path / "absent")


def test_states_that_a_run_tells_of_itself(tmp_path: Path) -> None:
    stopped = run_into(small(rounds=6), tmp_path / "stopped", stop_after=2)
    assert (read_summary(stopped).state, read_summary(stopped).rounds) == ("stopped", 2)
    status(stopped, "failed")
    ledger = Ledger.open(stopped, writing=True)
    ledger.event("failed: client 3 sent nothing")
    ledger.close()
    assert (read_summary(stopped).state, read_summary(stopped).trouble) == (
        "failed",
        "client 3 sent nothing",
    )


def test_a_run_without_a_ledger_and_one_with_a_broken_one(runs: Path) -> None:
    folder = runs / "small" / "seed-0"
    (folder / "ledger.sqlite").write_bytes(b"this is no database" * 100)
    broken = read_summary(folder)
    assert broken.state == "damaged"
    assert "not a database" in broken.trouble
    (folder / "ledger.sqlite").unlink()
    assert (read_summary(folder).state, read_summary(folder).rounds) == ("stopped", 0)
    shown = client(runs).get("/api/runs").json()
    assert [
        (line["state"], line["rounds"], line["recipe"]["sampler"]) for line in shown
    ] == [("stopped", 0, "uniform(m=4)")]


def seen(**values: object) -> RunSummary:
    facts = {
        "state": "running",
        "trouble": "",
        "experiment": "[run]\nrounds = 10\n",
        "meta": {"clients": "4", "seed": "0"},
    }
    return RunSummary(**{**facts, **values})  # type: ignore[arg-type]


def test_progress_and_what_is_left_by_rounds() -> None:
    line = line_of("a", seen(rounds=4, pace=30.0))
    assert (line.progress, line.eta, line.progress_words) == (
        0.4,
        180.0,
        "4 of 10 rounds, about 3 min left",
    )


def test_progress_and_what_is_left_by_simulated_time() -> None:
    line = line_of(
        "a",
        seen(
            experiment="[run]\ntime = 20.0\n", rounds=10, time=5.0, speed=0.5, pace=2.0
        ),
    )
    assert (line.progress, line.eta) == (
        0.25,
        60.0,
    )  # 15 units of time are 30 aggregations of 2 s


def test_a_run_that_does_not_run_has_no_time_left() -> None:
    assert line_of("a", seen(state="stopped", rounds=4, pace=30.0)).eta is None
    assert line_of("a", seen(rounds=0)).eta is None
    assert line_of("a", seen(experiment="")).progress is None


def test_seeds_of_one_experiment_share_an_interval_and_others_do_not() -> None:
    same = {
        f"a/seed-{k}": seen(
            scores={"accuracy": a}, meta={"clients": "4", "seed": str(k)}
        )
        for k, a in enumerate((0.7, 0.8, 0.9))
    }
    other = {"b": seen(experiment="[run]\nrounds = 11\n", scores={"accuracy": 0.1})}
    first, _, third, alone = lines({**same, **other}, {})
    assert first.over_seeds == third.over_seeds
    found = first.over_seeds["accuracy"]
    # t(0.975, 2) = 4.30265, s = 0.1: 4.30265 * 0.1 / sqrt(3) = 0.24841
    assert (found.n, found.mean) == (3, pytest.approx(0.8))
    assert found.high == pytest.approx(0.8 + 0.24841, abs=1e-5)
    assert (alone.over_seeds["accuracy"].n, alone.over_seeds["accuracy"].low) == (
        1,
        None,
    )


def test_copies_of_a_seed_count_once_in_the_interval() -> None:
    zero = seen(scores={"accuracy": 0.7})
    one = seen(scores={"accuracy": 0.9}, meta={"clients": "4", "seed": "1"})
    found = lines({"a/0": zero, "b/0": zero, "c/0": zero, "a/1": one}, {})
    interval = found[0].over_seeds["accuracy"]
    assert (interval.n, interval.mean) == (2, pytest.approx(0.8))


def test_the_row_of_two_copies_says_one_seed(runs: Path, made: Path) -> None:
    copied(made, runs / "other" / "seed-0")
    page = client(runs).get("/").text
    row = page.split('class="experiment"')[1].split("</tr>")[0]
    assert "other, small" in row.replace("<wbr>", "")
    assert "1 seed<small>2 runs; copies of a seed count once</small>" in row
    assert "2 seeds" not in row
    assert "seed = 0" not in row


def test_runs_that_are_not_done_do_not_pull_the_mean_of_those_that_are() -> None:
    both = lines(
        {
            "a": seen(state="done", scores={"loss": 1.0}),
            "b": seen(state="running", scores={"loss": 9.0}),
        },
        {},
    )
    assert [
        (line.over_seeds["loss"].mean, line.over_seeds["loss"].n) for line in both
    ] == [
        (1.0, 1),
        (1.0, 1),
    ]


def test_a_branch_of_forgetting_is_no_seed_of_its_training() -> None:
    both = lines(
        {
            "a": seen(scores={"loss": 1.0}),
            "a/unlearning/001": seen(scores={"loss": 2.0}),
        },
        {},
    )
    assert BRANCHES == histories.FOLDER
    assert [line.branch_of for line in both] == [None, "a"]
    assert [line.over_seeds["loss"].n for line in both] == [1, 1]


def test_a_diverged_score_is_null_and_in_no_mean() -> None:
    line = line_of("a", seen(scores={"loss": math.nan, "accuracy": 0.5}))
    assert line.scores == {"loss": None, "accuracy": 0.5}
    assert set(line.over_seeds) == {"accuracy"}


def test_an_experiment_file_that_is_none_is_told_and_hides_nobody_else(
    runs: Path, made: Path
) -> None:
    copied(made, runs / "odd")
    (runs / "odd" / "experiment.toml").write_text("this = is = no toml")
    odd, fine = client(runs).get("/api/runs").json()
    assert (odd["name"], "not TOML" in odd["trouble"]) == ("odd", True)
    assert (fine["name"], fine["trouble"]) == ("small/seed-0", "")
    assert client(runs).get("/").status_code == 200


def test_the_list_has_what_the_ledger_has(runs: Path) -> None:
    (line,) = client(runs).get("/api/runs").json()
    assert (line["name"], line["state"], line["rounds"], line["planned"]) == (
        "small/seed-0",
        "done",
        4,
        4,
    )
    assert (line["clients"], line["seed"], line["progress"]) == (10, 0, 1.0)
    assert line["recipe"]["solver"].startswith("sgd(")
    with opened(runs / "small" / "seed-0") as run:
        assert line["scores"]["accuracy"] == run.metric("accuracy")[-1]
    page = client(runs).get("/").text
    for words in (
        "small/<wbr>seed-0",
        "uniform(m=4)",
        "dirichlet",
        "4 of 4 rounds",
        "done",
    ):
        assert words in page


def test_names_and_files_that_look_like_html_stay_texts(runs: Path, made: Path) -> None:
    odd = copied(made, runs / "<script>alert(1)<" / "x")
    (odd / "experiment.toml").write_text(
        '[solver]\nname = "<img src=x>"\n[run]\nrounds = 4\n'
    )
    for path in (
        "/",
        "/run/%3Cscript%3Ealert(1)%3C/x",
        "/compare?run=%3Cscript%3Ealert(1)%3C/x",
    ):
        text = client(runs).get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text


def test_tags_are_kept_beside_the_runs_and_never_in_the_ledger(runs: Path) -> None:
    from poise.apps.ui.guard import Keys

    before = (runs / "small/seed-0/ledger.sqlite").read_bytes()
    browser = client(runs, Keys("t", "s"))
    put = browser.put(
        "/api/tags/small/seed-0",
        json={"tags": [" a  b ", "", "c", "c"]},
        headers={"authorization": "Bearer t"},
    )
    assert put.json() == {"tags": ["a b", "c"]}
    assert json.loads((runs / "console-tags.json").read_text()) == {
        "small/seed-0": ["a b", "c"]
    }
    assert client(runs).get("/api/runs").json()[0]["tags"] == ["a b", "c"]
    assert (runs / "small/seed-0/ledger.sqlite").read_bytes() == before
    assert (
        browser.put(
            "/api/tags/nobody", json={"tags": []}, headers={"authorization": "Bearer t"}
        ).status_code
        == 404
    )
    long = browser.put(
        "/api/tags/small/seed-0",
        json={"tags": ["x" * 41]},
        headers={"authorization": "Bearer t"},
    )
    assert (long.status_code, "too long" in long.json()["error"]) == (422, True)


def test_a_run_that_is_being_written_is_listed_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poise.ledger.store.GROUPED", 0.0)
    found = []

    def look(record: object) -> None:
        found.append(client(tmp_path).get("/api/runs").json()[0])

    run_experiment(
        parse(small(rounds=3)), tmp_path / "exp", [0], lambda seed, made: [look]
    )
    assert [(line["state"], line["rounds"]) for line in found] == [
        ("running", 1),
        ("running", 2),
        ("running", 3),
    ]
    assert found[0]["eta"] > 0
    assert client(tmp_path).get("/api/runs").json()[0]["state"] == "done"


def test_the_list_shows_the_order_of_close_means(tmp_path: Path) -> None:
    """Means with wide intervals were rounded to one text."""
    summaries = {
        f"{name}/seed-{seed}": RunSummary(
            "done",
            "",
            experiment=f"[solver]\nname = 'sgd'\nnote = '{name}'\n[data]\nsource = 'digits'\n",
            meta={"clients": "5", "seed": str(seed)},
            scores={"accuracy": mean + (seed - 0.5) / 5},
        )
        for name, mean in (("a", 0.281), ("b", 0.279))
        for seed in (0, 1)
    }
    shown = {
        line.name: line.over_seeds["accuracy"].text for line in lines(summaries, {})
    }
    assert shown["a/seed-0"] == "0.281 ± 1.3"
    assert shown["b/seed-0"] == "0.279 ± 1.3"


def test_the_list_folds_the_options_of_recipe_and_data(runs: Path) -> None:
    """Recipe and data took up to 14 lines of each row."""
    browser = client(runs)
    (line,) = browser.get("/api/runs").json()
    assert line["recipe"]["solver"].startswith("sgd(")
    assert "sgd" in line["recipe_words"]
    assert "(" not in line["recipe_words"] + line["data_words"]
    assert len(line["recipe_words"]) + len(line["data_words"]) < 60
    page = browser.get("/").text
    assert f"<summary>{line['recipe_words']}</summary>" in page
    assert f"<summary>{line['data_words']}</summary>" in page
    assert line["recipe"]["solver"] in page, "the filter finds options, too"
