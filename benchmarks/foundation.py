"""Speed of one round against a plain PyTorch loop, in one process, interleaved.

python benchmarks/foundation.py [--only NAME] [--repeats 5] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from baselines import lower_bound, plain_loop
from reports_overhead import overheads

import poise
from poise.core.equation import combine
from poise.core.samples import Samples
from poise.core.threads import one_thread
from poise.tasks.models import MODELS


@dataclass(frozen=True)
class Work:
    """One round: m clients x steps x batch of a model, and how much faster than the plain loop it
    must be.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    clients: int
    steps: int
    batch: int
    goal: float
    text: bool = False
    share_goal: float | None = None

    @property
    def label(self) -> str:
        return f"{self.name}: {self.clients} clients × {self.steps} steps × batch {self.batch}"


IMAGE, PHOTO = (1, 28, 28), (3, 32, 32)
WORKS = [
    Work("logistic", "logistic", IMAGE, 100, 10, 50, 4.0, share_goal=0.25),
    Work("logistic-many", "logistic", IMAGE, 500, 5, 10, 15.0),
    Work("mlp", "mlp", IMAGE, 100, 10, 50, 3.5),
    Work("mlp-many", "mlp", IMAGE, 500, 5, 10, 7.0),
    Work("cnn", "cnn", IMAGE, 50, 8, 64, 1.4, share_goal=0.10),
    Work("lstm", "lstm", (80,), 10, 5, 64, 1.2, text=True),
    Work("resnet20", "resnet20", PHOTO, 4, 4, 64, 1.2),
]


def data_of(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and labels for every client of a work; their values do not matter for speed."""
    rng = np.random.default_rng(0)
    size = work.steps * work.batch
    x = rng.integers(
        0, 100 if work.text else 256, (work.clients * size, *work.shape), dtype=np.uint8
    )
    return x, rng.integers(0, 100 if work.text else 10, work.clients * size)


def federation_of(work: Work) -> Any:
    """The same data as a federation, every client with just the samples of one round."""
    x, y = data_of(work)
    parts = np.array_split(np.arange(len(x)), work.clients)
    if not work.text:
        return poise.federation((x, y), partition=parts)
    return poise.federation((x, y), partition=parts, vocabulary=100)


class Rounds:
    """A poise run whose rounds are timed one by one, with its ledger on disk."""

    def __init__(self, work: Work, workers: int | None = None) -> None:
        self.work, self.workers = work, workers
        self.federation = federation_of(work)

    def seconds(self, rounds: int) -> list[float]:
        """Wall-clock of rounds between the first (warming up) and the last (measured), written to
        disk.
        """
        stamps: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            poise.train(
                self.federation,
                poise.task(self.work.model),
                solver=poise.solvers.SGD(
                    lr=0.01, steps=self.work.steps, batch_size=self.work.batch
                ),
                rounds=rounds + 2,
                evaluate_every=10**9,
                metrics=(),
                out=Path(folder) / "run",
                backend=poise.backends.Local(workers=self.workers),
                callbacks=[lambda record: stamps.append(time.perf_counter())],
                keep="last",
            ).close()
        return np.diff(stamps)[:rounds].tolist()


def plain_of(work: Work) -> tuple[Any, Any]:
    """The plain loop's model and data."""
    x, y = data_of(work)
    inputs = (
        torch.from_numpy(x).long()
        if work.text
        else torch.from_numpy(x).float().div_(255)
    )
    labels = torch.from_numpy(y)
    samples = Samples(
        torch.from_numpy(x),
        labels,
        tokens=work.text,
        classes=100 if work.text else 10,
        vocabulary=100,
    )
    model = MODELS[work.model](samples, samples.classes)
    return model, list(
        zip(inputs.chunk(work.clients), labels.chunk(work.clients), strict=True)
    )


def measure(work: Work, repeats: int) -> dict[str, Any]:
    """Poise and the plain loop in turns; medians."""
    model, clients = plain_of(work)
    rounds = Rounds(work)
    threads = torch.get_num_threads()
    ours, theirs, single = [], [], []
    for _ in range(repeats):
        theirs.append(
            _timed(lambda: plain_loop(model, clients, work.steps, work.batch, 0.01))
        )
        ours += rounds.seconds(1)
        torch.set_num_threads(1)
        single.append(
            _timed(lambda: plain_loop(model, clients, work.steps, work.batch, 0.01))
        )
        torch.set_num_threads(threads)
        ours += rounds.seconds(1)
    x = torch.cat([c[0] for c in clients[:8]])[:2048]
    y = torch.cat([c[1] for c in clients[:8]])[:2048]
    bound = lower_bound(
        model, x, y, work.clients * work.steps * work.batch, (64, 256, 1024)
    )
    mine, plain = statistics.median(ours), statistics.median(theirs)
    return {
        "work": work.label,
        "goal": work.goal,
        "poise": mine,
        "plain": plain,
        "ratio": plain / mine,
        "plain_1_thread": statistics.median(single),
        "best_ratio": min(plain, statistics.median(single)) / mine,
        "bound": bound,
        "outside": outside(work) if work.share_goal else None,
        "outside_goal": work.share_goal,
    }


def outside(work: Work) -> float:
    """Share of a one-worker round that is not spent in the gradient oracle."""
    from poise.tasks.oracle import SampleOracle

    spent = 0.0
    original = SampleOracle.gradients

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal spent
        began = time.perf_counter()
        original(*args, **kwargs)
        spent += time.perf_counter() - began

    rounds = Rounds(work, workers=1)
    SampleOracle.gradients = counted  # type: ignore[method-assign]
    try:
        rounds.seconds(1)
        spent = 0.0
        total = (
            sum(rounds.seconds(4)) * 6 / 4
        )  # the first and the last round are not in the list, but in `spent`
    finally:
        SampleOracle.gradients = original  # type: ignore[method-assign]
    return 1 - spent / total


def aggregation(clients: int = 1000, size: int = 1_000_000) -> dict[str, float]:
    """GB/s of the weighted sum of a stack, and of the fastest read of the same memory."""
    stack = torch.ones(clients, size)
    omega = np.full(clients, 1 / clients)
    gigabytes = stack.numel() * 4 / 1e9
    with one_thread():  # as in a run
        ours = min(_timed(lambda: combine(omega, stack)) for _ in range(3))
    read = min(_timed(lambda: stack.sum()) for _ in range(3))
    return {
        "combine": gigabytes / ours,
        "bandwidth": gigabytes / read,
        "ratio": read / ours,
    }


def population(clients: int) -> dict[str, float]:
    """Median round time and peak memory with this many clients, 100 sampled per round; run in its
    own process.
    """
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(0, 256, (60_000, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 60_000),
    )
    fed = poise.federation(
        (x, y), partition="iid", clients=clients, on_demand=True, samples_per_client=500
    )
    stamps: list[float] = []
    poise.train(
        fed,
        poise.task("logistic"),
        solver=poise.solvers.SGD(lr=0.01, steps=10, batch_size=50),
        sampler=poise.samplers.Uniform(100),
        rounds=30,
        evaluate_every=10**9,
        callbacks=[lambda record: stamps.append(time.perf_counter())],
    )
    return {
        "seconds": statistics.median(np.diff(stamps).tolist()),
        "peak_mb": _peak_megabytes(),
    }


def populations() -> dict[str, dict[str, float]]:
    """The two populations, each in a process of its own, in turns."""
    found: dict[str, list[dict[str, float]]] = {"1000": [], "1000000": []}
    for _ in range(3):
        for clients in found:
            done = subprocess.run(
                [sys.executable, __file__, "--population", clients],
                capture_output=True,
                text=True,
                check=True,
            )
            found[clients].append(json.loads(done.stdout))
    return {
        clients: {
            key: statistics.median(f[key] for f in runs)
            for key in ("seconds", "peak_mb")
        }
        for clients, runs in found.items()
    }


def _peak_megabytes() -> float:
    """Peak memory of this process; unlike ``ru_maxrss`` it does not count the process that started
    it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(
        int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")
    )


def _timed(function: Any) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


INTRODUCTION = """# Benchmarks

Measured on {date} with `make bench`: {cores} cores ({processor}), torch {torch}, Python {python},
poise {poise}.

Times are medians of one round in one process, with poise and the baseline in turns. The baseline
*plain loop* is the
first version that a PyTorch user would write (`benchmarks/baselines.py`), at PyTorch's default
number of threads; the
next column shows its time with one thread. poise's rounds include drawing the cohort, checking
every update, and
writing records and model to disk. The *lower bound* runs the same number of samples through one
model at the best batch
size, without any federated learning. *Outside* is the share of a one-worker round outside the
gradient oracle.

| one round | plain loop | (1 thread) | poise | ratio | goal | lower bound | outside |
|---|---|---|---|---|---|---|---|
"""

SUMMARY = """
**Aggregation** of 1,000 updates of 10⁶ parameters: {combine:.1f} GB/s, {share:.2f} of the
{bandwidth:.1f} GB/s at which
this machine reads the same memory (goal ≥ 0.5).

**Population** on demand, 100 clients sampled per round, logistic: {large_ms:.0f} ms and
{large_mb:.0f} MB peak with 10⁶
clients, {small_ms:.0f} ms and {small_mb:.0f} MB with 1,000: {slower:.2f} × the time and
{larger:.2f} × the memory
(goal ≤ 1.2 ×).

**Loss reports** (`cnn`, 10 clients × 256 samples, 2 epochs): a weighting that needs the loss before
local work (`SoftMax`)
costs {soft:.0%} of a round, and one that needs the loss before and after (`Exp`) costs {exp:.0%}.
Loss reports are forward passes over all of a
client's data: in operations, a sixth and a third of two epochs of training.
"""


def page(
    rows: list[dict[str, Any]],
    memory: dict[str, float],
    crowd: dict[str, dict[str, float]],
    reports: dict[str, float],
) -> str:
    """The benchmark page in Markdown."""
    text = INTRODUCTION.format(
        date=datetime.now(UTC).date(),
        cores=os.cpu_count(),
        processor=_processor(),
        torch=torch.__version__,
        python=platform.python_version(),
        poise=poise.__version__,
    )
    for r in rows:
        share = (
            ""
            if r["outside"] is None
            else f"{r['outside']:.0%} (goal ≤ {r['outside_goal']:.0%})"
        )
        text += (
            f"| {r['work']} | {r['plain']:.3f} s | {r['plain_1_thread']:.3f} s | {r['poise']:.3f} "
            "s "
            f"| **{r['ratio']:.1f}×** | ≥ {r['goal']}× | {r['bound']:.3f} s | {share} |\n"
        )
    small, large = crowd["1000"], crowd["1000000"]
    return text + SUMMARY.format(
        combine=memory["combine"],
        share=memory["ratio"],
        bandwidth=memory["bandwidth"],
        large_ms=large["seconds"] * 1e3,
        large_mb=large["peak_mb"],
        small_ms=small["seconds"] * 1e3,
        small_mb=small["peak_mb"],
        slower=large["seconds"] / small["seconds"],
        larger=large["peak_mb"] / small["peak_mb"],
        soft=reports["soft-max"],
        exp=reports["exp"],
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        if names:
            return names[0]
    return platform.processor() or "unknown processor"


def main() -> None:
    """Measure, print, and write the page where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=[w.name for w in WORKS], action="append")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--population", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.population:
        print(json.dumps(population(options.population)))
        return
    rows = []
    for work in WORKS:
        if options.only is None or work.name in options.only:
            rows.append(measure(work, options.repeats))
            r = rows[-1]
            share = (
                ""
                if r["outside"] is None
                else f", {r['outside']:.0%} outside the oracle"
            )
            print(
                f"{r['work']}: {r['ratio']:.1f}x (goal {r['goal']}x), {r['poise']:.3f}s, bound "
                f"{r['bound']:.3f}s{share}"
            )
    if options.only is not None:
        return
    text = page(rows, aggregation(), populations(), overheads())
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
