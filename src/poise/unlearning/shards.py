"""Shards: disjoint groups of clients, each with a model of its own, that predict together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.config.run_options import RunOptions
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    LedgerError,
    PoiseError,
    require,
)
from poise.core.federations import FederationLike, TaskLike
from poise.core.options import check_keys, options_of
from poise.core.rng import generator
from poise.core.samples import Shards as Samples
from poise.core.slots import RUN_SLOTS
from poise.core.types import Floats, Ints, Record
from poise.core.vectors import Stack
from poise.ledger.files import write_whole
from poise.ledger.run import Run, open_run
from poise.ledger.store import begun
from poise.tasks.losses import cross_entropy
from poise.tasks.oracle import SampleOracle, blocks
from poise.training import Composition, begin, composed, never, prepare, resume_run
from poise.unlearning.histories import Histories
from poise.unlearning.retraining import composition_of, composition_without

FILE = "shards.json"
FORMAT = 1
BLOCK = 1024
"""Samples that the ensemble predicts at once."""

Members: TypeAlias = tuple[tuple[int, ...], ...]
"""The clients of every shard, numbered as in the federation, in ascending order."""


@dataclass(frozen=True)
class Shards:
    """An ensemble of runs on disjoint shards of a federation.

    Attributes:
        path: its folder, with ``shards.json`` and one run folder per shard.
        members: the clients of every shard, as trained.
        federation: the whole federation; None reads it from the runs' experiments.
        task: the task; None reads it from the runs' experiments.
    """

    path: Path
    members: Members
    federation: FederationLike | None = field(default=None, repr=False)
    task: TaskLike | None = field(default=None, repr=False)

    @property
    def clients(self) -> int:
        """The number of clients of all shards, as trained."""
        return sum(len(shard) for shard in self.members)

    @property
    def unlearned(self) -> list[int]:
        """The clients of all finished requests."""
        from poise.unlearning.shard_requests import finished_requests

        requests = finished_requests(self.path)
        return sorted({c for request in requests for c in request.clients})

    @property
    def live(self) -> list[int]:
        """The shards that still have a client."""
        gone = set(self.unlearned)
        return [k for k, shard in enumerate(self.members) if set(shard) - gone]

    @property
    def runs(self) -> list[Run]:
        """The newest run of every live shard: its training, or its last retraining."""
        histories = [self.histories(k) for k in self.live]
        return [history.run(history.newest) for history in histories]

    def folder(self, shard: int) -> Path:
        """Return the run folder of a shard."""
        return self.path / f"shard-{shard}"

    def histories(self, shard: int) -> Histories:
        """Return the training and the branches of a shard."""
        return Histories.of(open_run(self.folder(shard)))

    def federation_of(self, shard: int) -> FederationLike | None:
        """Return the federation of a shard's training; None if its experiment names it."""
        if self.federation is None:
            return None
        others = _others(self.members, shard)
        federation: Any = self.federation
        return federation.without(others) if others else self.federation

    def predict(self, x: ArrayLike | torch.Tensor) -> Floats:
        """Return the mean of the shards' predictions for samples (n, …), (n, outputs).

        They are probabilities of the classes for cross-entropy, else the models' outputs.
        The samples are the inputs of a model, as ``federation.client(i)`` returns them.
        """
        samples = torch.from_numpy(np.array(x))
        oracle = self._oracle()
        models = self._models()
        spans = blocks(len(samples), BLOCK)
        means = [_mean_prediction(oracle, models, samples[a:b]) for a, b in spans]
        return np.asarray(torch.cat(means).numpy())

    def accuracy(self) -> float:
        """Return the share of held-out samples whose class gets the largest mean prediction."""
        oracle = self._oracle()
        held_out = oracle.federation.test_shard
        if held_out is None or not held_out.samples.classes:
            raise IncompatibleParts(
                "the federation has no held-out samples with classes",
                "use predict(x) on your own samples",
            )
        models = self._models()
        spans = blocks(len(held_out.rows), BLOCK)
        right = [_right(oracle, models, held_out, torch.arange(a, b)) for a, b in spans]
        return sum(right) / len(held_out.rows)

    def _models(self) -> list[torch.Tensor]:
        return [torch.from_numpy(run.model) for run in self.runs]

    def _oracle(self) -> SampleOracle:
        """Return the task on the federation of a shard, which knows outputs and held-out data."""
        shard = self.live[0]
        training = self.histories(shard).root
        whole = composition_of(training, self.federation_of(shard), self.task)
        oracle = whole.task.bind(whole.federation, "cpu")
        if not isinstance(oracle, SampleOracle):
            raise IncompatibleParts(
                f"{type(whole.task).__name__} has no samples to predict"
            )
        return oracle


def _mean_prediction(
    oracle: SampleOracle, models: Sequence[torch.Tensor], x: torch.Tensor
) -> Stack:
    """Return the mean prediction of the models, in double precision and in their order."""
    total: Any = 0
    with torch.no_grad():
        for model in models:
            outputs = oracle.kernel.outputs(model, x).double()
            if oracle.loss is cross_entropy:
                outputs = outputs.softmax(dim=1)
            total = total + outputs
    mean: Stack = total / len(models)
    return mean


def _right(
    oracle: SampleOracle,
    models: Sequence[torch.Tensor],
    held_out: Samples,
    positions: torch.Tensor,
) -> int:
    """Return how many samples at these positions the ensemble predicts right."""
    x, y = held_out.take(positions)
    predicted = _mean_prediction(oracle, models, x).argmax(dim=1)
    return int((predicted == y).sum())


def shards(
    federation: FederationLike,
    task: TaskLike,
    *,
    shards: int | Sequence[Sequence[int]],
    out: str | Path,
    callbacks: Iterable[Callable[[Record], None]] = (),
    stop: Callable[[], bool] = never,
    **options: Any,
) -> Shards:
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
) -> Shards:
    """Train one run per shard of a composition; finish the shards that an earlier call left."""
    _check_composition(whole)
    members = _members(shards, whole.federation.clients, whole.seed)
    ensemble = Shards(Path(out), members, whole.federation, whole.task)
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
    others = _others(members, shard)
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


def open_shards(
    path: str | Path,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> Shards:
    """Open the ensemble in a folder.

    Args:
        path: the folder, with ``shards.json``.
        federation: the whole federation, if it was given as Python objects.
        task: required if it was given as a Python object.
    """
    folder = Path(path)
    document = _read(folder)
    members = tuple(tuple(shard) for shard in document["members"])
    for k in range(len(members)):
        place = folder / f"shard-{k}"
        if not begun(place):
            raise LedgerError(
                f"{place} has no run: the training of {folder} is not finished",
                "repeat the command, or the call of poise.shards, that began it",
            )
    return Shards(folder, members, federation, task)


def holds_shards(path: object) -> TypeGuard[str | Path]:
    """Whether a path is the folder of an ensemble."""
    return isinstance(path, str | Path) and (Path(path) / FILE).exists()


def ensemble_in(given: Run | Shards | str | Path, method: str) -> Shards:
    """Return the ensemble that a request names; raises for a run, and for another method."""
    if isinstance(given, Shards) or holds_shards(given):
        require(
            method == "shards",
            f"{method}: this is an ensemble of shards, not a run",
            "use method='shards' (--method shards)",
            where="method",
        )
        return given if isinstance(given, Shards) else open_shards(given)
    raise InvalidOption(
        f"shards: {given!s} is no ensemble of shards",
        "train one with poise.shards (poise run FILE --shards K), or use method='scratch'",
        where=("method",),
    )


def assigned(clients: int, shards: int, *, seed: int) -> list[Ints]:
    """Split clients at random into shards whose numbers of clients differ by at most one.

    >>> [shard.tolist() for shard in assigned(5, 2, seed=0)]
    [[0, 1, 4], [2, 3]]
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


def _others(members: Members, shard: int) -> list[int]:
    """Return the clients of all other shards."""
    return sorted(c for k, m in enumerate(members) if k != shard for c in m)


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


def _record(ensemble: Shards, seed: int) -> None:
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
            _read(ensemble.path) == document,
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


def _read(folder: Path) -> dict[str, Any]:
    """Read ``shards.json``."""
    file = folder / FILE
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = document["format"] == FORMAT and isinstance(document["members"], list)
    except OSError as error:
        raise LedgerError(
            f"{folder} holds no shards: cannot read {FILE}: {error.strerror}",
            "name the folder of poise.shards (poise run FILE --shards K)",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{file} is damaged: {error}", "restore it") from error
    if not known:
        raise LedgerError(
            f"{file} has a format that this poise does not read",
            "use the version of poise that wrote it",
        )
    return document


__all__ = ["Shards", "open_shards", "shards", "train_shards"]
