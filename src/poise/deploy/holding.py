"""What a node holds: the data that its configuration names, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data import federation as make_federation


@dataclass(frozen=True)
class Holding:
    """The samples of one client, as a federation of its own: whoever is asked for, it is this one.

    Args:
        client: its number in the deployment.
        own: its samples, as one shard.
        data: where they are from, if that is a data set that everybody knows; what a trial compares.
    """

    client: int
    own: Shards
    data: Mapping[str, Any] | None = None

    clients = 1
    test_shard = None

    @property
    def importance(self) -> Floats:
        """All of it."""
        return np.ones(1)

    @cached_property
    def samples(self) -> int:
        """How many."""
        return int(self.own.sizes[0])

    def shards(self, clients: Ints) -> Shards:
        """Its samples, once for each one asked for."""
        count = len(clients)
        offsets = np.arange(count + 1, dtype=np.int64) * self.samples
        return Shards(self.own.samples, self.own.rows.repeat(count), self.own.labels.repeat(count), offsets)

    def facts(self) -> dict[str, Any]:
        """What a server has to know to train on it."""
        pool = self.own.samples
        data = None if self.data is None else dict(self.data)
        return {
            "client": self.client, "samples": self.samples, "shape": list(pool.shape), "classes": pool.classes,
            "data": data,
        }  # fmt: skip


def open_holding(client: int, table: Mapping[str, Any], folder: Path) -> Holding:
    """The data that a node's ``[data]`` names.

    ``source``: client number ``client`` of ``poise.federation(**table)``, for trials. ``file``: ``x`` and ``y`` of an
    ``.npz``, or a ``.csv`` with a header whose column ``label`` holds the labels; ``classes`` where they are classes.
    """
    options = dict(table)
    if "source" in options:
        number = options.pop("client", client)
        whole = make_federation(**options)
        require(0 <= number < whole.clients, f"[data] has no client {number}", f"0 to {whole.clients - 1}")
        return Holding(client, whole.shards([number]), {**(whole.spec or {}), "client": number})
    if "file" not in options:
        raise InvalidOption("[data] names neither a source nor a file", 'for example file = "patients.npz"')
    x, y = read_arrays(folder / options.pop("file"), options.pop("label", "y"), options.get("classes", 0))
    options = {k: v for k, v in options.items() if k != "client" and not (k == "classes" and v == 0)}
    made = make_federation((x, y), [np.arange(len(y))], 1, **options)
    return Holding(client, made.shards([0]))


def read_arrays(file: Path, label: str, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and labels from a file; the labels are whole numbers where there are classes, else quantities."""
    if file.suffix not in (".npz", ".csv"):
        raise InvalidOption(f"{file}: unknown kind of file {file.suffix!r}", "known: .csv, .npz")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as found:
                x, y = found["x"], found["y"]
        else:
            table: Any = np.genfromtxt(file, delimiter=",", names=True, dtype=np.float64, ndmin=1)
            columns = list(table.dtype.names or ())
            if label not in columns:
                raise DataError(f"{file} has no column {label!r}", f"columns: {', '.join(columns)}")
            x = np.stack([table[name] for name in columns if name != label], axis=1)
            y = table[label]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{file} cannot be read as data: {error}") from error
    return x, y.astype(np.int64 if classes else np.float64)


def like(shape: tuple[int, ...], classes: int) -> Samples:
    """Two empty samples of this form, to build a model for data that are elsewhere."""
    labels = torch.zeros(2, dtype=torch.int64 if classes else torch.float32)
    return Samples(torch.zeros((2, *shape)), labels, classes=classes)
