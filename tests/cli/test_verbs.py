"""What the verbs do, and what they print for machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from faults.support import SMALL, call, opened, run_into, same, shell


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a short experiment, as the place where the user is."""
    (tmp_path / "exp.toml").write_text(SMALL.replace("rounds = 12", "rounds = 3"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(*arguments: object) -> Any:
    outcome = call(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_a_run_goes_to_runs_and_the_name_of_the_file(here: Path) -> None:
    assert document("run", "exp.toml")["runs"][0]["path"] == "runs/exp/seed-0"
    assert document("run", "exp.toml")["runs"][0]["path"] == "runs/exp-2/seed-0", (
        "a second time beside the first"
    )
    same(here / "runs/exp/seed-0", here / "runs/exp-2/seed-0")


def test_the_run_folder_has_what_the_documentation_says(here: Path) -> None:
    call("run", "exp.toml", "--out", "out")
    assert {p.name for p in Path("out/seed-0").iterdir()} >= {
        "experiment.toml",
        "ledger.sqlite",
        "lock",
        "models",
    }
    assert [p.name for p in Path("out").iterdir()] == ["seed-0"]


def test_a_run_in_a_few_numbers(here: Path) -> None:
    (only,) = document("run", "exp.toml", "--out", "out")["runs"]
    assert set(only) == {
        "path",
        "seed",
        "status",
        "ending",
        "rounds",
        "final",
        "digest",
    }
    assert (only["seed"], only["status"], only["rounds"]) == (0, "done", 3)
    with opened(here / "out" / "seed-0") as run:
        assert only["digest"] == run.digest
        assert only["final"] == {
            name: run.metric(name)[-1] for name in ("accuracy", "loss")
        }


def test_the_summary_names_the_run_folder(here: Path) -> None:
    outcome = call("run", "exp.toml", "--out", "out")
    assert outcome.code == 0, outcome.err
    assert "accuracy" in outcome.out
    assert "out/seed-0" in outcome.err.splitlines()


def test_set_changes_values(here: Path) -> None:
    changes = (
        "--set",
        "run.rounds=2",
        "--set",
        "solver.lr = 0.05",
        "--set",
        "run.keep=all",
        "--set",
        "sampler.m=10",
    )
    assert call("run", "exp.toml", "--out", "out", *changes).code == 0
    with opened(here / "out" / "seed-0") as run:
        assert run.rounds == 2
        assert run.kept == [0, 1, 2]
        assert (run.weights > 0).sum(axis=1).tolist() == [10, 10]
        assert "lr = 0.05" in run.experiment


@pytest.mark.parametrize(
    ("text", "seeds"), [("0..2", [0, 1, 2]), ("1,3", [1, 3]), ("7", [7])]
)
def test_every_seed_has_its_folder(text: str, seeds: list[int], here: Path) -> None:
    runs = document(
        "run", "exp.toml", "--out", "out", "--seeds", text, "--set", "run.rounds=1"
    )["runs"]
    assert [(r["seed"], r["path"]) for r in runs] == [
        (s, f"out/seed-{s}") for s in seeds
    ]
    assert len({r["digest"] for r in runs}) == len(seeds)


def test_a_seed_is_the_same_run_alone_or_among_others(here: Path) -> None:
    together = document("run", "exp.toml", "--out", "a", "--seeds", "0..2")["runs"]
    alone = document("run", "exp.toml", "--out", "b", "--seeds", "2")["runs"]
    assert together[2]["digest"] == alone[0]["digest"]


def test_a_taken_folder_is_refused_before_anything_runs(here: Path) -> None:
    document("run", "exp.toml", "--out", "out", "--seeds", "1")
    outcome = call("run", "exp.toml", "--out", "out", "--seeds", "0..1")
    assert outcome.code == 1
    assert "out/seed-1 already contains a run" in outcome.err
    assert "poise resume out/seed-1" in outcome.err
    assert not Path("out/seed-0").exists()


@pytest.mark.filterwarnings("ignore:diverged:UserWarning")
def test_a_diverged_run_says_so(here: Path) -> None:
    attack = '[[attacks]]\nname = "scaled"\nclients = [0, 1, 2, 3, 4]\nfraction = 1e6\n'
    Path("attacked.toml").write_text(Path("exp.toml").read_text() + attack)
    outcome = call("run", "attacked.toml", "--out", "out")
    assert outcome.code == 0
    assert "diverged: the last loss is" in outcome.err
    (run,) = document("resume", "out")["runs"]
    assert run["status"] == "diverged"
    assert call("report", "out", "--out", "page.html").code == 0
    assert "1 run diverged" in Path("page.html").read_text()


def test_resume_takes_no_rounds_back(here: Path) -> None:
    call("run", "exp.toml", "--out", "out")
    before = Path("out/seed-0/experiment.toml").read_bytes()
    outcome = call("resume", "out", "--rounds", "2")
    assert outcome.code == 2
    assert "rounds = 2, but the run has 3 rounds already" in outcome.err
    assert Path("out/seed-0/experiment.toml").read_bytes() == before
    assert document("resume", "out")["runs"][0]["rounds"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "exp.toml", "--seeds", "0..1000000000"), "is 1000000001 runs"),
        (("run", "exp.toml", "--seeds", "9" * 5000), "is not a list of seeds"),
        (
            ("unlearn", "out/seed-0", "--clients", "0..9999999999"),
            "10000000000 clients",
        ),
        (
            ("unlearn", "out/seed-0", "--clients", "9" * 5000),
            "is not a list of clients",
        ),
    ],
)
def test_huge_ranges_are_refused(
    arguments: tuple[str, ...], words: str, here: Path
) -> None:
    call("run", "exp.toml", "--out", "out")
    outcome = call(*arguments)
    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())


def test_resume_of_a_finished_run_does_nothing(here: Path) -> None:
    (before,) = document("run", "exp.toml", "--out", "out")["runs"]
    assert document("resume", "out/seed-0")["runs"] == [before]


def test_resume_takes_a_folder_of_seeds_and_more_rounds(here: Path) -> None:
    document("run", "exp.toml", "--out", "short", "--seeds", "0..1")
    longer = document(
        "run", "exp.toml", "--out", "long", "--seeds", "0..1", "--set", "run.rounds=5"
    )["runs"]
    resumed = document("resume", "short", "--rounds", "5")["runs"]
    assert [r["digest"] for r in resumed] == [r["digest"] for r in longer]
    same(here / "short/seed-1", here / "long/seed-1")


def test_long_paths_and_brackets_are_printed_as_they_are(here: Path) -> None:
    out = Path("[red]" + "x" * 100)
    outcome = call("run", "exp.toml", "--out", out)
    assert f"{out}/seed-0" in outcome.err.splitlines()


def test_list_names_the_parts_of_every_slot(here: Path) -> None:
    found = document("list")
    assert {
        "samplers",
        "weightings",
        "servers",
        "clocks",
        "solvers",
        "models",
        "recipes",
    } <= set(found)
    assert {"uniform", "full"} <= {row["name"] for row in found["samplers"]}
    assert all(row["what"] for row in found["samplers"])
    assert set(document("list", "samplers")) == {"samplers"}
    assert "uniform" in call("list", "samplers").out


def test_data_list_says_what_is_there(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISE_DATA", str(here / "nothing"))
    found = document("data", "list")
    assert "digits" in found["built-in"]
    assert "mnist" in {line["name"] for line in found["files"]}
    assert "mnist" in call("data", "list").out


def test_report_and_compare_read_runs(here: Path) -> None:
    document("run", "exp.toml", "--out", "a", "--seeds", "0..1")
    document(
        "run", "exp.toml", "--out", "b", "--seeds", "0..1", "--set", "solver.lr=0.01"
    )
    written = document("report", "a", "b/seed-0", "--out", "page.html")
    assert written["page"].endswith("page.html")
    assert len(written["runs"]) == 3
    assert "<html" in Path("page.html").read_text()
    assert document("compare", "a", "b")
    assert call("compare", "a", "b").code == 0


def test_compared_experiments_have_the_names_of_their_folders(here: Path) -> None:
    document("run", "exp.toml", "--out", "fast")
    document("run", "exp.toml", "--out", "slow", "--set", "solver.lr=0.01")
    shown = call("compare", "fast", "slow").out
    assert "fast  solver=" in shown, "how they differ"
    assert "slow vs fast: " in shown
    # the folder of two experiments names neither
    for seed, run in enumerate(("fast", "slow")):
        shutil.copytree(here / run / "seed-0", here / "both" / f"seed-{seed}")
    shown = call("compare", "both").out
    assert " vs solver=" in shown


def test_a_run_shows_the_range_over_its_clients(here: Path) -> None:
    metrics = 'run.metrics=["accuracy", "client_accuracy"]'
    outcome = call("run", "exp.toml", "--out", "out", "--set", metrics)
    with opened(here / "out" / "seed-0") as run:
        values = run.metric("client_accuracy")[-1]
    (line,) = [
        x for x in (outcome.out + outcome.err).splitlines() if "client_accuracy: " in x
    ]
    worst, best = int(values.argmin()), int(values.argmax())
    assert line.strip() == (
        f"client_accuracy: {values.min():.4g} (client {worst}) to "
        f"{values.max():.4g} (client {best})"
    )


def test_a_run_without_rounds_can_be_shown(here: Path) -> None:
    """Stopped before its first round: there is nothing to show, and that is no error."""
    run_into(SMALL, here / "out", stop_after=0)
    (only,) = document("resume", "out", "--rounds", "1")["runs"]
    assert only["rounds"] == 1


def test_help_shows_defaults_without_escapes() -> None:
    text = call("report", "--help").out
    assert "[default: report.html]" in text
    assert "\\" not in text


def test_help_needs_no_run(here: Path) -> None:
    for verb in (
        "run",
        "resume",
        "list",
        "report",
        "compare",
        "demo",
        "data",
        "explain",
    ):
        outcome = call(verb, "--help")
        assert outcome.code == 0
        assert "Usage: poise" in outcome.out


@pytest.mark.slow
def test_json_is_all_that_a_real_process_prints(here: Path) -> None:
    outcome = shell("run", "exp.toml", "--out", "out", "--json", cwd=here)
    assert outcome.code == 0, outcome.err
    assert len(outcome.out.splitlines()) == 1
    assert json.loads(outcome.out)["runs"][0]["rounds"] == 3


def test_a_warning_is_one_line_without_the_place_in_the_code(here: Path) -> None:
    keys = str(here / "config")
    outcome = shell("run", "exp.toml", "--out", "out", env={"POISE_KEYS": keys})
    lines = [line for line in outcome.err.splitlines() if "made a key" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: made a key")
