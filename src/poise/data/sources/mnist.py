"""`mnist`: handwritten digits, with the writer of each digit."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, suggest
from poise.core.types import Ints
from poise.data.catalogue import MNIST, WRITERS
from poise.data.files import check, home, read_idx
from poise.data.sources.idx import idx_pools
from poise.data.sources.images import public_mean
from poise.data.sources.source import Source

_COLUMNS = {"series": 1, "writer": 2}


def mnist(normalize: str = "unit", by: str | None = None) -> Source:
    """MNIST, 60,000 + 10,000 digits of 28x28.

    The official test set holds only unseen writers. With ``by``, each natural client
    therefore holds out 20 % of its own digits as its test set (``client_test_share`` of
    `poise.federation` changes that), and the official set stays the federation's test
    set.

    Args:
        normalize: ``unit`` (x/255), ``symmetric``, ``standard`` ((x -
            0.1307)/0.3081), ``centred`` (x/255 minus the mean test image), ``inverted``
            (1 - x/255) or ``raw`` (0 … 255).
        by: natural owners for the partition ``by-key``: ``writer`` (539 writers) or
            ``series`` (NIST's hsf 0, employees, and hsf 4, high-school students).

    >>> import poise  # doctest: +NEEDS_DATA
    >>> fed = poise.federation("mnist", "by-key", by="writer")  # doctest: +NEEDS_DATA
    >>> fed.clients  # doctest: +NEEDS_DATA
    539

    Source: natural federations, [Fraboni 2023, §2.4]; QMNIST [Yadav 2019] for the
    writers.
    """
    if by is not None and by not in _COLUMNS:
        raise InvalidOption(
            f"mnist: unknown by {by!r}", suggest(str(by), _COLUMNS), where=("by",)
        )
    folder = home("mnist", MNIST)
    train, test = idx_pools(folder, MNIST, normalize)
    if by is None:
        return Source(
            "mnist",
            train,
            test,
            notes="MNIST, official files",
            public_mean=public_mean(normalize),
        )
    owners = _owners(home("mnist", [WRITERS]), by, train.labels)
    numbers, keys = np.unique(owners, return_inverse=True)
    return Source(
        "mnist",
        train,
        test,
        keys=keys.astype(np.int64),
        key_names=tuple(f"{by}/{number}" for number in numbers),
        client_test_share=0.2,
        notes=f"MNIST, official files, {by} of each digit from QMNIST",
        public_mean=public_mean(normalize),
    )


@lru_cache(maxsize=1)
def _read(path: Path) -> NDArray[np.int32]:
    return read_idx(path, (60_000, 8))


def _owners(folder: Path, by: str, labels: torch.Tensor) -> Ints:
    path = check(folder, WRITERS)
    table = _read(path)
    if not np.array_equal(table[:, 0], labels.numpy()):
        raise DataError(
            f"{path}: its classes are not those of the MNIST training labels"
        )
    return table[:, _COLUMNS[by]].astype(np.int64)
