"""The data of a node, as its configuration names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.apps.deploy.data_files import ArrayPair, call_function, read_arrays
from poise.core.errors import InvalidOption, require, suggest
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data import federation as make_federation

# options of `poise.federation` that describe arrays
FORM = ("classes", "normalize", "vocabulary")
# keys of [data] for a node with its own data
KEYS = ("callable", "client", "file", "label", "options", *FORM)


@dataclass(frozen=True)
class NodeData:
    """The samples of one client, as a federation with a single client.

    Args:
        client: the client's number in the deployment.
        shard: its samples.
        data: the source of a known data set, for the server to compare; None for the
            node's own data.
        secret: known to the node only; repeatable noise is derived from it.
    """

    client: int
    shard: Shards
    data: Mapping[str, Any] | None = None
    secret: bytes = field(default=b"", repr=False)

    clients = 1
    test_shard = None

    @property
    def importance(self) -> Floats:
        """The only client has importance 1."""
        return np.ones(1)

    @cached_property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.shard.sizes[0])

    def shards(self, clients: Ints) -> Shards:
        """The samples, once per requested client: every number means this client."""
        count = len(clients)
        offsets = np.arange(count + 1, dtype=np.int64) * self.samples
        return Shards(
            self.shard.samples,
            self.shard.rows.repeat(count),
            labels=self.shard.labels.repeat(count),
            offsets=offsets,
        )

    def facts(self) -> dict[str, Any]:
        """Facts that the server needs for training."""
        pool = self.shard.samples
        data = None
        if self.data is not None:
            data = dict(self.data)
        return {
            "client": self.client,
            "samples": self.samples,
            "shape": list(pool.shape),
            "classes": pool.classes,
            "data": data,
        }


def open_node_data(client: int, table: Mapping[str, Any], folder: Path) -> NodeData:
    """Open the data that a node's table ``[data]`` names.

    - ``source``: client number ``client`` of ``poise.federation(**table)``, for local
      tests.
    - ``file``: ``x`` and ``y`` of an ``.npz``, or a ``.csv`` or ``.parquet`` whose
      column ``label`` holds the labels.
    - ``callable``: ``module:function``, which is called with ``options`` and returns
      ``(x, y)``.
    - ``classes``: number of classes, if the labels are classes.
    """
    options = dict(table)
    if "source" in options:
        number = options.pop("client", client)
        federation = make_federation(**options)
        require(
            0 <= number < federation.clients,
            f"[data] has no client {number}",
            f"clients are 0 to {federation.clients - 1}",
        )
        spec = {**(federation.spec or {}), "client": number}
        return NodeData(client, federation.shards([number]), spec)
    unknown = [key for key in options if key not in KEYS]
    if unknown:
        raise InvalidOption(
            f"[data] has no key {unknown[0]!r}", suggest(unknown[0], KEYS)
        )
    classes = options.get("classes", 0)
    require(
        type(classes) is int and classes >= 0,
        f"[data] classes = {classes!r} must be a whole number",
    )
    x, y = _load_arrays(options, folder, classes)
    form = {name: options[name] for name in FORM if options.get(name)}
    federation = make_federation((x, y), [np.arange(len(y))], 1, **form)
    return NodeData(client, federation.shards([0]))


def _load_arrays(table: Mapping[str, Any], folder: Path, classes: int) -> ArrayPair:
    """Features and labels from the ``file`` or the ``callable`` of a table."""
    example = 'for example file = "patients.npz"'
    if "file" in table and "callable" in table:
        raise InvalidOption("[data] names both a file and a callable", example)
    if "file" not in table and "callable" not in table:
        raise InvalidOption(
            "[data] names neither a source nor a file nor a callable", example
        )
    if "file" in table:
        return read_arrays(
            folder / str(table["file"]), str(table.get("label", "y")), classes
        )
    options = table.get("options", {})
    require(
        isinstance(options, Mapping), f"[data] options must be a table, not {options!r}"
    )
    return call_function(str(table["callable"]), options, folder, classes)


def placeholder_samples(shape: tuple[int, ...], classes: int) -> Samples:
    """Two zero samples of this form, to build a model for data on other machines."""
    labels = torch.zeros(2)
    if classes:
        labels = labels.long()
    return Samples(torch.zeros((2, *shape)), labels, classes=classes)
