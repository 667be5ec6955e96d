"""A cohort of 100 with a model of 11 million parameters: peak memory and time of a round, with the
updates in a temporary file and in memory, in turns.

python benchmarks/large_rounds.py [--repeats 3] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from page import publish

CLIENTS = 100
ROUNDS = 3
PLACES = {"file": None, "memory": 10**12}
"""Where updates are kept, with the limit that puts them there (None: the usual one)."""


def measured(repeats: int) -> str:
    """Measure both, each in a process of its own, and return the section of the page."""
    found: dict[str, list[dict[str, Any]]] = {place: [] for place in PLACES}
    for _ in range(repeats):
        for place in PLACES:
            command = [sys.executable, __file__, "--child", place]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found[place].append(json.loads(answer.stdout.splitlines()[-1]))
    digests = {run["digest"] for runs in found.values() for run in runs}
    assert len(digests) == 1, "the place of the updates changed the run"
    rows = {
        place: {name: statistics.median(run[name] for run in runs) for name in NAMES}
        for place, runs in found.items()
    }
    file, memory = rows["file"], rows["memory"]
    lines = "".join(
        f"| {place} | {row['peak']:.2f} GB | {row['wall']:.1f} s | {row['cpu']:.1f} s |\n"
        for place, row in rows.items()
    )
    return TEXT.format(
        date=datetime.now(UTC).date(),
        cores=os.cpu_count(),
        load=os.getloadavg()[0],
        repeats=repeats,
        lines=lines,
        wall=file["wall"] / memory["wall"],
        cpu=file["cpu"] / memory["cpu"],
    )


NAMES = ("peak", "wall", "cpu")

TEXT = """
## Updates that do not fit into memory

Measured on {date} with `python benchmarks/large_rounds.py`: {cores} cores, load {load:.0f};
medians of {repeats} processes each, in turns. 100 clients with a model of 10.8 million parameters
(`mlp`, 2 steps of batch 10): a round has 4.3 GB of updates. Peak memory is above that of the
process with data and model; times are those of a round after the first one.

| updates in | peak memory | wall | processor |
|---|---|---|---|
{lines}
The file takes **{wall:.2f} ×** the wall time and {cpu:.2f} × the processor time of memory (goal:
1 GB, 1.1 ×), with the same digest.
"""


def child(place: str) -> None:
    """Train, and print peak memory above data and model, and the times of a round."""
    import numpy as np

    import poise
    from poise.core import spill

    spill.LIMIT = PLACES[place] or spill.LIMIT
    rng = np.random.default_rng(0)
    samples = 20 * CLIENTS
    x = rng.integers(0, 256, (samples, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, samples)
    fed = poise.federation((x, y), partition="iid", clients=CLIENTS)
    task = poise.task("mlp", hidden=[3000, 2800])
    solver = poise.solvers.SGD(lr=0.01, steps=2, batch_size=10)
    wall = [time.perf_counter()]
    cpu = [time.process_time()]

    def after_round(_: Any) -> None:
        wall.append(time.perf_counter())
        cpu.append(time.process_time())

    model_bytes = 4 * 10_785_810
    before = resident() + model_bytes
    peak = Peak()
    with peak:
        run = poise.train(
            fed,
            task,
            solver,
            rounds=ROUNDS,
            seed=1,
            evaluate_every=10**9,
            callbacks=[after_round],
        )
    row = {
        "peak": (peak.bytes - before) / 1e9,
        "wall": statistics.median(np.diff(wall)[1:].tolist()),
        "cpu": statistics.median(np.diff(cpu)[1:].tolist()),
        "digest": run.digest,
    }
    print(json.dumps(row))


def resident() -> int:
    """Bytes of this process in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The largest resident memory inside the block, looked at 50 times a second."""

    def __enter__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.bytes = max(self.bytes, resident())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        publish(__doc__, "large-rounds", measured, repeats=3)
