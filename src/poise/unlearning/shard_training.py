"""Train an ensemble: split the clients into shards, and train one run on each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.run_options import END_RULES, RunOptions
from poise.core.errors import IncompatibleParts, LedgerError, PoiseError, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.options import check_keys, options_of
from poise.core.rng import generator
from poise.core.slots import RUN_SLOTS
from poise.core.types import Ints, Record
from poise.ledger.files import write_whole
from poise.ledger.store import begun
from poise.training import Composition, begin, composed, never, prepare, resume_run
from poise.unlearning.retraining import composition_without
from poise.unlearning.shards import (
    FILE,
    FORMAT,
    Members,
    ShardEnsemble,
    others_of,
    read_split,
)


def shards(
    federation: FederationLike,
    task: TaskLike,
    *,
    shards: int | Sequence[Sequence[int]],
    out: str | Path,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
    **options: Any,
) -> ShardEnsemble:
    """Split the clients into disjoint shards, and train one model on every shard.

    The ensemble predicts the mean of its models' predictions. To unlearn a client,
    ``poise.unlearn(…, method="shards")`` retrains only the shard that holds it. Repeat an
    interrupted call to finish it.

    Args:
        federation: the clients and their data.
        task: the model and the loss.
        shards: K, for a random split into K shards of nearly equal numbers of clients; or
            the clients of every shard.
        out: folder of the ensemble: ``shards.json``, and the runs ``shard-0``, ….
        callbacks: called with the record of each aggregation of each shard.
        stop: called before each round; True ends the training cleanly.
        options: of `poise.train`, the same for every shard. The seed also determines the
            random split.

    Source: [Bourtoule 2021].
    """
    whole = _whole(federation, task, options)
    return train_shards(whole, shards, out, callbacks=callbacks, stop=stop)


def _whole(
    federation: FederationLike, task: TaskLike, options: Mapping[str, Any]
) -> Composition:
    """Compose the run on all clients from the options of `poise.train`."""
    of_run = [name for name in options_of(RunOptions) if name != "start"]
    check_keys(options, [*RUN_SLOTS, *of_run, "attacks", "unlearning"], "poise.shards")
    given = {name: options[name] for name in of_run if name in options}
    given["metrics"] = tuple(given.get("metrics", ()))
    return composed(
        federation,
        task,
        chosen={name: options[name] for name in RUN_SLOTS if name in options},
        options=RunOptions(**given),
        attacks=options.get("attacks", ()),
        unlearning=options.get("unlearning"),
    )


def train_shards(
    whole: Composition,
    shards: int | Sequence[Sequence[int]],
    out: str | Path,
    *,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
) -> ShardEnsemble:
    """Train one run per shard of a composition; finish the shards that an earlier call left."""
    _check_composition(whole)
    members = _members(shards, whole.federation.clients, whole.seed)
    ensemble = ShardEnsemble(Path(out), members, whole.federation, whole.task)
    compositions = [_composition_of(whole, members, k) for k in range(len(members))]
    for k, composition in enumerate(compositions):
        check_shard(composition, k)
    _record(ensemble, whole.seed)
    observers = tuple(callbacks)
    for k, composition in enumerate(compositions):
        if stop():
            break
        folder = ensemble.folder(k)
        if begun(folder):
            resume_run(composition, folder, observers, stop).close()
        else:
            begin(composition, folder, observers, stop).close()
    return ensemble


def _composition_of(whole: Composition, members: Members, shard: int) -> Composition:
    """Return the composition of one shard."""
    others = others_of(members, shard)
    return composition_without(whole, others) if others else whole


def check_shard(composition: Composition, shard: int) -> None:
    """Raise where the parts do not fit the clients of a shard, before anything is computed."""
    try:
        prepare(composition)
    except PoiseError as error:
        clients = composition.federation.clients
        raise IncompatibleParts(
            f"shard {shard} with {clients} clients: {error.message}",
            error.hint or "use fewer shards",
            where=error.where,
        ) from error


def assigned(clients: int, shards: int, *, seed: int) -> list[Ints]:
    """Split clients at random into shards whose numbers of clients differ by at most one.

    >>> [shard.tolist() for shard in assigned(5, 2, seed=0)]
    [[2, 3, 4], [0, 1]]
    """
    order = generator(seed, "shards").permutation(clients)
    return [np.sort(part) for part in np.array_split(order, shards)]


def _members(shards: int | Sequence[Sequence[int]], clients: int, seed: int) -> Members:
    """Return the clients of every shard; raises for a split that is none."""
    split: Iterable[Iterable[int]]
    if isinstance(shards, int):
        require(
            1 <= shards <= clients,
            f"shards must be from 1 to the {clients} clients, not {shards}",
            where="shards",
        )
        split = assigned(clients, shards, seed=seed)
    else:
        require(
            isinstance(shards, Sequence) and not isinstance(shards, str),
            f"shards = {shards!r} is neither a number nor a list of lists of clients",
            where="shards",
        )
        split = shards
    members = tuple(tuple(sorted(int(c) for c in shard)) for shard in split)
    listed = sorted(c for shard in members for c in shard)
    require(all(members), "shards: a shard has no client", where="shards")
    require(
        listed == list(range(clients)),
        f"shards: every client from 0 to {clients - 1} must be in exactly one shard",
        where="shards",
    )
    return members


def _check_composition(whole: Composition) -> None:
    """Raise for runs that cannot be split into shards."""
    if whole.parts.personal is not None:
        raise IncompatibleParts(
            "shards: with personal layers a shard has no single model to predict with",
            "leave personal out",
            where=("personal",),
        )
    if whole.federation.on_demand:
        raise IncompatibleParts(
            "shards: the clients are made on demand, so poise cannot split them",
            "use a federation that holds all of its clients",
            where=("data",),
        )
    if whole.time is not None:
        raise IncompatibleParts(
            "shards: within a time, other clients would make another number of rounds",
            "give rounds instead of time",
            where=("run", "time"),
        )
    for name in END_RULES:
        if vars(whole.options)[name] is not None:
            raise IncompatibleParts(
                f"shards: {name} would end a shard after another number of rounds without "
                "the clients of a request",
                "give rounds only",
                where=("run", name),
            )


def _record(ensemble: ShardEnsemble, seed: int) -> None:
    """Write ``shards.json``; raises if the folder has another ensemble, or a run."""
    document = {
        "format": FORMAT,
        "seed": seed,
        "clients": ensemble.clients,
        "members": [list(shard) for shard in ensemble.members],
    }
    file = ensemble.path / FILE
    if file.exists():
        require(
            read_split(ensemble.path) == document,
            f"{file} has another split of the clients",
            "choose another folder, or repeat the call with the same shards and seed",
            where="out",
        )
        return
    if begun(ensemble.path):
        raise LedgerError(
            f"{ensemble.path} holds a run already", "choose another folder"
        )
    write_whole(file, (json.dumps(document) + "\n").encode())
