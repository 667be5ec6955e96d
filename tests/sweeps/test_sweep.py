"""`poise sweep`: every configuration once, the same bits however often it is interrupted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from scipy import stats

import poise
from faults.support import Command, call, run_into, shell, small
from poise.apps.experiments.sweep_folder import SweepFolder
from poise.apps.experiments.sweep_jobs import RunOrder
from poise.config.experiment import load
from poise.core.errors import InvalidOption, LedgerError, RunLocked
from poise.ledger.lock import Lock
from poise.results import open_run
from sweeps.support import ROUNDS, digests, file_in, values

OVER = {"solver.lr": [0.01, 0.1], "sampler.m": [2, 4]}
NAMES = ["lr=0.01,m=2", "lr=0.01,m=4", "lr=0.1,m=2", "lr=0.1,m=4"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four configurations with two seeds, one run after another."""
    folder = tmp_path_factory.mktemp("swept")
    poise.sweep(file_in(folder), OVER, seeds=(0, 1), out=folder / "out")
    return folder / "out"


def test_every_configuration_is_the_run_of_its_file(
    swept: Path, tmp_path: Path
) -> None:
    found = digests(swept)
    assert list(found) == [f"{name}/seed-{k}" for name in NAMES for k in (0, 1)]
    text = (
        small(rounds=ROUNDS).replace("lr = 0.1", "lr = 0.01").replace("m = 4", "m = 2")
    )
    run = open_run(run_into(text, tmp_path))
    assert found["lr=0.01,m=2/seed-0"] == f"{ROUNDS} {run.digest}"


@pytest.mark.slow
def test_two_processes_end_in_the_same_bits(swept: Path, tmp_path: Path) -> None:
    file = file_in(tmp_path)
    outcome = shell(
        "sweep",
        file,
        *values(OVER),
        "--seeds",
        "0..1",
        "--jobs",
        "2",
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert outcome.code == 0, outcome
    assert digests(tmp_path / "out") == digests(swept)
    document = json.loads(outcome.out)
    assert document["best"] in NAMES
    assert document["finished"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_sweep_continues_to_the_same_bits(
    jobs: int, swept: Path, tmp_path: Path
) -> None:
    draw = random.Random(jobs)
    file = file_in(tmp_path)
    out = tmp_path / "out"
    command = ["sweep", file, *values(OVER), "--seeds", "0..1", "--rungs", "4"]
    command += ["--eta", "2", "--jobs", jobs, "--out", out, "--json"]
    for at in (0, 2, 5):  # runs that have begun
        process = Command(tmp_path, *command)
        while process.alive and len(list(out.glob("*/*/ledger.sqlite"))) < at + 1:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.05))
        process.kill()
    outcome = Command(tmp_path, *command).wait()
    assert outcome.code == 0, outcome
    file_in(tmp_path)
    plain = tmp_path / "plain"
    poise.sweep(file, OVER, seeds=(0, 1), rungs=(4,), eta=2, out=plain)
    assert digests(out) == digests(plain)
    assert (out / "sweep.json").read_text() == (plain / "sweep.json").read_text()
    whole = digests(swept)
    ended = {k: v for k, v in digests(out).items() if v.startswith(f"{ROUNDS} ")}
    assert len(ended) == 4
    assert ended.items() <= whole.items()


def test_a_worker_without_its_parent_ends_quietly(tmp_path: Path) -> None:
    experiment = {**load(file_in(tmp_path)).tables}
    out = str(tmp_path / "out")
    order = RunOrder("a", experiment, None, seed=0, folder=out)
    worker = subprocess.Popen(
        [sys.executable, "-m", "poise.apps.experiments.sweep_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    worker.stdout.close()
    for message in ({"path": [], "number": 0, "jobs": 1}, {"order": asdict(order)}):
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()
    assert worker.wait(timeout=60) == 0
    assert worker.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_all_runs_after_their_rounds(jobs: int, tmp_path: Path) -> None:
    file = file_in(tmp_path)
    out = tmp_path / "out"
    text = file.read_text().replace(f"rounds = {ROUNDS}", "rounds = 100000")
    file.write_text(text)
    command = ["sweep", file, *values(OVER), "--jobs", jobs, "--out", out]
    process = Command(tmp_path, *command)
    while process.alive and len(list(out.glob("*/*/ledger.sqlite"))) < jobs:
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    outcome = process.wait()
    assert outcome.code == 0, outcome
    assert f"continue with: poise resume {out}" in outcome.err
    begun = list(out.glob("*/*/ledger.sqlite"))
    assert len(begun) == jobs
    for database in begun:
        run = open_run(database.parent)
        assert run.meta["status"] == "stopped"
        assert run.rounds > 0
        run.close()


def test_a_stopped_sweep_keeps_finished_runs_and_continues(
    swept: Path, tmp_path: Path
) -> None:
    file = file_in(tmp_path)
    rounds = 0

    def count(news: object) -> None:
        nonlocal rounds
        rounds += 1

    out = tmp_path / "out"
    made = poise.sweep(
        file, OVER, seeds=(0, 1), out=out, observe=count, stop=lambda: rounds > 8
    )
    assert not made.finished
    done = {
        name for name, found in digests(out).items() if found in digests(swept).values()
    }
    assert done
    stamps = {name: (out / name / "ledger.sqlite").stat().st_mtime_ns for name in done}
    assert call("resume", out).code == 0
    assert digests(out) == digests(swept)
    for name, stamp in stamps.items():
        assert (out / name / "ledger.sqlite").stat().st_mtime_ns == stamp


def test_all_wrong_configurations_are_named_before_any_runs(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    over = {"solver.lr": [-1, 0.1], "sampler.m": [2, 99]}
    outcome = call("sweep", file, *values(over), "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "3 of 4 configurations are wrong; none has run" in outcome.err
    assert "lr=-1,m=2, lr=-1,m=99: solver.lr=-1: " in outcome.err
    assert "lr=0.1,m=99: sampler.m=99: " in outcome.err
    assert not (tmp_path / "out").exists()


def test_many_wrong_configurations_are_counted_and_the_way_out_is_named(
    tmp_path: Path,
) -> None:
    file = file_in(tmp_path)
    over = {"sampler.name": ["md", "uniform"], "solver.lr": [0.1, 0.2, 0.3, 0.4, 0.5]}
    outcome = call("sweep", file, *values(over), "--out", tmp_path / "out")
    assert "5 of 10 configurations are wrong" in outcome.err
    assert "sampler=md,lr=0.3 and 2 more: " in outcome.err
    assert "lr=0.4: " not in outcome.err
    whole = "sampler={name='md',m=4},{name='uniform',m=4}"
    assert f'--over "{whole}"' in outcome.err
    right = call("sweep", file, "--over", whole, "--out", tmp_path / "out", "--dry-run")
    assert right.code == 0, right.err


def test_resume_says_how_to_continue_with_several_jobs(swept: Path) -> None:
    words = "repeat the `poise sweep` command"
    outcome = call("resume", swept, "--jobs", "2")
    assert (outcome.code, words in outcome.err) == (2, True)
    help_text = " ".join(call("resume", "--help").out.split())
    assert "To continue a sweep with several jobs, repeat" in help_text
    assert "--jobs" not in help_text


def test_an_option_without_its_table_is_suggested(tmp_path: Path) -> None:
    outcome = call("sweep", file_in(tmp_path), "--over", "lr=0.1,0.2")
    assert outcome.code == 2
    assert "did you mean 'solver.lr'?" in outcome.err


def test_a_dry_run_lists_all_runs_and_makes_none(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    options = ["--seeds", "0..2", "--out", tmp_path / "out", "--dry-run"]
    outcome = call("sweep", file, *values(OVER), *options)
    assert outcome.code == 0, outcome
    assert "12 runs: 4 configurations with 3 seeds" in outcome.out
    for name in NAMES:
        assert name in outcome.out
    document = json.loads(call("sweep", file, *values(OVER), *options, "--json").out)
    assert [line["name"] for line in document["configurations"]] == NAMES
    assert document["runs"] == 12
    assert not (tmp_path / "out").exists()


def test_the_table_sweep_of_the_file_gives_the_options(tmp_path: Path) -> None:
    table = """
[sweep]
seeds = [3, 4]
metric = "loss"
[sweep.over]
weighting = [{name = "exp", alpha = 0.2}, "proportional"]
"""
    file = file_in(tmp_path, table)
    made = poise.sweep(file, out=tmp_path / "out")
    assert [c.name for c in made.configurations] == [
        "weighting=exp-alpha=0.2",
        "weighting=proportional",
    ]
    assert made.configurations[0].seeds == (3, 4)
    assert (made.metric, made.plan.lower_is_better) == ("loss", True)
    exp = open_run(tmp_path / "out" / "weighting=exp-alpha=0.2" / "seed-3")
    assert 'name = "exp"' in exp.experiment
    wrong = file_in(tmp_path, table.replace("metric", "metrik"))
    outcome = call("sweep", wrong, "--out", tmp_path / "wrong")
    assert outcome.code == 2
    line = wrong.read_text().splitlines().index('metrik = "loss"') + 1
    assert f"exp.toml, line {line}: [sweep] has no key 'metrik'" in outcome.err


def test_a_plain_run_of_the_file_leaves_the_sweep_out(tmp_path: Path) -> None:
    file = file_in(tmp_path, "[sweep.over]\nsolver.lr = [1.0]\n")
    assert call("run", file, "--out", tmp_path / "out").code == 0
    assert "sweep" not in (tmp_path / "out" / "seed-0" / "experiment.toml").read_text()


def test_the_ranking_has_the_interval_over_the_seeds(swept: Path) -> None:
    made = poise.open_sweep(swept)
    for found in made.configurations:
        finals = []
        for run in made.runs(found.name):
            finals.append(float(run.metric("accuracy")[-1]))
            run.close()
        assert found.values == tuple(finals)
        mean = sum(finals) / 2
        error = abs(finals[0] - finals[1]) / 2  # s / sqrt(2) of two values
        estimate = found.estimate
        assert estimate is not None
        assert estimate.mean == pytest.approx(mean)
        if error:
            low, high = stats.t.interval(0.95, df=1, loc=mean, scale=error)
            assert (estimate.low, estimate.high) == pytest.approx((low, high))
    means = [c.estimate.mean for c in made.ranking if c.estimate is not None]
    assert means == sorted(means, reverse=True)
    assert made.best is made.ranking[0]


def test_rows_are_one_per_run_with_settings_and_metric(swept: Path) -> None:
    rows = poise.open_sweep(swept).rows()
    assert len(rows) == 8
    first = rows[0]
    assert first["solver.lr"] == 0.01
    assert (first["sampler.m"], first["seed"], first["state"]) == (2, 0, "done")
    assert first["path"] == str(swept / "lr=0.01,m=2" / "seed-0")
    assert 0 <= first["accuracy"] <= 1


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    out = tmp_path / "out"
    over = {"solver.lr": [0.1]}
    poise.sweep(file, over, out=out)
    with pytest.raises(InvalidOption, match=r"began with more: lr=0\.1"):
        poise.sweep(file, {"solver.lr": [0.2]}, out=out)
    other = tmp_path / "other.toml"
    other.write_text(file.read_text().replace("steps = 2", "steps = 3"))
    with pytest.raises(InvalidOption, match=r"began with another \[solver\]"):
        poise.sweep(other, over, out=out)
    with pytest.raises(InvalidOption, match="began with rungs"):
        poise.sweep(file, over, rungs=(3,), out=out)


def test_a_sweep_can_grow_by_values_and_seeds(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    out = tmp_path / "out"
    poise.sweep(file, {"solver.lr": [0.1]}, out=out)
    before = digests(out)
    poise.sweep(file, {"solver.lr": [0.01, 0.1]}, seeds=(0, 1), out=out)
    after = digests(out)
    assert len(after) == 4
    assert before.items() <= after.items()


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_fails_does_not_end_the_sweep(jobs: int, tmp_path: Path) -> None:
    file = file_in(tmp_path)
    over = {"solver.lr": [1e300, 0.1]}
    outcome = shell(
        "sweep", file, *values(over), "--jobs", jobs, "--out", tmp_path / "s"
    )
    assert outcome.code == 0, outcome
    assert "lr=1e+300/seed-0: " in outcome.err
    made = poise.open_sweep(tmp_path / "s")
    assert [c.name for c in made.ranking] == ["lr=0.1", "lr=1e+300"]
    assert [c.state for c in made.ranking] == ["done", "failed"]
    assert made.best is made.ranking[0]


def test_two_processes_cannot_run_the_same_sweep(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    lock = Lock(out / "lock")
    lock.acquire()
    try:
        with pytest.raises(RunLocked, match="is being written by process"):
            poise.sweep(file_in(tmp_path), {"solver.lr": [0.1]}, out=out)
    finally:
        lock.release()


def test_early_ends_and_rungs_work_together(tmp_path: Path) -> None:
    file = file_in(tmp_path, stop_when='"accuracy >= 0.0"')
    made = poise.sweep(file, {"solver.lr": [0.01, 0.1]}, rungs=(4,), out=tmp_path / "s")
    assert {run.rounds for c in made.configurations for run in c.progress} == {1}
    assert made.best is not None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 9}', '{"format": 1}'])
def test_a_damaged_plan_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(content)
    for verb in (["resume", tmp_path], ["report", tmp_path], ["compare", tmp_path]):
        outcome = call(*verb)
        assert outcome.code == 1, outcome
        assert "sweep.json" in outcome.err
        assert "Traceback" not in outcome.err


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="not the folder of a sweep"):
        poise.open_sweep(tmp_path)
    run_into(small(rounds=2), tmp_path)
    with pytest.raises(LedgerError, match="holds a run already"):
        poise.sweep(file_in(tmp_path), {"solver.lr": [0.1]}, out=tmp_path / "seed-0")


def test_report_and_compare_read_a_sweep(swept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert call("report", swept, "--out", page).code == 0
    text = page.read_text()
    for name in NAMES:
        assert name in text
    assert "Configurations and their results" in text
    assert "accuracy by solver.lr" in text
    assert "http://" not in text.split("<script>")[0]
    outcome = call("compare", swept)
    assert outcome.code == 0
    assert "--pairwise" in outcome.out
    assert len(json.loads(call("compare", swept, "--json").out)["ranking"]) == 4


def test_the_name_of_a_swept_configuration_opens_its_runs(swept: Path) -> None:
    made = poise.open_sweep(swept)
    with pytest.raises(InvalidOption, match="did you mean"):
        made.runs("lr=0.1,m=3 ")
    assert SweepFolder(swept).progress_of("lr=0.1,m=2", 0).ended
