"""Partitioners of flwr-datasets as partitions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from poise.core.errors import InvalidOption, PoiseError
from poise.core.types import Ints
from poise.data.own.hugging_face import is_hugging_face
from poise.data.sources.source import Source

if TYPE_CHECKING:
    import datasets

_ROW = "poise_row"


class Partitioner(Protocol):
    """A rule of flwr-datasets that divides one data set."""

    dataset: Any

    @property
    def num_partitions(self) -> int:
        """Number of clients."""

    def load_partition(self, partition_id: int) -> Any:
        """Return the rows of one client."""


def is_partitioner(partition: object) -> TypeGuard[Partitioner]:
    """Return whether a partition is one of flwr-datasets, without importing it."""
    module = sys.modules.get("flwr_datasets.partitioner")
    return module is not None and isinstance(partition, module.Partitioner)


def index_arrays(rule: Partitioner, source: Any, pool: Source) -> Sequence[Ints]:
    """Return the rows of each client, as the partitioner divides them.

    The partitioner sees the columns of a data set of Hugging Face; of other data, the
    label (named ``label`` if it has no name) and the owner.
    """
    if rule.is_dataset_assigned():  # type: ignore[attr-defined]
        raise InvalidOption(
            f"{type(rule).__name__} already has a data set",
            "make a new partitioner, or pass the list of its partitions as the source",
            where=("partition",),
        )
    title = type(rule).__name__
    try:
        rule.dataset = _offered(source, pool)
        count = rule.num_partitions
        return [
            np.asarray(rule.load_partition(i).with_format("numpy")[_ROW][:], np.int64)
            for i in range(count)
        ]
    except PoiseError:
        raise
    except Exception as error:
        raise InvalidOption(
            f"{title} cannot divide the data: {error}", where=("partition",)
        ) from error


def _offered(source: Any, pool: Source) -> datasets.Dataset:
    from datasets import Dataset

    rows = np.arange(len(pool))
    if is_hugging_face(source) and len(source) == len(pool):
        return source.add_column(_ROW, rows)
    columns = {"label": pool.train.labels.numpy()}
    if pool.rows is not None:
        columns = {"label": pool.train.labels.numpy()[pool.rows]}
    if pool.keys is not None:
        names = np.array(pool.key_names, dtype=object)
        columns["key"] = names[pool.keys]
    for name, values in (pool.offered or {}).items():
        if len(values) == len(pool):
            columns[name] = values
    return Dataset.from_dict({**columns, _ROW: rows})
