"""What runs beside the SuperLink: the engine, whose backend are the nodes."""

from __future__ import annotations

import hashlib
import json
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.apps.deploy.folder import MARK, open_deployment
from poise.apps.deploy.registration import registered_federation
from poise.apps.deploy.remote_federation import Remote
from poise.backends import Flower
from poise.backends.flower.receiver import ReplyReceiver
from poise.backends.flower.transport import Transport, connected
from poise.config.experiment import Experiment, parse
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError
from poise.core.types import Ints, Record
from poise.ledger.run import Run, open_run
from poise.training import Composition, begin, compose, recorded, refuse_branch, resume_run
from poise.unlearning.histories import Histories
from poise.unlearning.operation import fulfil
from poise.unlearning.request import checked_clients
from poise.unlearning.retraining import ACCURACY, LOSSES

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid


def server_app() -> Any:
    """The app that Flower starts beside the SuperLink, once for every run."""
    from flwr.serverapp import ServerApp

    app = ServerApp()
    app.main()(main)
    return app


def main(grid: Grid, context: Context) -> None:
    """Do the job that the run's configuration names."""
    deployment = open_deployment(os.environ[MARK])
    name = str(context.run_config["job"])
    job = Job(deployment.jobs / f"{name}.json")
    job.say(pid=os.getpid())
    try:
        with job.heard():
            runs = job.do(Transport(ReplyReceiver(grid), deployment.registered(), name))
        for run in runs:
            job.say(run=str(run))
        job.say(done=True)
    except PoiseError as error:
        job.say(error=error.message, hint=error.hint, code=error.exit_code)
        raise
    except BaseException as error:
        details = job.file.with_suffix(".trace")
        details.write_text(traceback.format_exc(), encoding="utf-8")
        job.say(
            error=f"the server failed ({type(error).__name__}: {error})",
            hint=f"details: {details}",
            code=1,
        )
        raise


@dataclass(frozen=True)
class Job:
    """A run that was asked for: a file that says what, and a file beside it that says how it
    goes.
    """

    file: Path

    def say(self, **facts: Any) -> None:
        """One line for whoever follows."""
        with self.file.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")

    def stop(self) -> bool:
        """Whether somebody asked for an end."""
        return self.file.with_suffix(".stop").exists()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Warnings inside the block are told to whoever follows: an audit's, above all."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: self.say(warning=str(message))
            yield

    def do(self, post: Transport) -> list[Path]:
        """Run every seed, take a run up, or forget clients of a run."""
        order = json.loads(self.file.read_text(encoding="utf-8"))
        if "unlearn" in order:
            return [self._unlearned(order, post)]
        if "resume" in order:
            folder = Path(order["resume"])
            refuse_branch(folder, "poise deploy unlearn")
            experiment = recorded(folder)
            composition, way = self._composed(experiment, experiment.seeds[0], post, folder)
            with connected(way), experiment.located():
                return [_path(resume_run(composition, folder, [self._watch], self.stop))]
        experiment = parse(order["text"], Path(order["file"]), order["set"])
        runs = []
        for seed in order["seeds"] or experiment.seeds:
            folder = Path(order["out"]) / f"seed-{seed}"
            composition, way = self._composed(experiment, seed, post, folder)
            with connected(way), experiment.located():
                runs.append(_path(begin(composition, folder, [self._watch], self.stop)))
            if self.stop():
                break
        return runs

    def _watch(self, record: Record) -> None:
        metrics = {k: float(v) for k, v in record.metrics.items() if isinstance(v, float)}
        refused = [[r.client, r.reason] for r in record.refusals]
        self.say(round=record.index, seconds=record.seconds, metrics=metrics, refused=refused)

    def _unlearned(self, order: Mapping[str, Any], post: Transport) -> Path:
        """Honour a request to forget on the nodes that stay; whoever is to be forgotten is not
        asked for anything.
        """
        request = UnlearnRequest(**order["request"])
        histories = Histories.of(
            open_run(order["unlearn"]), None if request.out is None else Path(request.out)
        )
        root, begun = histories.root, histories.open_request
        wanted = checked_clients(request.clients, root.clients, histories.unlearned)
        gone = sorted({*histories.unlearned, *wanted, *(begun.clients if begun else ())})
        sizes, score = root.array("sizes"), "" if request.held_out else _score(root)
        assert root.path is not None
        assert sizes is not None
        experiment = recorded(root.path)
        if not _on_nodes(experiment):
            raise InvalidOption(
                f"{root.path} was not trained on nodes", f"poise unlearn {root.path} --clients …"
            )
        way = replace(
            post, task=experiment.table("task"), state=_state(root.path / "without" / str(gone))
        )
        whole = registered_federation(
            experiment,
            experiment.seeds[0],
            post=way,
            patience=_backend(experiment).patience,
            gone={c: int(sizes[c]) for c in gone},
            score=score,
        )
        _refuse_grown(whole, sizes)
        with connected(way.among(whole.without(gone).members.tolist())):
            made = fulfil(root, request, federation=whole, callbacks=[self._watch], stop=self.stop)
        return _path(made.run)

    def _composed(
        self, experiment: Experiment, seed: int, post: Transport, folder: Path
    ) -> tuple[Composition, Transport]:
        """The composition of a seed on the nodes' data, and the way to them; ``folder`` names what
        these keep.
        """
        way = replace(post, task=experiment.table("task"), state=_state(folder))
        backend = _backend(experiment)
        federation = registered_federation(experiment, seed, way, backend.patience)
        way = way.among(federation.members.tolist())
        composition = compose(experiment, seed, federation)
        composition = composition.with_options(backend=backend)
        if "bad_updates" not in experiment.table(
            "run"
        ):  # one node's mistake does not end everybody's run
            composition = composition.with_options(bad_updates="drop")
        return composition, way


def _state(folder: Path) -> str:
    """The name under which nodes keep what clients remember in a run."""
    return hashlib.blake2b(str(folder.resolve()).encode(), digest_size=16).hexdigest()


def _path(run: Run) -> Path:
    assert run.path is not None
    return run.path


def _backend(experiment: Experiment) -> Flower:
    """The file's options of the backend ``flower``, or the usual ones where it names another."""
    given = experiment.table("run").get("backend")
    if isinstance(given, Mapping) and _on_nodes(experiment):
        return Flower(**{k: v for k, v in given.items() if k != "name"})
    return Flower()


def _on_nodes(experiment: Experiment) -> bool:
    """Whether its work is done by nodes."""
    given = experiment.table("run").get("backend")
    return (given.get("name") if isinstance(given, Mapping) else given) == "flower"


def _refuse_grown(federation: Remote, sizes: Ints) -> None:
    """What a request promises is about the data that the run was trained on."""
    for client in np.flatnonzero(federation.sizes != sizes):
        raise IncompatibleParts(
            f"client {federation.members[client]} has {federation.sizes[client]} samples now, "
            f"and had {sizes[client]} in the training",
            "a request to forget needs the data that the others trained on",
        )


def _score(run: Run) -> str:
    """What retraining is aimed at, as far as a policy cares: accuracy where the run has it, else
    the loss.
    """
    return ACCURACY if any(name.endswith("accuracy") for name in run.metrics) else LOSSES[0]
