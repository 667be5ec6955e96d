"""Unlearn clients of an ensemble: retrain the shards that hold them, and no others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from poise._version import __version__
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import LedgerError, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Record
from poise.ledger.run import Run
from poise.training import never
from poise.unlearning import request as requests
from poise.unlearning.certificate import canonical, digest_of, read, write
from poise.unlearning.histories import (
    CERTIFICATE,
    FOLDER,
    Branch,
    Histories,
    locked_folder,
    require_ended,
)
from poise.unlearning.operation import Unlearned, fulfil, outcome, require_same
from poise.unlearning.request import Request, checked_clients
from poise.unlearning.retraining import composition_of, composition_without
from poise.unlearning.shards import FILE, Shards, check_shard, open_shards
from poise.unlearning.verification import Check, difference, verify

FORMAT = 1
KEY = "certificate of shards"


@dataclass(frozen=True)
class UnlearnedShards(Unlearned):
    """The result of a request to an ensemble.

    ``run`` is the run of the first shard that was touched, ``rounds`` and ``reached`` are
    about all of them.

    Attributes:
        shards: the ensemble, which now predicts without the clients.
        requests: the result of every retrained shard, by shard.
    """

    shards: Shards | None = None
    requests: dict[int, Unlearned] | None = None


def fulfil_shards(
    ensemble: Shards,
    request: UnlearnRequest,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> UnlearnedShards:
    """Retrain the shards of some clients from scratch without them, and certify the ensemble."""
    ensemble = replace(
        ensemble,
        federation=federation or ensemble.federation,
        task=task or ensemble.task,
    )
    _check_options(request)
    checked_clients(request.clients, ensemble.clients, ensemble.unlearned)
    for k in range(len(ensemble.members)):
        require_ended(ensemble.histories(k).root)
    live = _left_live(ensemble, request.clients)
    for k in touched(ensemble, request.clients):
        if k in live:
            _check_remaining(ensemble, k, request.clients)
    with locked_folder(ensemble.path / FOLDER):
        index = _register(ensemble, request)
        results: dict[int, Unlearned] = {}
        observers = tuple(callbacks)
        for k, local in touched(ensemble, request.clients).items():
            if k not in live:
                continue
            inner = replace(request, clients=local)
            results[k] = _fulfil_shard(
                ensemble, k, inner, callbacks=observers, stop=stop
            )
            if not results[k].certificate:
                return _result(ensemble, request, results)
        return _result(ensemble, request, results, _certified(ensemble, index))


def _check_options(request: UnlearnRequest) -> None:
    """Raise for options that do not apply: a shard is retrained as it was trained."""
    fields = UnlearnRequest.__dataclass_fields__
    for name in ("min_rounds", "max_rounds", "out"):
        value = getattr(request, name)
        require(
            value == fields[name].default,
            f"shards: {name} = {value} does not apply: a shard repeats the rounds of its training",
            f"leave {name} out",
            where=name,
        )


def _check_remaining(ensemble: Shards, shard: int, clients: Sequence[int]) -> None:
    """Raise where the parts of a shard do not fit its remaining clients."""
    root = ensemble.histories(shard).root
    whole = composition_of(root, ensemble.federation_of(shard), ensemble.task)
    gone = {*ensemble.unlearned, *clients}
    removed = [i for i, c in enumerate(ensemble.members[shard]) if c in gone]
    check_shard(composition_without(whole, removed), shard)


def touched(ensemble: Shards, clients: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the shards that hold clients, with the clients' numbers inside the shard."""
    found = {}
    for k, members in enumerate(ensemble.members):
        local = tuple(i for i, client in enumerate(members) if client in set(clients))
        if local:
            found[k] = local
    return found


def _left_live(ensemble: Shards, clients: Sequence[int]) -> list[int]:
    """Return the shards that still have a client after a request."""
    gone = {*ensemble.unlearned, *clients}
    return [k for k, members in enumerate(ensemble.members) if set(members) - gone]


def _register(ensemble: Shards, options: UnlearnRequest) -> int:
    """Write ``request.json`` of the ensemble, or find the unfinished request; return its index."""
    clients = checked_clients(options.clients, ensemble.clients, ensemble.unlearned)
    index = len(finished_requests(ensemble.path)) + 1
    request = Request(replace(options, clients=clients), index)
    folder = _folder(ensemble.path, index)
    if (folder / requests.FILE).exists():
        require_same(request, requests.load(folder))
    else:
        request.save(folder)
    return index


def _folder(path: Path, index: int) -> Path:
    return path / FOLDER / f"{index:03d}"


def finished_requests(path: Path) -> list[Request]:
    """Return the certified requests of an ensemble, in order."""
    found: list[Request] = []
    while (_folder(path, len(found) + 1) / CERTIFICATE).exists():
        found.append(requests.load(_folder(path, len(found) + 1)))
    return found


def _fulfil_shard(
    ensemble: Shards,
    shard: int,
    request: UnlearnRequest,
    *,
    callbacks: Sequence[Callable[[Record], None]],
    stop: Callable[[], bool],
) -> Unlearned:
    """Retrain one shard, unless an interrupted attempt already did."""
    histories = ensemble.histories(shard)
    for branch in histories.finished:
        if branch.request.clients == request.clients:
            assert branch.run is not None
            return outcome(branch.run)
    rounds = histories.root.rounds
    return fulfil(
        histories.root,
        replace(request, min_rounds=rounds, max_rounds=rounds),
        federation=ensemble.federation_of(shard),
        task=ensemble.task,
        callbacks=callbacks,
        stop=stop,
    )


def _result(
    ensemble: Shards,
    request: UnlearnRequest,
    results: dict[int, Unlearned],
    document: dict[str, Any] | None = None,
) -> UnlearnedShards:
    first = next(iter(touched(ensemble, request.clients)))
    run = results[first].run if first in results else ensemble.histories(first).root
    path = None
    if document is not None:
        path = _folder(ensemble.path, document["request"]["index"]) / CERTIFICATE
    return UnlearnedShards(
        run,
        rounds=sum(done.rounds for done in results.values()),
        restart=(0, 0),
        certificate=document or {},
        reached=all(done.reached for done in results.values()),
        path=path,
        shards=ensemble,
        requests=results,
    )


# the certificate --------------------------------------------------------------------------


def _certified(ensemble: Shards, index: int) -> dict[str, Any]:
    """Write the certificate of a request, which finishes it."""
    document = certificate_of(ensemble, index)
    write(document, _folder(ensemble.path, index))
    return document


def certificate_of(ensemble: Shards, index: int) -> dict[str, Any]:
    """Make the certificate of a request from the folders of the shards."""
    request = requests.load(_folder(ensemble.path, index))
    earlier = [requests.load(_folder(ensemble.path, r)) for r in range(1, index)]
    gone = sorted({c for r in (*earlier, request) for c in r.clients})
    held = touched(ensemble, request.clients)
    retrained, left_out, untouched = [], [], []
    for k, members in enumerate(ensemble.members):
        histories = _histories_then(ensemble, k, gone)
        if not set(members) - set(gone):
            left_out.append({"shard": k, "clients": list(members)})
        elif k in held:
            retrained.append(_retrained(histories, k, [members[i] for i in held[k]]))
        else:
            untouched.append(_untouched(histories, k))
    document: dict[str, Any] = {
        KEY: FORMAT,
        "poise": __version__,
        "clients": list(request.clients),
        "forgotten so far": gone,
        "request": {"index": index, "method": request.method},
        "guarantee": {"promised": True, "epsilon": 0.0, "delta": 0.0},
        "grounds": {
            "theorem": "a model depends on the clients of its own shard only [Bourtoule 2021]",
            "assumed": [
                "who is in which shard does not depend on the clients' data",
                "the certificates of the retrained shards hold, with what they assume",
                (
                    "the folders of the shards still hold the trainings of the forgotten "
                    "clients; removal from the models does not delete them"
                ),
            ],
            "not proved": [],
        },
        "retrained": retrained,
        "left out": left_out,
        "untouched": untouched,
        "result": {
            "rounds": sum(shard["rounds"] for shard in retrained),
            "client rounds": sum(shard["client rounds"] for shard in retrained),
            "local steps": sum(shard["local steps"] for shard in retrained),
            "target reached": all(shard["target reached"] for shard in retrained),
        },
        "evidence": {
            FILE: _hash(ensemble.path / FILE),
            requests.FILE: _hash(_folder(ensemble.path, index) / requests.FILE),
        },
    }
    return {**document, "digest": digest_of(document)}


def _histories_then(ensemble: Shards, shard: int, gone: list[int]) -> Histories:
    """Return the histories of a shard as they were when these clients had been unlearned."""
    histories = ensemble.histories(shard)
    members = ensemble.members[shard]
    then: list[Branch] = []
    for branch in histories.finished:
        if not {members[i] for i in branch.request.clients} <= set(gone):
            break
        then.append(branch)
    histories.branches = then
    return histories


def _retrained(histories: Histories, shard: int, clients: list[int]) -> dict[str, Any]:
    """Return what a certificate says of a retrained shard."""
    folder = histories.branch_folder(histories.newest)
    assert folder is not None
    branch = histories.run(histories.newest)
    document = read(folder / CERTIFICATE)
    return {
        "shard": shard,
        "clients": clients,
        "branch": histories.newest,
        "certificate": document["digest"],
        "rounds": branch.rounds,
        "client rounds": len(branch.contributions),
        "local steps": int(branch.contributions["steps"].sum()),
        "target reached": document["result"]["target reached"],
        "model": branch.model_hash(branch.rounds),
    }


def _untouched(histories: Histories, shard: int) -> dict[str, Any]:
    """Return what a certificate says of a shard that the request leaves as it is."""
    run: Run = histories.run(histories.newest)
    return {
        "shard": shard,
        "branch": histories.newest,
        "rounds": run.rounds,
        "digest": run.digest,
        "model": run.model_hash(run.rounds),
    }


def _hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise LedgerError(
            f"cannot read {file}: {error.strerror}", "restore the file from a backup"
        ) from error


# verification -----------------------------------------------------------------------------


def verify_shards(file: Path) -> list[Check]:
    """Recompute the certificate of an ensemble, and verify the certificate of every shard."""
    document = _read(file)
    ensemble = open_shards(file.parent.parent.parent)
    checks = [Check("the certificate is unaltered")]
    for check in _checks(ensemble, document):
        if check.problem:
            raise LedgerError(
                f"{file}: {check.label}: {check.problem}",
                "this certificate does not hold",
            )
        checks.append(check)
    return checks


def _checks(ensemble: Shards, document: dict[str, Any]) -> Iterator[Check]:
    """Yield every check of a certificate."""
    again = certificate_of(ensemble, document["request"]["index"])
    for table, now in again.items():
        if table not in ("digest", "poise"):
            problem = difference(document.get(table), now)
            yield Check(f"{table}: recomputed", problem)
    for shard in document["retrained"]:
        k = shard["shard"]
        folder = ensemble.histories(k).branch_folder(shard["branch"])
        assert folder is not None
        for check in verify(folder / CERTIFICATE):
            yield Check(f"shard {k}: {check.label}", check.problem)
        yield _repetition_check(ensemble, shard)
    for shard in document["untouched"]:
        yield _untouched_check(ensemble, shard)
    yield _members_check(ensemble, document)


def _repetition_check(ensemble: Shards, shard: dict[str, Any]) -> Check:
    """Check that a shard was retrained as it had been trained."""
    histories = ensemble.histories(shard["shard"])
    branch = histories.run(shard["branch"])
    root = histories.root
    same = (branch.rounds, branch.meta["seed"]) == (root.rounds, root.meta["seed"])
    label = f"shard {shard['shard']}: retrained with the rounds and the seed of its training"
    return Check(label, "" if same else "it has other rounds or another seed")


def _untouched_check(ensemble: Shards, shard: dict[str, Any]) -> Check:
    """Check that the ledger and the model of an untouched shard are whole."""
    k = shard["shard"]
    run = ensemble.histories(k).run(shard["branch"])
    problem = run.damage
    if not problem:
        run.models(
            shard["rounds"]
        )  # raises if the file is not what the ledger recorded
    return Check(f"shard {k}: untouched and whole", problem)


def _members_check(ensemble: Shards, document: dict[str, Any]) -> Check:
    """Check that no unlearned client worked for a model of the ensemble."""
    gone = set(document["forgotten so far"])
    problem = ""
    for shard in (*document["retrained"], *document["untouched"]):
        k = shard["shard"]
        local = ensemble.histories(k).members(shard["branch"]).tolist()
        present = sorted(gone & {ensemble.members[k][i] for i in local})
        if present:
            problem = f"client {present[0]} works for shard {k}"
    return Check("no unlearned client works for a model of the ensemble", problem)


def _read(file: Path) -> dict[str, Any]:
    """Read the certificate of an ensemble; raise where the file differs from what poise wrote."""
    try:
        content = file.read_bytes()
        document: dict[str, Any] = json.loads(content)
    except OSError as error:
        raise LedgerError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise LedgerError(f"{file} is no certificate: {error}") from error
    if not isinstance(document, dict) or document.get(KEY) != FORMAT:
        raise LedgerError(
            f"{file} is no certificate of shards in a format that this poise reads",
            "use the version of poise that wrote it",
        )
    if content != canonical(document) or document.get("digest") != digest_of(document):
        raise LedgerError(
            f"{file} was altered: its content does not match its digest",
            "restore the file from a backup",
        )
    return document


__all__ = ["UnlearnedShards", "fulfil_shards", "verify_shards"]
