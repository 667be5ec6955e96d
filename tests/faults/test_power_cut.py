"""Power cuts: copies of a disk's image while a run writes to the disk.

The image has what the disk would have after a cut: what was flushed, and perhaps more.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from faults.support import (
    Command,
    LoggedRun,
    call,
    opened,
    provable,
    run_into,
    same,
    small,
)
from parameters import thorough_except
from poise.evidence.keys import load_key, new_key, read_public_key

ROUNDS = 2000
CUTS = 12
RULES = ("last", "all", "unlearnable")
MEGABYTES = 48


def experiment(keep: str) -> str:
    text = small(rounds=ROUNDS, keep=f'"{keep}"', evaluate_every=50)
    return text.replace("hidden = 16", "hidden = 4")


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """Mount an image; the system repairs it as after a cut.

    The disk writes unflushed names once a minute only, so that few survive by chance.
    """
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-o", "loop,commit=60", str(image), str(folder)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"mounting an image is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    file = tmp_path / "image"
    with file.open("wb") as empty:
        empty.truncate(MEGABYTES * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(file)], check=True)
    return file


def rounds_done(log: Path) -> list[tuple[int, float]]:
    """The rounds in a log with their times; the last line may be cut off."""
    lines = log.read_text().splitlines() if log.exists() else []
    done = []
    for line in lines:
        if line.endswith("]"):
            index, at = json.loads(line)
            done.append((index, at))
    return done


def cut(image: Path, copy: Path) -> None:
    """Copy the image: what the disk has after a cut at this moment."""
    subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)


def cut_during(
    pid: int, image: Path, copy: Path, log: Path | None = None
) -> list[tuple[int, float]]:
    """Copy the image at one moment of a process; return the rounds it had logged then."""
    os.kill(pid, signal.SIGSTOP)
    try:
        cut(image, copy)
        return [] if log is None else rounds_done(log)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_power_cut_after_a_key_was_made_does_not_lose_the_key(
    image: Path, tmp_path: Path
) -> None:
    """Neither the private key, which goes on signing, nor the public one for others."""
    after_cut = tmp_path / "after-cut"
    with mounted(image, tmp_path / "disk") as disk:
        key = new_key("own", disk / "config" / "keys")
        cut(image, after_cut)
    with mounted(after_cut, tmp_path / "again") as disk:
        keys = disk / "config" / "keys"
        assert load_key("own", keys).public == key.public
        assert read_public_key(keys / "own.pub") == key.public


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the run that no cut met; each test makes at most one of the three."""
    where = tmp_path_factory.mktemp("whole")

    @cache
    def whole_run(keep: str) -> Path:
        return run_into(experiment(keep), where / keep)

    return whole_run


def within_one_group(lost: list[tuple[int, float]], since: float) -> bool:
    """Whether lost rounds came within 0.2 seconds, or within the longest of them."""
    times = [since, *(at for _, at in lost)]
    longest = max((b - a for a, b in pairwise(times)), default=0.0)
    return times[-1] - since <= 0.2 + longest


@pytest.mark.parametrize("number", thorough_except([0, 1], range(CUTS)))
def test_a_power_cut_loses_no_recorded_round_and_no_named_file(
    number: int, image: Path, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    """Cuts with an even number meet a ledger that flushes every round, as on real nodes."""
    every_round = number % 2 == 0
    keep = RULES[number % 3]
    draw = random.Random(number)
    log = tmp_path / "log"
    after_cut = tmp_path / "after-cut"
    with mounted(image, tmp_path / "disk") as disk:
        process = LoggedRun(experiment(keep), disk, log, every_round)
        least = draw.randrange(1, ROUNDS // 4)
        while process.alive and len(rounds_done(log)) < least:
            time.sleep(0.002)
        done = cut_during(process.pid, image, after_cut, log)
        process.kill()
    assert len(done) < ROUNDS, "the run was over before the cut"
    with mounted(after_cut, tmp_path / "again") as disk:
        run = disk / "seed-0"
        with opened(run) as survivor:
            assert survivor.damage == ""
            survivor.verify()
            assert survivor.models(0).ndim == 1
            recorded = survivor.rounds
        lost = [entry for entry in done if entry[0] > recorded]
        kept = [at for index, at in done if index <= recorded]
        if every_round:
            assert not lost, "every round was flushed before the next began"
        else:
            assert within_one_group(lost, kept[-1] if kept else done[0][1])
        outcome = call("resume", run, "--json")
        assert outcome.code == 0, outcome.err
        same(run, whole(keep))


REQUEST = provable(rounds=30, keep='"all"')


@pytest.mark.parametrize("number", thorough_except([0], range(8)))
def test_a_power_cut_during_a_request_leaves_it_to_be_repeated(
    number: int, image: Path, tmp_path: Path
) -> None:
    options = (
        "--clients",
        3,
        "--seeded-noise",
        "--max-rounds",
        400,
        "--min-rounds",
        400,
    )
    after_cut = tmp_path / "after-cut"
    with mounted(image, tmp_path / "disk") as disk:
        run = run_into(REQUEST, disk)
        subprocess.run(["sync", "-f", str(disk)], check=True)
        process = Command(tmp_path, "unlearn", run, *options)
        branch = run / "unlearning" / "001"
        while process.alive and not branch.exists():
            time.sleep(0.0005)
        time.sleep(random.Random(number).uniform(0, 0.15))
        cut_during(process.pid, image, after_cut)
        process.wait()
    with mounted(after_cut, tmp_path / "again") as disk:
        run = disk / "seed-0"
        with opened(run) as training:
            training.verify()
            assert training.rounds == 30
        for file in run.rglob("*.json"):
            json.loads(file.read_bytes())
        outcome = Command(tmp_path, "unlearn", run, *options).wait()
        assert outcome.code == 0, outcome.err
        certificate = run / "unlearning" / "001" / "certificate.json"
        outcome = Command(tmp_path, "verify", certificate).wait()
        assert outcome.code == 0, outcome.err
