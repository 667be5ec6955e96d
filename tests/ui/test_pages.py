"""Pages and answers: the run, the comparison, what is not there, what cannot be read."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from faults.support import call, changed, opened, run_into
from poise.analysis.reports import compare, comparison_as_data, group_runs
from poise.apps.ui.views.drawing import OF_A_RUN, Drawings
from reports.ledgers import made_run
from ui.support import a_run, client, copied


def test_the_page_of_a_run(runs: Path) -> None:
    page = client(runs).get("/run/small/seed-0")
    assert page.status_code == 200
    with opened(runs / "small" / "seed-0") as run:
        for words in (
            run.digest,
            "What was run",
            "uniform: m = 4",
            "[solver]",
            f"{run.metric('accuracy')[-1]:.4g}",
        ):
            assert words in page.text


@pytest.mark.parametrize("figure", sorted(OF_A_RUN))
def test_every_figure_is_what_the_api_says_it_is(runs: Path, figure: str) -> None:
    answer = client(runs).get(f"/api/figures/{figure}/small/seed-0")
    assert answer.status_code == 200
    found = Drawings.model_validate_json(answer.text)
    assert bool(found.plots) == (figure != "promises")
    for plot in found.plots:
        assert plot.title
        assert all({"data", "layout"} <= set(view.figure) for view in plot.views)


def test_curves_can_be_seen_against_rounds_real_time_and_bytes(runs: Path) -> None:
    first = client(runs).get("/api/figures/curves/small/seed-0").json()["plots"][0]
    assert first["title"] == "Accuracy"
    # a synchronous clock of equal times counts rounds, so simulated time would show the same again
    assert [view["name"] for view in first["views"]] == [
        "aggregations",
        "real time",
        "bytes sent",
    ]


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/run/nobody", "/run/small", "/run/..%2f..", "/compare?run=nobody"],
)
def test_what_is_not_there_is_said_on_a_page(runs: Path, path: str) -> None:
    answer = client(runs).get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert re.search("no such page|no run", answer.text)
    assert 'href="/"' in answer.text


ABSENT = (
    "nowhere",
    "run/nobody",
    "figures/curves/nobody",
    "live/nobody",
    "health/nobody",
    "compare?run=nobody",
    "run/..%2F..%2Fetc",
)


@pytest.mark.parametrize("path", ABSENT)
def test_what_is_not_there_is_said_to_programs(runs: Path, path: str) -> None:
    answer = client(runs).get(f"/api/{path}")
    assert answer.status_code == 404
    assert re.search("no such page|no run", answer.json()["error"])


def test_a_question_without_sense(runs: Path) -> None:
    for path in (
        "/api/figures/poems/small/seed-0",
        "/api/compare",
        "/api/live/small/seed-0?events=0",
    ):
        answer = client(runs).get(path)
        assert (answer.status_code, set(answer.json())) == (422, {"error", "hint"})


def test_a_run_whose_ledger_is_destroyed_has_a_page_that_helps(runs: Path) -> None:
    (runs / "small/seed-0/ledger.sqlite").write_bytes(b"no database at all" * 300)
    page = client(runs).get("/run/small/seed-0")
    assert page.status_code == 409
    for words in ("damaged", "poise resume", "not a database", "[solver]"):
        assert words in page.text
    answer = client(runs).get("/api/figures/curves/small/seed-0")
    assert (answer.status_code, "not a database" in answer.json()["error"]) == (
        409,
        True,
    )
    assert client(runs).get("/").status_code == 200, "the others are still listed"


def test_an_altered_round_is_named_when_the_records_are_checked(runs: Path) -> None:
    healthy = client(runs).get("/api/health/small/seed-0").json()
    with opened(runs / "small/seed-0") as run:
        assert healthy == {"rounds": 4, "damage": "", "digest": run.digest}
    database = sqlite3.connect(runs / "small/seed-0/ledger.sqlite")
    with database:
        database.execute("UPDATE contributions SET coefficient = 0.5 WHERE n = 2")
    database.close()
    assert "round 2" in client(runs).get("/api/health/small/seed-0").json()["damage"]


def test_a_missing_round_is_told_on_the_page_and_what_came_before_it_shown(
    runs: Path,
) -> None:
    database = sqlite3.connect(runs / "small/seed-0/ledger.sqlite")
    with database:
        database.execute("DELETE FROM rounds WHERE n = 2")
    database.close()
    page = client(runs).get("/run/small/seed-0").text
    assert "Part of the ledger is damaged" in page
    plots = client(runs).get("/api/figures/cohorts/small/seed-0").json()["plots"]
    assert "aggregation" in json.dumps(plots)


def test_two_runs_compare_as_the_command_does(runs: Path, tmp_path: Path) -> None:
    other = run_into(
        changed('name = "uniform"\nm = 4', 'name = "full"').replace(
            "rounds = 12", "rounds = 4"
        ),
        runs / "full",
    )
    names = ["small/seed-0", "full/seed-0"]
    answer = client(runs).get("/api/compare", params={"run": names}).json()
    with opened(runs / names[0]) as first, opened(other) as second:
        assert answer == json.loads(
            json.dumps(comparison_as_data(compare(group_runs([first, second]))))
        )
    told = json.loads(call("compare", runs / names[0], other, "--json").out)
    assert [c["sentence"] for c in answer["contrasts"]] == [
        c["sentence"] for c in told["contrasts"]
    ]
    page = client(runs).get("/compare", params={"run": names}).text
    for words in (
        "sampler=full",
        "sampler=uniform(m=4)",
        "one seed gives no interval",
        "final accuracy",
    ):
        assert words in page
    (accuracy, *_) = (
        client(runs).get("/api/compare/figures", params={"run": names}).json()["plots"]
    )
    lines = accuracy["views"][0]["figure"]["data"]
    assert [line["name"] for line in lines] == ["sampler=uniform(m=4)", "sampler=full"]


def test_too_many_runs_at_once_are_refused(runs: Path) -> None:
    many = {"run": [f"x{k}" for k in range(41)]}
    assert client(runs).get("/api/compare", params=many).status_code == 422
    page = client(runs).get("/compare", params=many)
    assert (page.status_code, "select at most 40" in page.text) == (422, True)


def test_nothing_selected_is_no_error(runs: Path) -> None:
    assert "Select runs" in client(runs).get("/compare").text


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    assert "poise run exp.toml" in client(tmp_path).get("/").text


def test_what_the_theory_says_is_shown_where_it_was_kept(tmp_path: Path) -> None:
    text = """
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.3
clients = 6
samples = 120
test_samples = 30
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.05
steps = 2
batch_size = 10
weight_decay = 0.1
[clock]
name = "fixed-window"
dt = 0.4
durations = [1.0, 0.7, 0.5, 0.25, 0.2, 0.2]
[weighting]
name = "identical"
[run]
rounds = 5
keep = "all"
"""
    folder = run_into(text, tmp_path / "convex")
    assert "poise explain" in client(tmp_path).get("/run/convex/seed-0").text
    said = json.loads(call("explain", folder, "--keep", "--json").out)
    page = client(tmp_path).get("/run/convex/seed-0").text
    assert "<h2>Theory</h2>" in page
    for warning in said["warnings"]:
        assert warning["fix"] in page
    (plot,) = (
        client(tmp_path).get("/api/figures/promises/convex/seed-0").json()["plots"]
    )
    assert {"measured", "predicted bias"} <= {
        trace["name"] for trace in plot["views"][0]["figure"]["data"]
    }


def test_an_explanation_can_be_kept_with_a_run_alone(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(changed("rounds = 12", "rounds = 2"))
    outcome = call("explain", tmp_path / "exp.toml", "--keep")
    assert (outcome.code, "needs a run folder" in outcome.err) == (2, True)


def test_an_asynchronous_run_shows_its_staleness_and_who_worked_when(
    tmp_path: Path,
) -> None:
    text = (
        changed('name = "uniform"\nm = 4', 'name = "full"')
        + '\n[clock]\nname = "asynchronous"\ndurations = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n'
    )
    run_into(text, tmp_path / "late")
    plots = client(tmp_path).get("/api/figures/times/late/seed-0").json()["plots"]
    assert [plot["title"] for plot in plots] == ["Staleness", "Client timeline"]


def test_a_run_whose_data_only_its_nodes_know(tmp_path: Path) -> None:
    made_run(
        {"accuracy": [0.5, 0.6]}, path=tmp_path / "deployed", data={"source": "nodes"}
    ).close()
    page = client(tmp_path).get("/run/deployed")
    assert (page.status_code, "nodes" in page.text) == (200, True)
    for figure in OF_A_RUN:
        assert (
            client(tmp_path).get(f"/api/figures/{figure}/deployed").status_code == 200
        )


def test_a_run_that_has_no_round_yet(tmp_path: Path) -> None:
    made_run(path=tmp_path / "young", status="running").close()
    assert client(tmp_path).get("/run/young").status_code == 200
    for figure in OF_A_RUN:
        assert client(tmp_path).get(f"/api/figures/{figure}/young").json() == {
            "plots": []
        }


def test_a_folder_that_is_one_run(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "only", rounds=2)
    assert client(folder).get("/run/seed-0").status_code == 200
    assert [line["name"] for line in client(folder).get("/api/runs").json()] == [
        "seed-0"
    ]
    copied(folder, folder / "unlearning" / "001")
    assert [line["branch_of"] for line in client(folder).get("/api/runs").json()] == [
        None,
        "seed-0",
    ]
