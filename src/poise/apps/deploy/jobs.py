"""Ask a deployment for a run, and follow it to its end."""

from __future__ import annotations

import json
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from poise.apps.deploy.control import DeploymentFailed, alive, running
from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.programs import flwr
from poise.config.experiment import Experiment
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import InvalidOption, PoiseError
from poise.ledger.run import Run, open_run
from poise.training import parts_in
from poise.unlearning.operation import Unlearned, outcome

Observer = Callable[[Mapping[str, Any]], None]

BEGIN = 300.0  # seconds within which Flower must have started the server's part of a run


def run_deployed(
    experiment: Experiment,
    to: str | Path,
    out: Path,
    seeds: list[int] | None = None,
    observe: Observer = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Run]:
    """Run every seed of an experiment on the nodes of a deployment, into ``out/seed-<k>``."""
    parts_in(experiment)  # a mistake in the file is told before anybody is asked
    file = str((experiment.path or Path("experiment.toml")).resolve())
    order = {
        "text": experiment.text,
        "file": file,
        "set": list(experiment.overrides),
        "seeds": seeds,
        "out": str(out.resolve()),
    }
    return _follow(open_deployment(to), order, observe, stop)


def resume_deployed(
    run: str | Path,
    to: str | Path,
    observe: Observer = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Take a run of a deployment up at its last good round, on the same nodes."""
    return _follow(open_deployment(to), {"resume": str(Path(run).resolve())}, observe, stop)[0]


def unlearn_deployed(
    run: str | Path,
    to: str | Path,
    request: UnlearnRequest,
    observe: Observer = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Unlearned:
    """Forget clients of a run on the nodes that stay; the nodes of forgotten clients are not asked
    any more.
    """
    if request.measure_forgotten:
        raise InvalidOption(
            "measure_forgotten: a node whose client is forgotten is not asked any more",
            "leave it out",
            where=("measure_forgotten",),
        )
    table = request.table()
    if request.out is not None:
        table["out"] = str(Path(request.out).resolve())
    order = {"unlearn": str(Path(run).resolve()), "request": table}
    return outcome(_follow(open_deployment(to), order, observe, stop)[0])


def _follow(
    deployment: Deployment, order: Mapping[str, Any], observe: Observer, stop: Callable[[], bool]
) -> list[Run]:
    if not running(deployment):
        raise InvalidOption(f"{deployment.path} is not up", f"poise deploy up {deployment.path}")
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    job = deployment.jobs / f"{name}.json"
    job.write_text(json.dumps(order), encoding="utf-8")
    app = str(deployment.server / "app")
    command = ("run", app, "poise", "--run-config", f'job="{name}"')
    flwr(deployment, *command)
    runs: list[Run] = []
    for line in _lines(job, deployment):
        if stop():
            job.with_suffix(".stop").touch()
        if "error" in line:
            raise _error(line)
        if "warning" in line:
            warnings.warn(str(line["warning"]), stacklevel=3)
        if "run" in line:
            runs.append(open_run(line["run"]))
        if "round" in line:
            observe(line)
    return runs


def _lines(job: Path, deployment: Deployment) -> Any:
    """What the run says, line by line, with an empty one now and then; ends with the run."""
    log, began, pid, place = job.with_suffix(".log"), time.monotonic(), None, 0
    while True:
        gone = pid is not None and not alive(pid)  # before reading: its last words come first
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        whole = text.rfind("\n") + 1
        for line in map(json.loads, text[place:whole].splitlines()):
            pid = line.get("pid", pid)
            yield line
            if "done" in line:
                return
        place = max(place, whole)
        if gone or (pid is None and time.monotonic() - began > BEGIN):
            what = "ended without a word" if pid is not None else "did not start"
            raise DeploymentFailed(
                f"the server's part of the run {what}",
                (
                    f"see {deployment.logs}; every finished round is kept: poise deploy resume RUN "
                    f"--to {deployment.path}"
                ),
            )
        yield {}
        time.sleep(0.2)


def _error(line: Mapping[str, Any]) -> PoiseError:
    """The error of the server, with its exit code."""
    kind = InvalidOption if line.get("code") == 2 else DeploymentFailed
    return kind(str(line["error"]), str(line.get("hint", "")))
