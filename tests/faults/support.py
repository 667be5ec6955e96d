"""Shared helpers: a small experiment, and ways to run it."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np
import pytest

from poise.apps.cli import main
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse
from poise.core.types import Record
from poise.ledger import store
from poise.results import Run, open_run

SMALL = """\
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.3
clients = 10
samples = 300
test_samples = 60

[task]
model = "mlp"
hidden = 16

[solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 10

[sampler]
name = "uniform"
m = 4

[run]
rounds = 12
keep = "last"
metrics = ["client_loss"]
"""


def small(**run: object) -> str:
    """The small experiment with other values under [run]: ``small(rounds=30, keep='"all"')``."""
    lines = SMALL.splitlines()
    for key, value in run.items():
        lines = [line for line in lines if not line.startswith(f"{key} =")]
        lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def provable(**run: object) -> str:
    """Return `small` with losses and a learning rate for which unlearning has a proof."""
    text = small(**run).replace('model = "mlp"\nhidden = 16', 'model = "logistic"')
    return text.replace("lr = 0.1", "lr = 0.02")


def changed(old: str, new: str) -> str:
    """The small experiment with one line replaced."""
    assert old in SMALL, old
    return SMALL.replace(old, new)


def run_into(text: str, folder: Path, stop_after: int | None = None) -> Path:
    """Run an experiment (seed 0) in this process and return its run folder; optionally stop it
    early."""
    done = 0

    def count(record: object) -> None:
        nonlocal done
        done += 1

    (run,) = run_experiment(
        parse(text),
        folder,
        [0],
        lambda seed, made: [count],
        lambda: stop_after is not None and done >= stop_after,
    )
    run.close()
    return folder / "seed-0"


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Outcome:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["poise", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def shell(
    *arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Outcome:
    """The command line as the user starts it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "poise", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["poise.apps.cli.run", "sklearn.datasets"])


class Command:
    """The command line in a process that can be sent signals; forked from one that has PyTorch
    loaded already."""

    def __init__(self, folder: Path, *arguments: object, umask: int = 0o022) -> None:
        self._log = folder / f"command-{len(list(folder.glob('command-*')))}"
        self._process = _fork.Process(
            target=_command, args=([str(a) for a in arguments], str(self._log), umask)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> bool:
        """``kill -9``, wait until the process is gone, and return whether it was alive."""
        self._process.kill()
        self._process.join()
        return self._process.exitcode == -signal.SIGKILL

    def wait(self) -> Outcome:
        self._process.join(timeout=120)
        assert self._process.exitcode is not None
        return Outcome(
            self._process.exitcode,
            *(self._log.with_suffix(s).read_text() for s in (".out", ".err")),
        )


class LoggedRun:
    """A run in a process of its own that logs the time at which each round was over."""

    def __init__(self, text: str, folder: Path, log: Path, every_round: bool) -> None:
        self._process = _fork.Process(
            target=_logged_run, args=(text, str(folder), str(log), every_round)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """``kill -9``, and wait until the process is gone."""
        self._process.kill()
        self._process.join()


def _logged_run(text: str, folder: str, log: str, every_round: bool) -> None:
    if every_round:
        store.GROUPED = 0.0
    with open(log, "w", buffering=1, encoding="utf-8") as rounds:

        def note(record: Record) -> None:
            rounds.write(json.dumps([record.index + 1, time.monotonic()]) + "\n")

        run_experiment(
            parse(text), Path(folder), [0], lambda seed, made: [note], lambda: False
        )


def _command(arguments: list[str], log: str, umask: int) -> None:
    os.umask(umask)
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(
            os.open(log + suffix, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number
        )
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.argv = ["poise", *arguments]
    try:
        main()
    finally:
        sys.stdout.flush()


def same(one: Path, other: Path) -> None:
    """Two run folders hold the same run, bit for bit: digest, metrics, weights, and every kept
    model."""
    with opened(one) as a, opened(other) as b:
        assert (a.rounds, a.digest) == (b.rounds, b.digest)
        assert (a.damage, b.damage) == ("", "")
        assert a.metrics == b.metrics
        for name in a.metrics:
            assert a.metric(name).tobytes() == b.metric(name).tobytes(), name
        assert a.model.tobytes() == b.model.tobytes()
        assert np.array_equal(a.weights, b.weights)
        a.verify()
    assert files(one / "models") == files(other / "models")
    assert (one / "experiment.toml").read_bytes() == (
        other / "experiment.toml"
    ).read_bytes()


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Run]:
    """A run to read, closed afterwards."""
    run = open_run(path)
    try:
        yield run
    finally:
        run.close()


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Fail the test if the block takes longer, also if it hangs in the system.

    poise reports an `AssertionError` as an unreadable run; it does not catch the
    failure of a test.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
