"""Unlearn clients of an ensemble: retrain the shards that hold them, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import require
from poise.core.federations import FederationLike, TaskLike
from poise.core.types import Record
from poise.training import never
from poise.unlearning import request as requests
from poise.unlearning.fulfilment import Unlearned, fulfil, outcome
from poise.unlearning.histories import (
    CERTIFICATE,
    FOLDER,
    locked_folder,
    require_ended,
)
from poise.unlearning.prepared_request import require_same
from poise.unlearning.request import Request, checked_clients
from poise.unlearning.retraining import composition_of, composition_without
from poise.unlearning.shard_certificate import certify_shards
from poise.unlearning.shard_training import check_shard
from poise.unlearning.shards import (
    ShardEnsemble,
    finished_requests,
    request_folder,
    touched,
)


@dataclass(frozen=True)
class UnlearnedShards(Unlearned):
    """The result of a request to an ensemble.

    ``run`` is the run of the first shard that was touched, ``rounds`` and ``reached`` are
    about all of them.

    Attributes:
        shards: the ensemble, which now predicts without the clients.
        requests: the result of every retrained shard, by shard.
    """

    shards: ShardEnsemble | None = None
    requests: dict[int, Unlearned] | None = None


def fulfil_shards(
    ensemble: ShardEnsemble,
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
        return _result(ensemble, request, results, certify_shards(ensemble, index))


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


def _check_remaining(
    ensemble: ShardEnsemble, shard: int, clients: Sequence[int]
) -> None:
    """Raise where the parts of a shard do not fit its remaining clients."""
    root = ensemble.histories(shard).root
    whole = composition_of(root, ensemble.federation_of(shard), ensemble.task)
    gone = {*ensemble.unlearned, *clients}
    removed = [i for i, c in enumerate(ensemble.members[shard]) if c in gone]
    check_shard(composition_without(whole, removed), shard)


def _left_live(ensemble: ShardEnsemble, clients: Sequence[int]) -> list[int]:
    """Return the shards that still have a client after a request."""
    gone = {*ensemble.unlearned, *clients}
    return [k for k, members in enumerate(ensemble.members) if set(members) - gone]


def _register(ensemble: ShardEnsemble, options: UnlearnRequest) -> int:
    """Write ``request.json`` of the ensemble, or find the unfinished request; return its index."""
    clients = checked_clients(options.clients, ensemble.clients, ensemble.unlearned)
    index = len(finished_requests(ensemble.path)) + 1
    request = Request(replace(options, clients=clients), index)
    folder = request_folder(ensemble.path, index)
    if (folder / requests.FILE).exists():
        require_same(request, requests.load(folder))
    else:
        request.save(folder)
    return index


def _fulfil_shard(
    ensemble: ShardEnsemble,
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
    ensemble: ShardEnsemble,
    request: UnlearnRequest,
    results: dict[int, Unlearned],
    document: dict[str, Any] | None = None,
) -> UnlearnedShards:
    first = next(iter(touched(ensemble, request.clients)))
    run = results[first].run if first in results else ensemble.histories(first).root
    path = None
    if document is not None:
        path = request_folder(ensemble.path, document["request"]["index"]) / CERTIFICATE
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


__all__ = ["UnlearnedShards", "fulfil_shards"]
