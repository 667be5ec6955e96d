"""The data of a node, as its configuration names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.apps.deploy.data_files import COLUMNS, ArrayPair, call_function, read_arrays
from poise.core.errors import InvalidOption, require, suggest
from poise.core.objects import is_name, use_folders
from poise.core.samples import Samples, SeveralInputs, Shards
from poise.core.types import Floats, Ints
from poise.data import federation as make_federation
from poise.data.options import check_options
from poise.data.own import with_folder
from poise.data.own.encoding import read_tables
from poise.data.sources.targets import Classes

# options of `poise.federation` that describe arrays
FORM = ("classes", "normalize", "vocabulary", "target")
# registered facts about inputs and labels of a form that is not usual
MORE_FORM = ("labels", "inputs")
NOT_SET_UP = "its node is not set up correctly; its journal says why"
"""What the server learns of a mistake in a node's own files."""

# keys of [data] for a node with its own data
KEYS = ("callable", "client", "file", "label", "options", *COLUMNS, *FORM)


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
            labels=torch.cat([self.shard.labels] * count),
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
            **more_form(pool),
        }


def open_node_data(client: int, table: Mapping[str, Any], folder: Path) -> NodeData:
    """Open the data that a node's table ``[data]`` names.

    - ``source``: client number ``client`` of ``poise.federation(**table)``, for local
      tests.
    - ``file``: ``x`` and ``y`` of an ``.npz``, or a ``.csv`` or ``.parquet`` whose
      column ``label`` holds the labels; ``features``, ``missing`` and ``categories``
      as in `poise.federation`.
    - ``callable``: ``module:function``, which is called with ``options`` and returns
      ``(x, y)``.
    - ``classes``: number of classes, if the labels are classes.
    """
    options = dict(table)
    if "source" in options:
        if is_name(options["source"]):
            use_folders([folder])
        number = options.pop("client", client)
        options["source"] = with_folder(options["source"], folder)
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
    named = isinstance(classes, list) and all(isinstance(c, str) for c in classes)
    require(
        named or (type(classes) is int and classes >= 0),
        f"[data] classes = {classes!r} must be a whole number, or a list of names",
    )
    form = {name: options[name] for name in FORM if options.get(name)}
    x, y = _load_arrays(options, folder, classes)
    federation = make_federation((x, y), [np.arange(len(y))], 1, **form)
    return NodeData(client, federation.shards([0]))


def _load_arrays(table: Mapping[str, Any], folder: Path, classes: Classes) -> ArrayPair:
    """Features and labels from the ``file`` or the ``callable`` of a table."""
    example = 'for example file = "patients.npz"'
    if "file" in table and "callable" in table:
        raise InvalidOption("[data] names both a file and a callable", example)
    if "file" not in table and "callable" not in table:
        raise InvalidOption(
            "[data] names neither a source nor a file nor a callable", example
        )
    if "file" in table:
        columns = {name: table[name] for name in COLUMNS if name in table}
        check_options(read_tables, columns, "[data]")
        return read_arrays(
            folder / str(table["file"]), str(table.get("label", "y")), classes, columns
        )
    options = table.get("options", {})
    require(
        isinstance(options, Mapping), f"[data] options must be a table, not {options!r}"
    )
    return call_function(str(table["callable"]), options, folder, classes)


def more_form(pool: Samples) -> dict[str, Any]:
    """Facts about inputs and labels that one shape and a number of classes do not say.

    Empty for one input of quantities and one class or number per sample.
    """
    facts: dict[str, Any] = {}
    if pool.target_shape:
        facts["labels"] = {
            "shape": list(pool.target_shape),
            "classes": pool.element_classes,
            "multi_label": pool.multi_label,
        }
    if isinstance(pool, SeveralInputs):
        facts["inputs"] = {
            "names": list(pool.names),
            "shapes": [list(part.shape) for part in pool.parts],
            "tokens": [part.tokens for part in pool.parts],
        }
    return facts


def valid_form(facts: Mapping[str, Any]) -> bool:
    """Whether registered facts describe a form of inputs and labels."""
    try:
        pool = placeholder_samples(facts)
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError):
        return False
    return more_form(pool) == {k: facts[k] for k in MORE_FORM if k in facts}


def placeholder_samples(facts: Mapping[str, Any]) -> Samples:
    """Two zero samples of a registered form, to build a model for data on other machines."""
    labelled = facts.get("labels") or {"shape": [], "classes": 0, "multi_label": False}
    labels = torch.zeros((2, *labelled["shape"]))
    if facts["classes"] or labelled["classes"]:
        labels = labels.long()

    def pool(shape: list[int], tokens: bool) -> Samples:
        return Samples(
            torch.zeros((2, *shape)),
            labels,
            tokens=tokens,
            classes=facts["classes"],
            element_classes=labelled["classes"],
            multi_label=labelled["multi_label"],
        )

    inputs = facts.get("inputs")
    if inputs is None:
        return pool(facts["shape"], False)
    parts = map(pool, inputs["shapes"], inputs["tokens"])
    return SeveralInputs.of(tuple(parts), tuple(inputs["names"]))
