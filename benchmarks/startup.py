"""Start-up: how long poise takes beyond ``import torch``.

    python benchmarks/startup.py
    python benchmarks/startup.py --write docs/benchmarks.md

Every row starts a fresh process, in turns with a process that only imports PyTorch. Their
byte code is compiled before. A process stops the clock at the end of its first round, or at
its end. CPU time counts all threads, so it shows other work on the machine less than wall
time does.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from page import publish

EXPERIMENT = """\
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.3
clients = 20

[task]
model = "logistic"

[solver]
name = "sgd"
lr = 0.05
steps = 5
batch_size = 16

[sampler]
name = "uniform"
m = 5

[run]
rounds = 1
"""

STAMP = """
import json, os, time
print("stamp", json.dumps([time.time(), time.process_time()]), flush=True)
"""

FIRST_ROUND = """
import numpy as np
import poise
rng = np.random.default_rng(0)
data = (rng.normal(size=(2000, 20)).astype("float32"), rng.integers(0, 10, 2000))
fed = poise.federation(data, clients=20, seed=0)
poise.train(
    fed,
    poise.task("logistic"),
    poise.solvers.SGD(lr=0.05, steps=5, batch_size=16),
    sampler=poise.samplers.Uniform(5),
    rounds=1,
)
"""

COMMAND = """
import sys
from poise.apps.cli import main
sys.argv = ["poise", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
"""


@dataclass(frozen=True)
class Row:
    """One measured process.

    Args:
        title: its line in the table.
        code: the Python code of the process.
        beyond_torch: whether the time of ``import torch`` is subtracted.
        goal: seconds.
    """

    title: str
    code: str
    beyond_torch: bool
    goal: float | None


@dataclass(frozen=True)
class Seconds:
    """Time from the start of a process to its stamp."""

    wall: float
    cpu: float


def rows(folder: Path) -> list[Row]:
    """Return the measured processes; the experiment file lies in ``folder``."""
    file = str(folder / "toy.toml")
    return [
        Row("first round in Python, beyond `import torch`", FIRST_ROUND, True, 0.1),
        Row("`poise run` of one round, beyond it", command("run", file), True, None),
        Row("`import poise`", "import poise", False, None),
        Row("`poise --help`", command("--help"), False, 0.3),
        Row("`poise list`", command("list"), False, 0.5),
        Row("`poise explain` of a toy", command("explain", file), False, 3.0),
    ]


def command(*arguments: str) -> str:
    """Return the code of a process that runs a command of poise."""
    return COMMAND.format(arguments=list(arguments))


def measured(code: str, folder: Path) -> Seconds:
    """Run code in a fresh process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-c", code + STAMP],
        cwd=folder,
        env=environment,
        check=True,
        text=True,
        capture_output=True,
    )
    stamp = done.stdout.splitlines()[-1].removeprefix("stamp ")
    end, cpu = json.loads(stamp)
    return Seconds(end - began, cpu)


def medians(repeats: int) -> list[tuple[Row, Seconds, Seconds]]:
    """Return each row with its median seconds, and those of ``import torch``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "toy.toml").write_text(EXPERIMENT)
        todo = rows(folder)
        found: dict[str, list[Seconds]] = {row.title: [] for row in todo}
        torch: list[Seconds] = []
        for row in todo:
            measured(row.code, folder)  # compiles the byte code
        for _ in range(repeats):
            torch.append(measured("import torch", folder))
            for row in todo:
                found[row.title].append(measured(row.code, folder))
    floor = median(torch)
    return [(row, median(found[row.title]), floor) for row in todo]


def median(values: list[Seconds]) -> Seconds:
    """Return the median wall time and the median CPU time."""
    return Seconds(
        statistics.median(value.wall for value in values),
        statistics.median(value.cpu for value in values),
    )


def table(repeats: int) -> str:
    """Measure all rows, and return them as a table of Markdown."""
    results = medians(repeats)
    floor = results[0][2]
    lines = [
        "## Start-up",
        "",
        "Measured with `python benchmarks/startup.py --write docs/benchmarks.md`. The first "
        "row trains one round of logistic regression on arrays (20 clients, 5 of them per "
        "round). `dirichlet` adds SciPy's special functions, 0.1 s of CPU.",
        "",
        f"Medians of {repeats} processes in turns ({date.today()}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f}). `import torch` alone: {floor.wall:.2f} s wall, "
        f"{floor.cpu:.2f} s CPU.",
        "",
        "| start-up | wall (s) | CPU (s) | goal (s) |",
        "|---|---|---|---|",
    ]
    for row, seconds, torch in results:
        wall = seconds.wall
        cpu = seconds.cpu
        if row.beyond_torch:
            wall -= torch.wall
            cpu -= torch.cpu
        goal = "" if row.goal is None else f"≤ {row.goal:g}"
        lines.append(f"| {row.title} | {wall:.2f} | {cpu:.2f} | {goal} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    publish(__doc__, "startup", table, repeats=7)
