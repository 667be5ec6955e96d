"""`heart-disease`: records of four hospitals."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from poise.core.errors import DataError, InvalidOption, suggest
from poise.core.rng import generator
from poise.core.samples import Samples
from poise.core.types import Floats, Ints
from poise.data.catalogue import HOSPITALS
from poise.data.files import check, home
from poise.data.sources.source import Source
from poise.data.splits import held_out, share_of

FEATURES = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
)
"""The ten columns in use; hospitals outside Cleveland lack slope, ca and thal."""

_COLUMNS = 14
_NORMALISATIONS = ("standard", "none")


def heart_disease(normalize: str = "standard", test_share: float = 0.2) -> Source:
    """Heart disease (num > 0) from ten features; four hospitals are natural clients.

    Missing values: records with a ``?`` in one of the ten features are dropped, which
    leaves 303, 261, 46 and 130 records. Switzerland's cholesterol is 0 in every record
    (not measured) and stays so.

    Standardising: (x - mean)/std of each feature over the *training* records of all
    hospitals together. (Real hospitals would have to agree on these twenty numbers
    first.)

    Args:
        normalize: ``standard`` or ``none``.
        test_share: the held-out share of each hospital's healthy records and of its ill
            ones; the same share always gives the same records.

    >>> import poise  # doctest: +NEEDS_DATA
    >>> fed = poise.federation("heart-disease", "by-key")  # doctest: +NEEDS_DATA
    >>> fed.names  # doctest: +NEEDS_DATA
    ('cleveland', 'hungarian', 'switzerland', 'va')

    Source: [Janosi 1989]; a natural federation, [Buttaci 2024, §3.4.2].
    """
    if normalize not in _NORMALISATIONS:
        raise InvalidOption(
            f"heart-disease: unknown normalize {normalize!r}",
            suggest(normalize, _NORMALISATIONS),
            where=("normalize",),
        )
    folder = home("heart-disease", HOSPITALS.values())
    paths = tuple(check(folder, file) for file in HOSPITALS.values())
    return _load(paths, normalize, share_of(test_share, "test_share"))


@lru_cache(maxsize=4)
def _load(paths: tuple[Path, ...], normalize: str, test_share: float) -> Source:
    tables = [read_hospital(path) for path in paths]
    keys = np.repeat(
        np.arange(len(tables), dtype=np.int64), [len(y) for _, y in tables]
    )
    x = np.concatenate([features for features, _ in tables])
    y = np.concatenate([labels for _, labels in tables])
    test = held_out(keys * 2 + y, test_share, generator(0, "heart-disease/test"))
    if normalize == "standard":
        x = (x - x[~test].mean(axis=0)) / x[~test].std(axis=0)

    def pool(rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Samples:
        return Samples(
            torch.from_numpy(x[rows]).float(), torch.from_numpy(y[rows]), classes=2
        )

    source = Source(
        "heart-disease",
        pool(~test),
        keys=keys[~test],
        key_names=tuple(HOSPITALS),
        notes="records incomplete in the first ten columns are dropped",
    )
    if test.any():
        return replace(source, test=pool(test), test_keys=keys[test])
    return source


def read_hospital(path: Path) -> tuple[Floats, Ints]:
    """Return a hospital's complete records: features (n, 10), 1 for the ill (n,)."""
    features: list[list[float]] = []
    ill: list[int] = []
    for number, line in enumerate(
        path.read_text("ascii", errors="replace").splitlines(), start=1
    ):
        cells = line.split(",")
        if len(cells) != _COLUMNS:
            raise DataError(
                f"{path}: line {number} has {len(cells)} columns, expected {_COLUMNS}"
            )
        used = cells[: len(FEATURES)]
        if "?" in used:
            continue
        try:
            features.append([float(cell) for cell in used])
            ill.append(int(int(cells[-1]) > 0))
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from error
    table = np.array(features, dtype=np.float64).reshape(-1, len(FEATURES))
    return table, np.array(ill, dtype=np.int64)
