"""Export the weights of a model: safetensors, and state dictionaries of PyTorch."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import PoiseError, require
from poise.core.federations import TaskLike
from poise.exports.trained import TrainedModel
from poise.exports.writing import file_at, write
from poise.results import Run

WEIGHTS = "model.safetensors"
STATE = "model.pt"


def safetensors(
    run: Run,
    path: str | Path,
    *,
    n: int | None = None,
    client: int | str | None = None,
    task: TaskLike | None = None,
) -> Path:
    """Write the weights of a model as a safetensors file; return its path.

    The header names the run: digest, round, seed, classes and form of a sample.

    Args:
        run: the run.
        path: the file, or a folder for ``model.safetensors``.
        n: the model after n aggregations; the newest by default.
        client: the model that this client uses, with its personal layers.
        task: the task of the run; required if its model has frozen parameters and the
            ledger has no name of it.

    >>> import poise, tempfile
    >>> fed = poise.federation("digits", clients=5)
    >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
    >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=2)
    >>> from safetensors.numpy import load_file
    >>> file = poise.exports.safetensors(run, tempfile.mkdtemp())
    >>> {name: array.shape for name, array in sorted(load_file(file).items())}
    {'1.bias': (10,), '1.weight': (10, 64)}
    """
    file = file_at(path, WEIGHTS)
    write({file: weights_file(TrainedModel(run, n, client, task))})
    return file


def weights_file(model: TrainedModel) -> bytes:
    """Return the content of a safetensors file, after reading it back."""
    from safetensors.numpy import load, save

    weights = {
        name: np.ascontiguousarray(array) for name, array in model.weights.items()
    }
    content: bytes = save(weights, metadata={"format": "pt", **model.facts})
    _check(load(content), weights)
    return content


def pytorch(
    run: Run,
    path: str | Path,
    *,
    n: int | None = None,
    client: int | str | None = None,
    task: TaskLike | None = None,
) -> Path:
    """Write a state dictionary of PyTorch; return its path.

    ``torch.load(file, weights_only=True)`` reads it. Arguments as for `safetensors`.
    """
    import torch

    model = TrainedModel(run, n, client, task)
    tensors = {
        name: torch.from_numpy(array.copy()) for name, array in model.weights.items()
    }
    stream = io.BytesIO()
    torch.save(tensors, stream)
    stream.seek(0)
    read = torch.load(stream, weights_only=True)
    _check({name: value.numpy() for name, value in read.items()}, model.weights)
    file = file_at(path, STATE)
    require(
        file.suffix != ".safetensors",
        f"{file} would be a file of PyTorch with the name of a safetensors file",
        "choose a name such as model.pt",
    )
    write({file: stream.getvalue()})
    return file


def _check(read: Mapping[str, NDArray[Any]], wanted: Mapping[str, Any]) -> None:
    """Raise if the tensors that a file gives back differ from those written."""
    same = read.keys() == wanted.keys() and all(
        array.dtype == wanted[name].dtype
        and array.shape == wanted[name].shape
        and array.tobytes() == wanted[name].tobytes()
        for name, array in read.items()
    )
    if not same:
        raise PoiseError("the written file does not give back the same tensors")
