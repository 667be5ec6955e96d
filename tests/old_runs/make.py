"""Make the run folders beside this file, and ``expected.json`` with their final results.

    python tests/old_runs/make.py

The version and the commit in ``expected.json`` made the present folders. They stand for the runs
of users: a later version must open them, resume them and unlearn clients from them. Do not make
them again because a test fails; add another set of folders if the format changes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import poise
from golden.running import ended, fingerprint

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"

DATA = """\
[data]
source = "digits"
partition = "dirichlet"
alpha = 1.0
clients = 6
sizes = [10, 30, 20, 24, 16, 20]
samples = 120
test_samples = 30

"""

EXPERIMENTS = {
    "stopped": f"""{DATA}
[task]
model = "logistic"

[solver]
name = "sgd"
lr = 0.1
steps = 3
batch_size = 8
momentum = 0.9

[sampler]
name = "clustered-by-similarity"
m = 3

[weighting]
name = "exp"
alpha = 0.2

[run]
rounds = 10
keep = "all"
metrics = ["client_loss"]
backend = {{ name = "local", workers = 1 }}
""",
    "forgotten": f"""{DATA}
[task]
model = "logistic"

[solver]
name = "sgd"
lr = 0.05
steps = 2

[sampler]
name = "uniform"
m = 3

[unlearning]
epsilon = 10.0
delta = 0.01
sigma = 0.02

[run]
rounds = 8
keep = "unlearnable"
metrics = ["client_loss"]
backend = {{ name = "local", workers = 1 }}
""",
    "in-flight": f"""{DATA}
[task]
model = "mlp"
hidden = 6
norm = true

[solver]
name = "scaffold"
lr = 0.1
steps = 3
batch_size = 8

[clock]
name = "fixed-window"
dt = 0.5
durations = [1.0, 0.4, 0.8, 1.4, 0.6, 0.3]

[server]
name = "momentum"
lr = 0.5

[[attacks]]
name = "free-rider"
clients = [5]

[run]
rounds = 16
personal = "batchnorm"
audit = "quarantine"
metrics = ["client_loss"]
backend = {{ name = "local", workers = 1 }}
""",
}

STOPPED = {"stopped": 5, "in-flight": 9}
"""After how many rounds a run was stopped; the other runs ended."""

REQUEST: dict[str, Any] = {
    "clients": [1],
    "sigma": 0.02,
    "min_rounds": 3,
    "max_rounds": 4,
    "heuristic": True,
}
AGAIN: dict[str, Any] = {**REQUEST, "clients": [4]}
"""A second request, after `REQUEST`, whose certificate is in the folder ``forgotten``."""


def trained(name: str, folder: Path, stop_after: int | None = None) -> Any:
    """Run one of the experiments in this folder."""
    # not at the top: other tests import the names above only
    from poise.apps.experiments.runner import run_experiment
    from poise.config.experiment import parse

    done: list[Any] = []
    (run,) = run_experiment(
        parse(EXPERIMENTS[name]),
        folder,
        [0],
        lambda seed, run: [done.append],
        lambda: stop_after is not None and len(done) >= stop_after,
    )
    return run


def main() -> None:
    """Make the folders, and the results of an uninterrupted run of each."""
    expected: dict[str, Any] = {
        "made by": _version(),
        "fingerprint": fingerprint(),
        "runs": {},
    }
    for name in EXPERIMENTS:
        with tempfile.TemporaryDirectory() as place:
            run = trained(name, Path(place) / "made", STOPPED.get(name))
            if name == "forgotten":
                poise.unlearn(run, **REQUEST).run.close()
            run.close()
            shutil.rmtree(HERE / name, ignore_errors=True)
            shutil.copytree(Path(place) / "made" / "seed-0", HERE / name)
            whole = trained(name, Path(place) / "whole")
            expected["runs"][name] = ended(whole)
            if name == "forgotten":
                for number, request in enumerate((REQUEST, AGAIN), start=1):
                    branch = poise.unlearn(whole, **request).run
                    expected["runs"][f"{name}/{number}"] = ended(branch)
                    branch.close()
            whole.close()
    EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")


def _version() -> dict[str, str]:
    """Return the version and the last commit that changed the package."""
    log = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "src/poise"],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
    )
    return {"poise": poise.__version__, "commit": log.stdout.strip()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
