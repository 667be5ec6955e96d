"""One data set per client, of several inputs or texts, and texts in data sets of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader, Dataset, TensorDataset

import poise
from poise.core.errors import InvalidOption

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 4)).astype(np.float32)
Y = np.arange(30) % 3
TEXTS = [RNG.integers(1, 9, size=2 + k % 5) for k in range(30)]
OWNERS = [np.arange(10), np.arange(10, 30)]
PARTS = [slice(10), slice(10, 30)]


def test_clients_with_several_inputs_are_the_same_as_one_set() -> None:
    whole = poise.federation(({"a": X, "b": X[:, :2]}, Y), OWNERS)
    clients = [({"a": X[p], "b": X[p, :2]}, Y[p]) for p in PARTS]
    assert poise.federation(clients).digest() == whole.digest()
    pairs = [((X[p], torch.from_numpy(X[p, :2])), Y[p]) for p in PARTS]
    assert (
        poise.federation({"north": pairs[0], "south": pairs[1]}).digest()
        == poise.federation(((X, X[:, :2]), Y), OWNERS).digest()
    )
    with pytest.raises(InvalidOption, match=r"client 1: samples have inputs a \(4,\)"):
        poise.federation([clients[0], ({"a": X[10:]}, Y[10:])])
    with pytest.raises(InvalidOption, match="client 1: 20 samples but 10 labels"):
        poise.federation([clients[0], ({"a": X[10:], "b": X[10:, :2]}, Y[:10])])


class Texts(Dataset[Any]):
    """Texts of different lengths with their classes."""

    def __init__(self, rows: slice) -> None:
        self.texts = TEXTS[rows]
        self.labels = Y[rows]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.texts[row]), int(self.labels[row])


@pytest.mark.parametrize("collate", ["pad", "mask"])
def test_texts_of_clients_are_the_same_as_one_list(collate: str) -> None:
    whole = poise.federation((TEXTS, Y), OWNERS, collate=collate)
    pairs = [(TEXTS[p], Y[p]) for p in PARTS]
    assert poise.federation(pairs, collate=collate).digest() == whole.digest()
    data = [Texts(p) for p in PARTS]
    assert poise.federation(data, collate=collate).digest() == whole.digest()
    one = poise.federation(Texts(slice(None)), OWNERS, collate=collate)
    assert one.digest() == whole.digest()


def samples() -> Iterator[Any]:
    yield from zip(X, Y, strict=True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (samples(), "not a generator (collect its samples in arrays first)"),
        (list(samples()), "not a list of 30 items (for samples in pairs write x, y ="),
        (
            DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))),
            "not a DataLoader (give its dataset)",
        ),
        (
            Texts(slice(None)),
            "item 1 has shape (3,), item 0 (2,) (bring all items to one",
        ),
        (
            (sparse.csr_matrix(X), Y),
            "x is no array but a csr_matrix (turn it into an array",
        ),
        (3, "not 3 (or a data frame, a data set of PyTorch"),
    ],
)
def test_what_is_no_data_is_named(data: Any, words: str) -> None:
    with pytest.raises(poise.PoiseError) as error:
        poise.federation(data, clients=2)
    assert words in str(error.value)


def test_a_lazy_frame_is_no_data_whatever_the_options() -> None:
    pl = pytest.importorskip("polars")
    lazy = pl.DataFrame({"a": [1.0, 2.0], "sick": [0, 1]}).lazy()
    with pytest.raises(InvalidOption, match=r"not LazyFrame \(or a data frame"):
        poise.federation(lazy, label="sick", clients=1)
