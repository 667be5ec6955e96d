"""Odd arrays, modules, losses and metrics: each runs, or gets one sentence about what is wrong."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import nn

import poise
from poise.core.errors import PoiseError
from poise.solvers import SGD

LIMIT = 2.0  # seconds of the processor
RNG = np.random.default_rng(24)
X = RNG.normal(size=(40, 6))
Y = RNG.integers(0, 3, 40)
FEDERATION = poise.federation((X, Y), "iid", clients=4)
STEP = SGD(lr=0.1, steps=1, batch_size=5)


def trained(federation: Any, task: Any) -> str:
    poise.train(federation, task, STEP, rounds=1)
    return ""


def on_arrays(x: Any, y: Any = Y) -> str:
    return trained(poise.federation((x, y), "iid", clients=4), poise.task("logistic"))


def on_module(module: Any = None, **options: Any) -> str:
    return trained(FEDERATION, poise.Task(module=module or nn.Linear(6, 3), **options))


def on_quadratics(*given: Any, **options: Any) -> str:
    federation = poise.quadratics(*given, **options)
    poise.train(federation, federation.task, SGD(lr=0.1, steps=1), rounds=1)
    return ""


class Out(nn.Module):
    """A linear layer whose outputs a function changes."""

    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.linear(x))


def sentence(case: Callable[[], Any]) -> str:
    """The message of a refusal, or nothing; every other exception fails the test."""
    began = time.process_time()
    message = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
    except PoiseError as error:
        message = str(error)
    assert time.process_time() - began < LIMIT
    assert "Traceback" not in message
    return message


def ce(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


MASKED = np.ma.masked_array(X, mask=X > 1)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked x": (lambda: on_arrays(MASKED), "masked values"),
    "masked y": (lambda: on_arrays(X, np.ma.masked_equal(Y, 2)), "masked values"),
    "ragged x": (lambda: on_arrays([[1, 2], [3]] * 20), "different lengths"),
    "ragged y": (lambda: on_arrays(X, [[1], [1, 2]] * 20), "different lengths"),
    "objects": (lambda: on_arrays(X.astype(object)), "must be numbers"),
    "nothing": (lambda: on_arrays(None), "x is no array but a NoneType"),
    "a text": (lambda: on_arrays("digits"), "must be (n, …)"),
    "bytes": (lambda: on_arrays(b"1234"), "must be (n, …)"),
    "texts": (lambda: on_arrays(X.astype(str)), "must be numbers"),
    "complex numbers": (lambda: on_arrays(X + 1j), "must be numbers"),
    "dates": (lambda: on_arrays(X.astype("datetime64[s]")), "must be numbers"),
    "records": (lambda: on_arrays(np.zeros(40, "f8,i4")), "must be numbers"),
    "nan": (lambda: on_arrays(np.where(X > 1, np.nan, X)), "not finite in row"),
    "infinity": (lambda: on_arrays(np.where(X > 1, np.inf, X)), "not finite in row"),
    "beyond float32": (lambda: on_arrays(X * 1e300), "too large for single"),
    "integers beyond int64": (lambda: on_arrays([[10**30]] * 40), "must be numbers"),
    "no samples": (lambda: on_arrays(X[:0], Y[:0]), "no samples"),
    "no entries": (lambda: on_arrays(X[:, :0]), "no entries"),
    "a number": (lambda: on_arrays(3.0), "must be (n, …)"),
    "a set": (lambda: on_arrays({1, 2}), "x is no array but a set"),
    "a generator": (
        lambda: on_arrays(i for i in range(40)),
        "x is no array but a generator",
    ),
    "a sparse matrix": (
        lambda: on_arrays(scipy.sparse.csr_matrix(X)),
        "no array but a csr_matrix",
    ),
    "a sparse tensor": (lambda: on_arrays(torch.tensor(X).to_sparse()), "no array"),
    "a meta tensor": (lambda: on_arrays(torch.empty(40, 6, device="meta")), "meta"),
    "labels too few": (lambda: on_arrays(X, Y[:-1]), "40 samples but 39 labels"),
    "labels below 0": (lambda: on_arrays(X, Y - 5), "labels start at"),
    "labels of 10**12": (lambda: on_arrays(X, Y + 10**12), "label 1000000000002"),
    "labels of 2**63": (lambda: on_arrays(X, Y.astype("u8") + 2**63), "label 922"),
    "labels of 10**30": (lambda: on_arrays(X, [10**30] * 40), "must be numbers"),
    "nan in a mask": (
        lambda: on_arrays(X, np.full((40, 2), np.nan)),
        "y is not finite",
    ),
    "10**12 clients": (
        lambda: poise.federation((X, Y), "iid", clients=10**12),
        "1000000000000 clients, but only 40 samples",
    ),
    "masked optima": (lambda: on_quadratics(np.ma.masked_less(X, 0)), "masked"),
    "ragged optima": (lambda: on_quadratics([[1.0], [1.0, 2.0]]), "different lengths"),
    "optima of nan": (lambda: on_quadratics([[np.nan]]), "finite numbers"),
    "optima of texts": (lambda: on_quadratics([["a"]]), "finite numbers"),
    "optima of one row": (lambda: on_quadratics([1.0]), "(clients, dimensions)"),
    "three curvatures": (lambda: on_quadratics(X[:2], curvature=[1, 2, 3]), "for 2"),
    "infinite curvature": (lambda: on_quadratics(X[:1], curvature=np.inf), "finite"),
    "sizes of texts": (lambda: on_quadratics(X[:2], sizes=["a", "b"]), "finite"),
    "a module as model": (lambda: poise.task(nn.Linear(6, 3)), "poise.Task(module=…)"),  # type: ignore[arg-type]
    "a module first": (lambda: poise.Task(nn.Linear(6, 3)), "poise.Task(module=…)"),  # type: ignore[arg-type]
    "10**30 rounds": (
        lambda: poise.train(
            poise.federation((X, Y), "iid", clients=2),
            poise.task("logistic"),
            poise.solvers.SGD(lr=0.1, steps=1),
            rounds=10**30,
        ),
        "more than 1,000,000,000",
    ),
    "a meta module": (lambda: on_module(nn.Linear(6, 3, device="meta")), "meta"),
    "complex parameters": (
        lambda: on_module(nn.Linear(6, 3, dtype=torch.complex64)),
        "complex",
    ),
    "no parameters": (lambda: on_module(nn.Flatten()), "no trainable parameter"),
    "frozen": (lambda: on_module(nn.Linear(6, 3).requires_grad_(False)), "trainable"),
    "a tuple": (lambda: on_module(Out(lambda o: (o, o))), "returns a tuple"),
    "a dict": (lambda: on_module(Out(lambda o: {"a": o})), "returns a dict"),
    "None": (lambda: on_module(Out(lambda o: None)), "returns a NoneType"),
    "a float": (lambda: on_module(Out(lambda o: 1.0)), "returns a float"),
    "NumPy outputs": (lambda: on_module(Out(lambda o: o.detach().numpy())), "ndarray"),
    "whole numbers": (lambda: on_module(Out(lambda o: o.long())), "not real numbers"),
    "complex outputs": (lambda: on_module(Out(lambda o: o + 1j)), "not real numbers"),
    "one row": (lambda: on_module(Out(lambda o: o.mean(0, keepdim=True))), "one row"),
    "detached outputs": (lambda: on_module(Out(lambda o: o.detach())), "grad"),
    "outputs of nan": (lambda: on_module(Out(lambda o: o * np.nan)), "not finite"),
    "KeyError": (lambda: on_module(Out(lambda o: {}["x"])), "does not take samples"),
    "AttributeError": (lambda: on_module(Out(lambda o: o.no)), "does not take samples"),
    "no module": (lambda: on_module(3), "neither a module nor a function"),
    "a class": (lambda: on_module(nn.Linear), "cannot be made: TypeError"),
    "a factory of None": (lambda: on_module(lambda: None), "must be an nn.Module"),
    "too narrow": (lambda: on_module(nn.Linear(5, 3)), "does not take samples"),
    "too few classes": (lambda: on_module(nn.Linear(6, 2)), "for 3 classes"),
    "a summed loss": (
        lambda: on_module(loss=lambda o, y: ce(o, y).sum()),
        "sum of their losses",
    ),
    "a short loss": (lambda: on_module(loss=lambda o, y: ce(o, y)[:-1]), "shape (3,)"),
    "an (n, n) loss": (
        lambda: on_module(loss=lambda o, y: (o[:, :1] - y) ** 2),
        "shape (4, 4) for 4 samples",
    ),
    "a loss of None": (lambda: on_module(loss=lambda o, y: None), "NoneType"),
    "a loss of 1.0": (lambda: on_module(loss=lambda o, y: 1.0), "returns a float"),
    "a detached loss": (
        lambda: on_module(loss=lambda o, y: ce(o, y).detach()),
        "depend",
    ),
    "a loss that fails": (lambda: on_module(loss=lambda o, y: {}["x"]), "KeyError"),
    "a loss of outputs": (lambda: on_module(loss=lambda o: o), "TypeError"),
    "a short metric": (
        lambda: on_module(metrics={"m": lambda o, y: o[:-1, 0]}),
        "metric 'm' returns shape (3,)",
    ),
    "a wide metric": (lambda: on_module(metrics={"m": lambda o, y: o}), "shape (4, 3)"),
    "a metric of a text": (
        lambda: on_module(metrics={"m": lambda o, y: "good"}),
        "one value per sample, or one number for all",
    ),
    "a metric of None": (
        lambda: on_module(metrics={"m": lambda o, y: None}),
        "metric 'm' returns a NoneType",
    ),
    "a metric that fails": (
        lambda: on_module(metrics={"m": lambda o, y: {}["x"]}),
        "metric 'm' fails",
    ),
    "a metric named 3": (lambda: on_module(metrics={3: lambda o, y: o[:, 0]}), "is 3"),
    "steps of 10**15": (
        lambda: poise.train(
            FEDERATION, poise.task("logistic"), SGD(lr=0.1, steps=10**15), rounds=1
        ),
        "too large for this machine",
    ),
    "batches of 10**30": (
        lambda: poise.train(
            FEDERATION,
            poise.task("logistic"),
            SGD(lr=0.1, steps=1, batch_size=10**30),
            rounds=1,
        ),
        "too large for this machine",
    ),
    "10**12 hidden units": (
        lambda: trained(FEDERATION, poise.task("mlp", hidden=10**12)),
        "too large for this machine",
    ),
}

ACCEPTED: dict[str, Callable[[], Any]] = {
    "a mask that hides nothing": lambda: on_arrays(np.ma.masked_array(X)),
    "a tensor with gradients": lambda: on_arrays(torch.tensor(X, requires_grad=True)),
    "booleans": lambda: on_arrays(X > 0),
    "lists": lambda: on_arrays(X.tolist(), Y.tolist()),
    "a view with negative strides": lambda: on_arrays(X[::-1, ::-1], Y[::-1]),
    "Fortran order": lambda: on_arrays(np.asfortranarray(X)),
    "long doubles": lambda: on_arrays(X.astype(np.longdouble)),
    "half precision": lambda: on_arrays(X.astype(np.float16)),
    "the other byte order": lambda: on_arrays(X.astype(">f8"), Y.astype(">i4")),
    "targets": lambda: on_arrays(X, X[:, 0]),
    "a read-only array": lambda: on_arrays(np.broadcast_to(X[:1], X.shape)),
    "a module in half precision": lambda: on_module(nn.Linear(6, 3).half()),
    "a factory": lambda: on_module(lambda: nn.Linear(6, 3)),
    "losses per sample": lambda: on_module(loss=ce),
    "a mean loss": lambda: on_module(loss=lambda o, y: F.cross_entropy(o, y)),
    "losses in a column": lambda: on_module(loss=lambda o, y: ce(o, y)[:, None]),
    "a metric in a column": lambda: on_module(metrics={"m": lambda o, y: o[:, :1]}),
    "a metric": lambda: on_module(metrics={"m": lambda o, y: o[:, 0]}),
    "one curvature": lambda: on_quadratics(X[:3], curvature=2),
    "one-hot labels": lambda: on_arrays(X, np.eye(3)[Y]),
    "texts as labels": lambda: on_arrays(X, ["a", "b"] * 20),
    "whole optima": lambda: on_quadratics([[1, 2], [3, 4]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_input_gets_one_sentence(name: str) -> None:
    case, words = REFUSED[name]
    assert words in sentence(case)


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_input_that_makes_sense_runs(name: str) -> None:
    assert sentence(ACCEPTED[name]) == ""


NUMBERS = [
    "?",
    "b",
    "B",
    "h",
    "H",
    "i",
    "I",
    "q",
    "Q",
    "e",
    "f",
    "d",
    "g",
    ">f4",
    "<i2",
]
DTYPES = [*NUMBERS, "F", "D", "O", "S3", "U2", "M8[s]", "m8[s]"]
SHAPES = [(40,), (40, 1), (40, 6), (40, 2, 3), (1, 6), (0, 6), (40, 0), (), (39, 6)]


def random_pair(rng: np.random.Generator) -> tuple[Any, Any]:
    """Features and labels of random types, shapes and containers."""
    pair = []
    for shapes in (SHAPES, [(40,), (40,), (40,), (39,), (40, 1), ()]):
        shape = shapes[rng.integers(len(shapes))]
        values = rng.integers(0, 5, size=shape).astype(float)
        if rng.random() < 0.2 and values.size:
            odd = [np.nan, np.inf, -1.0, 1e300, 2.0**63]
            values.flat[rng.integers(values.size)] = odd[rng.integers(len(odd))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = values.astype(DTYPES[rng.integers(len(DTYPES))])
        wrap: list[Callable[[Any], Any]] = [
            lambda a: a,
            lambda a: a.tolist(),
            lambda a: np.ma.masked_array(a, mask=np.zeros(a.shape, bool)),
            lambda a: list(a) if a.ndim else a,
            lambda a: a[::-1] if a.ndim else a,
        ]
        pair.append(wrap[rng.integers(len(wrap))](array))
    return pair[0], pair[1]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_random_arrays_run_or_get_a_sentence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = []
    for _ in range(60):
        x, y = random_pair(rng)
        outcomes.append(sentence(lambda x=x, y=y: on_arrays(x, y)))
    assert "" in outcomes
    assert len(set(outcomes)) > 10


def test_there_are_150_odd_inputs() -> None:
    assert len(REFUSED) + len(ACCEPTED) + 60 >= 150
