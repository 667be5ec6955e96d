"""`Source`: the pools of a data set before its samples are dealt to clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from poise.core.errors import require
from poise.core.samples import Samples
from poise.core.types import Ints


@dataclass(frozen=True, eq=False)
class Source:
    """A data set before its samples are dealt to clients.

    Only the positions ``rows`` of the pool ``train`` and ``test_rows`` of ``test`` are
    samples; None means all. (Windows of a text share one strided view, which also
    contains windows across two speakers; these are not samples.) Keys name the natural
    owner of each sample.

    Args:
        name: of the source.
        train: the pool to deal to clients.
        test: the held-out pool, or None.
        rows: the positions of ``train`` that are samples, (n,).
        test_rows: the same for ``test``.
        keys: number of the natural owner of each sample, aligned with ``rows``, (n,).
        test_keys: the same for the test samples, if owners have their own.
        key_names: name of each owner.
        client_test_share: share of each natural client's samples to hold out as its own
            test set.
        notes: facts about this copy of the data that readers of results must know.
        public_mean: the public image that is subtracted from every sample; empty if
            none is.
        own: the user's own data: the digest of a federation covers their values.
        columns: names of the features of a table.
        class_names: names of the classes; empty if classes are only numbers.
        offered: columns that a partitioner of flwr-datasets may read, (n,) each.
        groups: a group of each sample, aligned with ``rows``, (n,), by which partitions
            deal instead of by class.

    >>> import torch
    >>> pool = Samples(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), classes=1)
    >>> len(Source("zeros", pool))
    4
    """

    name: str
    train: Samples
    test: Samples | None = None
    rows: Ints | None = None
    test_rows: Ints | None = None
    keys: Ints | None = None
    test_keys: Ints | None = None
    key_names: tuple[str, ...] = ()
    client_test_share: float = 0.0
    notes: str = ""
    public_mean: str = ""
    own: bool = False
    columns: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    offered: Mapping[str, NDArray[Any]] | None = None
    groups: Ints | None = None

    def __post_init__(self) -> None:
        require(len(self) > 0, f"{self.name}: no training samples are left")
        if self.keys is not None:
            require(
                len(self.keys) == len(self),
                f"{self.name}: {len(self.keys)} keys for {len(self)} samples",
            )

    def __len__(self) -> int:
        if self.rows is None:
            return len(self.train)
        return len(self.rows)
