"""Jobs of a deployment: request a run, a resume or an unlearning, and follow it."""

from __future__ import annotations

import json
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from poise.apps.deploy.control import DeploymentFailed, alive, running
from poise.apps.deploy.folder import Deployment, open_deployment
from poise.apps.deploy.guard import check_app
from poise.apps.deploy.programs import flwr
from poise.config.experiment import Experiment
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import InvalidOption, PoiseError
from poise.results import Run, open_run
from poise.training import parts_in, task_in, use_code
from poise.unlearning.fulfilment import Unlearned, fulfilled, outcome

LineObserver = Callable[[Mapping[str, Any]], None]

START_TIMEOUT = 300.0  # seconds within which Flower must start the server app of a run


def run_deployed(
    experiment: Experiment,
    to: str | Path,
    out: Path,
    seeds: list[int] | None = None,
    observe: LineObserver = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Run]:
    """Run every seed of an experiment on a deployment's nodes, in ``out/seed-<k>``."""
    use_code(experiment)
    # report mistakes in the file before starting a job
    parts_in(experiment)
    task_in(experiment)
    file = str((experiment.path or Path("experiment.toml")).resolve())
    order = {
        "text": experiment.text,
        "file": file,
        "set": list(experiment.overrides),
        "seeds": seeds,
        "out": str(out.resolve()),
    }
    return _follow(open_deployment(to), order, observe=observe, stop=stop)


def resume_deployed(
    run: str | Path,
    to: str | Path,
    observe: LineObserver = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
    go_back: bool = False,
) -> Run:
    """Resume a run of a deployment after its last complete round, on the same nodes.

    ``go_back`` allows to take back more than one recorded round.
    """
    order = {"resume": str(Path(run).resolve()), "go_back": go_back}
    return _follow(open_deployment(to), order, observe=observe, stop=stop)[0]


def unlearn_deployed(
    run: str | Path,
    to: str | Path,
    request: UnlearnRequest,
    observe: LineObserver = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Unlearned:
    """Unlearn clients of a run on the remaining nodes.

    The server sends nothing to the nodes of unlearned clients.
    """
    if request.measure_forgotten:
        raise InvalidOption(
            "measure_forgotten: the nodes of unlearned clients no longer take part",
            "remove measure_forgotten",
            where=("measure_forgotten",),
        )
    earlier = fulfilled(run, request)
    if earlier is not None:
        return earlier
    table = request.table()
    if request.out is not None:
        table["out"] = str(Path(request.out).resolve())
    order = {"unlearn": str(Path(run).resolve()), "request": table}
    return outcome(_follow(open_deployment(to), order, observe=observe, stop=stop)[0])


def _follow(
    deployment: Deployment,
    order: Mapping[str, Any],
    observe: LineObserver,
    stop: Callable[[], bool],
) -> list[Run]:
    """Start a job and follow its log; returns its runs."""
    if not running(deployment):
        raise InvalidOption(
            f"{deployment.path} is not up", f"poise deploy up {deployment.path}"
        )
    check_app(deployment.server)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    job = deployment.jobs / f"{name}.json"
    # the server finds users' modules where the user's command would
    order = {**order, "code": [str(Path.cwd())]}
    job.write_text(json.dumps(order), encoding="utf-8")
    app = str(deployment.server / "app")
    command = ("run", app, "poise", "--run-config", f'job="{name}"')
    flwr(deployment, *command)
    runs: list[Run] = []
    for line in _read_log(job, deployment):
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


def _read_log(job: Path, deployment: Deployment) -> Iterator[Mapping[str, Any]]:
    """The lines of a job's log until it ends; an empty line every 0.2 seconds."""
    log = job.with_suffix(".log")
    started = time.monotonic()
    pid = None
    position = 0
    while True:
        # before reading, so that no last line is lost
        ended = pid is not None and not alive(pid)
        text = ""
        if log.exists():
            text = log.read_text(encoding="utf-8")
        end_of_line = text.rfind("\n") + 1
        for line in map(json.loads, text[position:end_of_line].splitlines()):
            pid = line.get("pid", pid)
            yield line
            if "done" in line:
                return
        position = max(position, end_of_line)
        if ended or (pid is None and time.monotonic() - started > START_TIMEOUT):
            raise _ended_early(deployment, started=pid is not None)
        yield {}
        time.sleep(0.2)


def _ended_early(deployment: Deployment, started: bool) -> DeploymentFailed:
    """The error about a server app that ended before its run did."""
    path = deployment.path
    goes_on = f"all complete rounds are saved, continue with: poise deploy resume RUN --to {path}"
    if deployment.state().get("status") in ("stopping", "down"):
        return DeploymentFailed(
            f"the deployment {path} was stopped during the run",
            f"start it again with: poise deploy up {path}; {goes_on}",
        )
    failure = "ended without a message" if started else "did not start"
    return DeploymentFailed(
        f"the server app of the run {failure}", f"see {deployment.logs}; {goes_on}"
    )


def _error(line: Mapping[str, Any]) -> PoiseError:
    """The error in a line of the log, with the server's exit code."""
    message = str(line["error"])
    hint = str(line.get("hint", ""))
    if line.get("code") == 2:
        return InvalidOption(message, hint)
    return DeploymentFailed(message, hint)
