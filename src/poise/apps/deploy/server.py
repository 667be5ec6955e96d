"""The server app of a deployment: runs the engine beside the SuperLink."""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.apps.deploy.folder import MARK, open_deployment
from poise.apps.deploy.registration import registered_federation
from poise.apps.deploy.remote_federation import Remote
from poise.apps.deploy.round_log import RoundLog
from poise.apps.deploy.server_code import code_facts
from poise.backends import Flower
from poise.backends.flower.receiver import ReplyReceiver
from poise.backends.flower.transport import Transport, connected
from poise.config.experiment import Experiment, parse
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError
from poise.core.objects import use_folders
from poise.core.types import Ints
from poise.evidence.countersign import Countersignatures, node_keys
from poise.results import Run, open_run
from poise.training import (
    Composition,
    begin,
    compose,
    on_nodes,
    recorded,
    refuse_branch,
    resume_run,
)
from poise.unlearning.certificate import NODE_KEYS
from poise.unlearning.fulfilment import fulfil
from poise.unlearning.histories import Histories
from poise.unlearning.repeated_requests import repaired
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
    """Run the job that the configuration of Flower's run names."""
    deployment = open_deployment(os.environ[MARK])
    name = str(context.run_config["job"])
    job = DeployedJob(
        deployment.jobs / f"{name}.json", tuple(deployment.changes()["revoked"])
    )
    job.log(pid=os.getpid(), at=time.time())
    try:
        with job.logged_warnings():
            runs = job.run(
                Transport(ReplyReceiver(grid), deployment.registered(), run=name)
            )
        for run in runs:
            job.log(run=str(run))
        job.log(done=True)
    except PoiseError as error:
        job.log(error=error.message, hint=error.hint, code=error.exit_code)
        raise
    except BaseException as error:
        details = job.file.with_suffix(".trace")
        details.write_text(traceback.format_exc(), encoding="utf-8")
        job.log(
            error=f"the server failed ({type(error).__name__}: {error})",
            hint=f"details: {details}",
            code=1,
        )
        raise


@dataclass(frozen=True)
class DeployedJob:
    """A requested run: a JSON file with the order, and beside it a progress log.

    Args:
        file: the order.
        revoked: clients whose nodes cannot connect any more.
    """

    file: Path
    revoked: tuple[int, ...] = ()

    def log(self, **facts: Any) -> None:
        """Write a line into the log, for the process that follows the job."""
        with self.file.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")

    def stop(self) -> bool:
        """Whether the job should stop after the current round."""
        return self.file.with_suffix(".stop").exists()

    @contextmanager
    def logged_warnings(self) -> Iterator[None]:
        """Write warnings inside the block into the log, above all those of an audit."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: self.log(
                warning=str(message)
            )
            yield

    def run(self, transport: Transport) -> list[Path]:
        """Run all seeds, resume a run, or unlearn clients, as the order says."""
        order = json.loads(self.file.read_text(encoding="utf-8"))
        use_folders(map(Path, order.get("code", ())))
        if "unlearn" in order:
            return [self._unlearn(order, transport)]
        if "resume" in order:
            return [self._resume(order, transport)]
        experiment = parse(order["text"], Path(order["file"]), order["set"])
        runs = []
        for seed in order["seeds"] or experiment.seeds:
            folder = Path(order["out"]) / f"seed-{seed}"
            composition, members = self._compose(
                experiment, seed, transport, folder=folder
            )
            members = self._countersigned(members, folder)
            with connected(members), experiment.located():
                run = begin(
                    composition,
                    folder,
                    [RoundLog(self.log, members)],
                    self.stop,
                    facts=_node_key_facts(members),
                )
            runs.append(_path(run))
            if self.stop():
                break
        return runs

    def _resume(self, order: Mapping[str, Any], transport: Transport) -> Path:
        """Resume the run in a folder."""
        folder = Path(order["resume"])
        refuse_branch(folder, "poise deploy unlearn")
        experiment = recorded(folder)
        seed = experiment.seeds[0]
        composition, members = self._compose(experiment, seed, transport, folder=folder)
        members = self._countersigned(members, folder)
        with connected(members), experiment.located():
            run = resume_run(
                composition,
                folder,
                [RoundLog(self.log, members)],
                self.stop,
                go_back=order.get("go_back", False),
            )
            return _path(run)

    def _countersigned(self, transport: Transport, folder: Path) -> Transport:
        """The transport that checks the nodes' signatures and keeps them in a folder."""
        deployment = self.file.parent.parent.parent
        kept = Countersignatures(folder, node_keys(deployment))
        return replace(transport, countersignatures=kept)

    def _unlearn(self, order: Mapping[str, Any], transport: Transport) -> Path:
        """Unlearn clients on the remaining nodes; sends unlearned clients nothing."""
        request = UnlearnRequest(**order["request"])
        out = None
        if request.out is not None:
            out = Path(request.out)
        histories = Histories.of(open_run(order["unlearn"]), out, repair=True)
        histories = repaired(histories, request.clients)
        root = histories.root
        begun = histories.open_request
        requested = checked_clients(request.clients, root.clients, histories.unlearned)
        unfinished: Sequence[int] = ()
        if begun:
            unfinished = begun.clients
        gone = sorted({*histories.unlearned, *requested, *unfinished})
        sizes = root.array("sizes")
        assert root.path is not None
        assert sizes is not None
        experiment = recorded(root.path)
        if not on_nodes(experiment):
            raise InvalidOption(
                f"{root.path} was not trained on nodes",
                f"poise unlearn {root.path} --clients …",
            )
        state = _state_name(root.path / "without" / str(gone))
        transport = replace(
            transport,
            task=experiment.table("task"),
            state=state,
            code=code_facts(experiment),
        )
        score = ""
        if not request.held_out:
            score = _score(root)
        federation = registered_federation(
            experiment,
            experiment.seeds[0],
            transport=transport,
            patience=_backend(experiment).patience,
            gone={c: int(sizes[c]) for c in gone},
            score=score,
            revoked=self.revoked,
        )
        _check_sizes(federation, sizes)
        remaining = federation.without(gone).members.tolist()
        index = begun.index if begun else histories.newest + 1
        branch = histories.branch_folder(index)
        assert branch is not None
        members = self._countersigned(transport.among(remaining), branch)
        with connected(members):
            unlearned = fulfil(
                root,
                request,
                federation=federation,
                callbacks=[RoundLog(self.log, members)],
                stop=self.stop,
            )
        return _path(unlearned.run)

    def _compose(
        self, experiment: Experiment, seed: int, transport: Transport, folder: Path
    ) -> tuple[Composition, Transport]:
        """The composition of a seed, and the transport to the nodes that take part."""
        state = _state_name(folder)
        transport = replace(
            transport,
            task=experiment.table("task"),
            state=state,
            code=code_facts(experiment),
        )
        backend = _backend(experiment)
        federation = registered_federation(
            experiment,
            seed,
            transport=transport,
            patience=backend.patience,
            revoked=self.revoked,
        )
        composition = compose(experiment, seed, federation).with_options(
            backend=backend
        )
        if federation.altered and composition.plans_unlearning:
            clients = ", ".join(map(str, federation.altered))
            warnings.warn(
                f"the policies of clients {clients} clip updates or add noise to them: "
                "later unlearning has no guarantee",
                stacklevel=2,
            )
        if "bad_updates" not in experiment.table("run"):
            # by default, the mistake of one node does not end the run
            composition = composition.with_options(bad_updates="drop")
        return composition, transport.among(federation.members.tolist())


def _node_key_facts(transport: Transport) -> dict[str, str]:
    """The fingerprints of the nodes' keys, by client of the run, for its ledger."""
    kept = transport.countersignatures
    keys = {} if kept is None else kept.keys
    known = {}
    for client in transport.nodes:
        key = keys.get(transport.number(client))
        if key is not None:
            known[str(client)] = key.fingerprint
    return {NODE_KEYS: json.dumps(known, sort_keys=True)} if known else {}


def _state_name(folder: Path) -> str:
    """The name under which nodes store the client state of a run."""
    return hashlib.blake2b(str(folder.resolve()).encode(), digest_size=16).hexdigest()


def _path(run: Run) -> Path:
    assert run.path is not None
    return run.path


def _backend(experiment: Experiment) -> Flower:
    """The backend ``flower`` with the experiment's options, or with defaults."""
    backend = experiment.table("run").get("backend")
    if isinstance(backend, Mapping) and on_nodes(experiment):
        return Flower(**{k: v for k, v in backend.items() if k != "name"})
    return Flower()


def _check_sizes(federation: Remote, sizes: Ints) -> None:
    """Raise if a client's data changed: guarantees hold for the training data."""
    for client in np.flatnonzero(federation.sizes != sizes):
        raise IncompatibleParts(
            f"client {federation.members[client]} has {federation.sizes[client]} samples now, "
            f"and had {sizes[client]} in the training",
            "unlearning needs the data that the other clients trained on",
        )


def _score(run: Run) -> str:
    """The metric that retraining aims at: accuracy if the run has it, else the loss."""
    if any(name.rpartition("_")[2] == "accuracy" for name in run.metrics):
        return ACCURACY
    return LOSSES[0]
