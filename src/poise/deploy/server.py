"""What runs beside the SuperLink: the engine, whose backend are the nodes."""

from __future__ import annotations

import hashlib
import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from poise.backends import Flower
from poise.backends.letters import Letter
from poise.backends.post import Post, connected
from poise.composition import OF_CLIENTS, Composition
from poise.core.errors import InvalidOption, PoiseError, UpdateRefused
from poise.core.parts import describe
from poise.core.samples import Shards
from poise.core.types import Record
from poise.data import federation as make_federation
from poise.deploy.folder import MARK, open_deployment
from poise.deploy.holding import read_arrays
from poise.deploy.remote import Remote, check_registered
from poise.experiments.runner import compose, federation_in, parts_in, recorded
from poise.experiments.spec import Experiment, parse
from poise.training import begin, take_up

NODES = "nodes"  # the source of an experiment whose data only the nodes know


def server_app() -> Any:
    """The app that Flower starts beside the SuperLink, once for every run."""
    from flwr.serverapp import ServerApp

    app = ServerApp()
    app.main()(main)
    return app


def main(grid: Any, context: Any) -> None:
    """Do the job that the run's configuration names."""
    deployment = open_deployment(os.environ[MARK])
    name = str(context.run_config["job"])
    job = Job(deployment.jobs / f"{name}.json")
    job.say(pid=os.getpid())
    try:
        for run in job.do(Post(grid, deployment.registered(), name)):
            job.say(run=str(run))
        job.say(done=True)
    except PoiseError as error:
        job.say(error=error.message, hint=error.hint, code=error.exit_code)
        raise
    except BaseException as error:
        details = job.file.with_suffix(".trace")
        details.write_text(traceback.format_exc(), encoding="utf-8")
        job.say(error=f"the server failed ({type(error).__name__}: {error})", hint=f"details: {details}", code=1)
        raise


@dataclass(frozen=True)
class Job:
    """A run that was asked for: a file that says what, and a file beside it that says how it goes."""

    file: Path

    def say(self, **facts: Any) -> None:
        """One line for whoever follows."""
        with self.file.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")

    def stop(self) -> bool:
        """Whether somebody asked for an end."""
        return self.file.with_suffix(".stop").exists()

    def do(self, post: Post) -> list[Path]:
        """Run every seed, or take a run up."""
        order = json.loads(self.file.read_text(encoding="utf-8"))
        if "resume" in order:
            folder = Path(order["resume"])
            experiment = recorded(folder)
            composition, way = self._composed(experiment, experiment.seeds[0], post, folder)
            with connected(way):
                return [_path(take_up(composition, folder, [self._watch], self.stop))]
        experiment = parse(order["text"], Path(order["file"]), order["set"])
        runs = []
        for seed in order["seeds"] or experiment.seeds:
            folder = Path(order["out"]) / f"seed-{seed}"
            composition, way = self._composed(experiment, seed, post, folder)
            with connected(way):
                runs.append(_path(begin(composition, folder, [self._watch], self.stop)))
            if self.stop():
                break
        return runs

    def _watch(self, record: Record) -> None:
        metrics = {k: float(v) for k, v in record.metrics.items() if isinstance(v, float)}
        refused = [[r.client, r.reason] for r in record.refusals]
        self.say(round=record.index, seconds=record.seconds, metrics=metrics, refused=refused)

    def _composed(self, experiment: Experiment, seed: int, post: Post, folder: Path) -> tuple[Composition, Post]:
        """The composition of a seed on the nodes' data, and the way to them; ``folder`` names what these keep."""
        name = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=16).hexdigest()
        way = replace(post, task=experiment.table("task"), state=name)
        backend = _backend(experiment)
        federation = registered_federation(experiment, seed, way, backend.patience)
        composition = compose(experiment, seed, federation)
        drop = "bad_updates" not in experiment.table("run")  # one node's mistake does not end everybody's run
        return replace(composition, backend=backend, bad_updates="drop" if drop else composition.bad_updates), way


def _path(run: Any) -> Path:
    path: Path = run.path
    return path


def _backend(experiment: Experiment) -> Flower:
    """The file's options of the backend ``flower``, or the usual ones where it names another."""
    given = experiment.table("run").get("backend")
    if isinstance(given, Mapping) and given.get("name") == "flower":
        return Flower(**{k: v for k, v in given.items() if k != "name"})
    return Flower()


def registered_federation(experiment: Experiment, seed: int, post: Post, patience: float) -> Remote:
    """Ask every node whether it takes part, and what it holds; the held-out data are the server's."""
    data = experiment.table("data")
    known = None if data.get("source") in (None, NODES) else federation_in(experiment, seed)
    if known is not None and known.clients != len(post.nodes):
        raise InvalidOption(f"[data] clients = {known.clients}, but the deployment has {len(post.nodes)} nodes")
    found = _greeted(experiment, post, patience)
    limit = data.get("max_samples")
    most = known.sizes if known is not None else None if limit is None else [int(limit)] * len(found)
    check_registered(found, None if known is None else known.spec, most)
    importance = data.get("importance", "size")
    if known is not None:
        return Remote(found, importance, known.test_shard, known.spec)
    if "test" not in data:
        return Remote(found, importance, None, data or None)
    beside = experiment.path.parent if experiment.path is not None else Path()
    data["test"] = str((beside / str(data["test"])).resolve())  # a run that goes on finds it from its own folder
    return Remote(found, importance, _held_out(data, found[0]), data)


def _greeted(experiment: Experiment, post: Post, patience: float) -> list[Mapping[str, Any]]:
    """What each node holds, in the order of the clients; a node that refuses the plan ends it before it begins."""
    parts = parts_in(experiment)
    metrics = [m for m in experiment.table("run").get("metrics", ()) if m.startswith(OF_CLIENTS)]
    plan = {
        "solver": describe(parts.solver), "reports": sorted(parts.reports), "metrics": metrics,
        "cohort": len(post.nodes),
    }  # fmt: skip
    letters = {c: Letter({**post.common("hello", c), **plan}) for c in post.nodes}
    replies = post.ask(letters, patience)
    return [_registration(c, replies[c], post.nodes[c], letters[c].facts["nonce"]) for c in sorted(letters)]


def _registration(client: int, reply: Letter | str, node: int, nonce: str) -> Mapping[str, Any]:
    """What a node told about itself; raises where it did not."""
    if isinstance(reply, str):
        raise UpdateRefused(f"client {client} does not take part: {reply}", "poise deploy status DIR")
    if "refused" in reply.facts:
        raise UpdateRefused(
            f"client {client} does not take part: {reply.facts['refused']}", "ask for less, or talk to who runs it"
        )
    if reply.sender != node or reply.facts.get("nonce") != nonce or reply.facts.get("client") != client:
        raise UpdateRefused(f"client {client} sent a reply to another request")
    return {name: reply.facts.get(name) for name in ("samples", "shape", "classes", "data")}


def _held_out(data: Mapping[str, Any], form: Mapping[str, Any]) -> Shards:
    """The server's own test file."""
    x, y = read_arrays(Path(data["test"]), str(data.get("label", "y")), form["classes"])
    options = {"classes": form["classes"]} if form["classes"] else {}
    return make_federation((x, y), [np.arange(len(y))], 1, **options).shards([0])
