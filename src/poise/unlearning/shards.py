"""Shards: disjoint groups of clients, each with a model of its own, that predict together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    LedgerError,
    require,
)
from poise.core.federations import FederationLike, TaskLike
from poise.core.samples import Inputs, Shards
from poise.core.types import Floats
from poise.core.vectors import Stack
from poise.ledger.foreign import read_json
from poise.ledger.store import begun
from poise.results import Run, open_run
from poise.tasks.losses import cross_entropy, double_softmax
from poise.tasks.oracle import SampleOracle, blocks
from poise.unlearning import request as requests
from poise.unlearning.histories import CERTIFICATE, FOLDER, Histories
from poise.unlearning.request import Request
from poise.unlearning.retraining import composition_of

FILE = "shards.json"
FORMAT = 1
BLOCK = 1024
"""Shards that the ensemble predicts at once."""

Members: TypeAlias = tuple[tuple[int, ...], ...]
"""The clients of every shard, numbered as in the federation, in ascending order."""


@dataclass(frozen=True)
class ShardEnsemble:
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
        others = others_of(self.members, shard)
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
    oracle: SampleOracle, models: Sequence[torch.Tensor], x: Inputs
) -> Stack:
    """Return the mean prediction of the models, in double precision and in their order."""
    total: Any = 0
    with torch.no_grad():
        for model in models:
            outputs = oracle.kernel.outputs(model, x).double()
            if oracle.loss in (cross_entropy, double_softmax):
                outputs = outputs.softmax(dim=1)
            total = total + outputs
    mean: Stack = total / len(models)
    return mean


def _right(
    oracle: SampleOracle,
    models: Sequence[torch.Tensor],
    held_out: Shards,
    positions: torch.Tensor,
) -> int:
    """Return how many samples at these positions the ensemble predicts right."""
    x, y = held_out.take(positions)
    predicted = _mean_prediction(oracle, models, x).argmax(dim=1)
    return int((predicted == y).sum())


def open_shards(
    path: str | Path,
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> ShardEnsemble:
    """Open the ensemble in a folder.

    Args:
        path: the folder, with ``shards.json``.
        federation: the whole federation, if it was given as Python objects.
        task: required if it was given as a Python object.
    """
    folder = Path(path)
    document = read_split(folder)
    members = tuple(tuple(shard) for shard in document["members"])
    for k in range(len(members)):
        place = folder / f"shard-{k}"
        if not begun(place):
            raise LedgerError(
                f"{place} has no run: the training of {folder} is not finished",
                "repeat the command, or the call of poise.shards, that began it",
            )
    return ShardEnsemble(folder, members, federation, task)


def holds_shards(path: object) -> TypeGuard[str | Path]:
    """Whether a path is the folder of an ensemble."""
    return isinstance(path, str | Path) and (Path(path) / FILE).exists()


def ensemble_in(given: Run | ShardEnsemble | str | Path, method: str) -> ShardEnsemble:
    """Return the ensemble that a request names; raises for a run, and for another method."""
    if isinstance(given, ShardEnsemble) or holds_shards(given):
        require(
            method == "shards",
            f"{method}: this is an ensemble of shards, not a run",
            "use method='shards' (--method shards)",
            where="method",
        )
        return given if isinstance(given, ShardEnsemble) else open_shards(given)
    raise InvalidOption(
        f"shards: {given!s} is no ensemble of shards",
        "train one with poise.shards (poise run FILE --shards K), or use method='scratch'",
        where=("method",),
    )


def others_of(members: Members, shard: int) -> list[int]:
    """Return the clients of all other shards."""
    return sorted(c for k, m in enumerate(members) if k != shard for c in m)


def read_split(folder: Path) -> dict[str, Any]:
    """Read ``shards.json``."""
    file = folder / FILE
    try:
        document: dict[str, Any] = read_json(file)
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


def request_folder(path: Path, index: int) -> Path:
    """Return the folder of a request to an ensemble."""
    return path / FOLDER / f"{index:03d}"


def finished_requests(path: Path) -> list[Request]:
    """Return the certified requests of an ensemble, in order."""
    found: list[Request] = []
    while (request_folder(path, len(found) + 1) / CERTIFICATE).exists():
        found.append(requests.load(request_folder(path, len(found) + 1)))
    return found


def touched(
    ensemble: ShardEnsemble, clients: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Return the shards that hold clients, with the clients' numbers inside the shard."""
    holding = {}
    for k, members in enumerate(ensemble.members):
        local = tuple(i for i, client in enumerate(members) if client in set(clients))
        if local:
            holding[k] = local
    return holding
