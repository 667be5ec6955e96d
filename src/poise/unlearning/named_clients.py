"""Clients of a request by name: their numbers in the training."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

from poise.core.client_names import client_number
from poise.results import Run, open_run
from poise.unlearning.histories import Histories
from poise.unlearning.shards import ShardEnsemble, holds_shards, open_shards


class TrainedClients(NamedTuple):
    """The clients of a training: how many, and their names; empty if they have none."""

    total: int
    names: tuple[str, ...]


def trained_clients(run: Run | ShardEnsemble | str | Path) -> TrainedClients:
    """Return the clients of the training of a run, of a branch or of an ensemble."""
    if isinstance(run, ShardEnsemble):
        return _of_ensemble(run)
    if not isinstance(run, Run):
        if holds_shards(run):
            return _of_ensemble(open_shards(run))
        run = open_run(run)
    # a request that repairs its history has names, too
    root = Histories.of(run, repair=True).root
    return TrainedClients(root.clients, root.client_names)


def _of_ensemble(ensemble: ShardEnsemble) -> TrainedClients:
    """Return the clients of all shards, as the whole federation numbers them."""
    names = [""] * ensemble.clients
    for shard, members in enumerate(ensemble.members):
        known = ensemble.histories(shard).root.client_names
        for member, name in zip(members, known, strict=False):
            names[member] = name
    return TrainedClients(ensemble.clients, tuple(names))


def numbered(
    run: Run | ShardEnsemble | str | Path,
    clients: int | str | Iterable[int | str],
) -> int | Iterable[int]:
    """Return clients with numbers for names, as numbered in the training."""
    given: list[int | str] = []
    if isinstance(clients, str):
        given = [clients]
    elif isinstance(clients, Iterable) and not isinstance(clients, bytes):
        clients = given = list(clients)
    if not any(isinstance(client, str) for client in given):
        return cast("int | Iterable[int]", clients)
    known = trained_clients(run)
    return [
        client_number(client, known.total, known.names)
        if isinstance(client, str)
        else client
        for client in given
    ]
