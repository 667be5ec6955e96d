"""What a node holds: the data that its configuration names, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.apps.deploy.data_files import Pair, call_function, read_arrays
from poise.core.errors import InvalidOption, require, suggest
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data import federation as make_federation

FORM = (
    "classes",
    "normalize",
    "vocabulary",
)  # what the arrays are: options of `poise.federation` for arrays
KEYS = (
    "callable",
    "client",
    "file",
    "label",
    "options",
    *FORM,
)  # of [data], where a node has data of its own


@dataclass(frozen=True)
class NodeData:
    """The samples of one client, as a federation of its own: whoever is asked for, it is this one.

    Args:
        client: its number in the deployment.
        own: its samples, as one shard.
        data: where they are from, if that is a data set that everybody knows; what a trial
            compares.
        secret: known to the node alone; noise that must be the same when it is asked for again is
            named by it.
    """

    client: int
    own: Shards
    data: Mapping[str, Any] | None = None
    secret: bytes = field(default=b"", repr=False)

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
        return Shards(
            self.own.samples, self.own.rows.repeat(count), self.own.labels.repeat(count), offsets
        )

    def facts(self) -> dict[str, Any]:
        """What a server has to know to train on it."""
        pool = self.own.samples
        data = None if self.data is None else dict(self.data)
        return {
            "client": self.client,
            "samples": self.samples,
            "shape": list(pool.shape),
            "classes": pool.classes,
            "data": data,
        }


def open_node_data(client: int, table: Mapping[str, Any], folder: Path) -> NodeData:
    """The data that a node's ``[data]`` names.

    ``source``: client number ``client`` of ``poise.federation(**table)``, for trials. ``file``:
    ``x`` and ``y`` of an ``.npz``, or a ``.csv`` or ``.parquet`` whose column ``label`` holds the
    labels. ``callable``: ``module:function``, which is called with ``options`` and returns ``(x,
    y)``. ``classes`` where labels are classes.
    """
    options = dict(table)
    if "source" in options:
        number = options.pop("client", client)
        whole = make_federation(**options)
        require(
            0 <= number < whole.clients,
            f"[data] has no client {number}",
            f"0 to {whole.clients - 1}",
        )
        return NodeData(client, whole.shards([number]), {**(whole.spec or {}), "client": number})
    unknown = [key for key in options if key not in KEYS]
    if unknown:
        raise InvalidOption(f"[data] has no key {unknown[0]!r}", suggest(unknown[0], KEYS))
    classes = options.get("classes", 0)
    require(
        type(classes) is int and classes >= 0,
        f"[data] classes = {classes!r} must be a whole number",
    )
    x, y = _own_arrays(options, folder, classes)
    form = {name: options[name] for name in FORM if options.get(name)}
    made = make_federation((x, y), [np.arange(len(y))], 1, **form)
    return NodeData(client, made.shards([0]))


def _own_arrays(table: Mapping[str, Any], folder: Path, classes: int) -> Pair:
    """What the one of ``file`` and ``callable`` that is there gives."""
    if ("file" in table) == ("callable" in table):
        said = (
            "both a file and a callable"
            if "file" in table
            else "neither a source nor a file nor a callable"
        )
        raise InvalidOption(f"[data] names {said}", 'for example file = "patients.npz"')
    if "file" in table:
        return read_arrays(folder / str(table["file"]), str(table.get("label", "y")), classes)
    options = table.get("options", {})
    require(isinstance(options, Mapping), f"[data] options must be a table, not {options!r}")
    return call_function(str(table["callable"]), options, folder, classes)


def like(shape: tuple[int, ...], classes: int) -> Samples:
    """Two empty samples of this form, to build a model for data that are elsewhere."""
    labels = torch.zeros(2, dtype=torch.int64 if classes else torch.float32)
    return Samples(torch.zeros((2, *shape)), labels, classes=classes)
