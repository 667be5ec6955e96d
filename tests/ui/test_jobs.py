"""Actions as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poise.apps.ui.jobs import Busy, ConsoleJob, ConsoleJobs
from poise.apps.ui.library import NotInRun


def ended(jobs: ConsoleJobs, job: ConsoleJob, seconds: float = 120.0) -> ConsoleJob:
    until = time.monotonic() + seconds
    while (found := jobs.get(job.id)).state == "running":
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_a_job_is_the_command_and_its_document(tmp_path: Path) -> None:
    jobs = ConsoleJobs(tmp_path)
    done = ended(
        jobs,
        jobs.start("list", "what there is", ["list", "servers"], {"for": "a test"}),
    )
    assert (done.state, done.command) == ("done", "poise list servers")
    assert "add" in str(done.outcome)
    assert done.about == {"for": "a test"}
    assert [job.id for job in jobs.all()] == [done.id]


def test_a_mistake_is_told_in_the_words_of_the_command(tmp_path: Path) -> None:
    jobs = ConsoleJobs(tmp_path)
    failed = ended(
        jobs,
        jobs.start("verify", "verify nothing", ["verify", str(tmp_path / "none.json")]),
    )
    assert failed.state == "failed"
    assert "cannot read" in failed.error
    assert "error: cannot read" in failed.log


def test_one_at_a_time(tmp_path: Path) -> None:
    jobs = ConsoleJobs(tmp_path)
    first = jobs.start(
        "run",
        "take a while",
        ["run", str(slow(tmp_path)), "--out", str(tmp_path / "out")],
    )
    with pytest.raises(Busy, match="take a while"):
        jobs.start("list", "too early", ["list"])
    running = jobs.running()
    assert running is not None
    assert running.id == first.id
    grown(tmp_path / "out" / "seed-0")
    jobs.stop(first.id)
    stopped = ended(jobs, first)
    assert (
        stopped.state == "done"
    )  # stopped cleanly, like Ctrl-C: every finished round is kept
    assert ended(jobs, jobs.start("list", "now", ["list"])).state == "done"
    with pytest.raises(Busy, match="has already ended"):
        jobs.stop(first.id)


def test_a_killed_job_ended_without_a_result(tmp_path: Path) -> None:
    jobs = ConsoleJobs(tmp_path)
    job = jobs.start(
        "run",
        "take a while",
        ["run", str(slow(tmp_path)), "--out", str(tmp_path / "out")],
    )
    grown(tmp_path / "out" / "seed-0")
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    assert ended(jobs, job).error == "the action ended without a result"


def test_a_killed_console_loses_no_job(tmp_path: Path) -> None:
    arguments = ["run", str(slow(tmp_path)), "--out", str(tmp_path / "out")]
    script = (
        "import sys, time; from pathlib import Path; from poise.apps.ui.jobs import ConsoleJobs\n"
        f"jobs = ConsoleJobs(Path({str(tmp_path)!r}))\n"
        f"print(jobs.start('run', 'go on', {arguments!r}).id, flush=True)\n"
        "time.sleep(600)"
    )
    console = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert console.stdout is not None
    name = console.stdout.readline().strip()
    console.kill()
    console.wait()
    jobs = ConsoleJobs(tmp_path)
    assert jobs.get(name).state == "running"
    grown(tmp_path / "out" / "seed-0")
    jobs.stop(name)
    assert ended(jobs, jobs.get(name)).state == "done"


@pytest.mark.parametrize("name", ["none", "..", "../jobs", "/etc", "a\0b"])
def test_a_job_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotInRun, match="this run has no action"):
        ConsoleJobs(tmp_path).get(name)


def slow(folder: Path) -> Path:
    """An experiment that does not end by itself in the time of a test."""
    from faults.support import small

    file = folder / "slow.toml"
    file.write_text(small(rounds=1_000_000), encoding="utf-8")
    return file


def grown(run: Path, seconds: float = 120.0) -> None:
    """Wait for the first rounds of a run."""
    from poise.ledger.summary import read_summary

    until = time.monotonic() + seconds
    while not (run / "ledger.sqlite").exists() or read_summary(run).rounds < 2:
        assert time.monotonic() < until
        time.sleep(0.1)
