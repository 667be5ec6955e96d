"""Predict with the model of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from poise.core.errors import InvalidOption, require
from poise.core.trees import Inputs, first, leaves, mapped
from poise.results.modules import sample_form
from poise.tasks.calls import called

if TYPE_CHECKING:
    from poise.core.samples import Samples
    from poise.results.models import ModelReader
    from poise.tasks.forms import SampleForm

BLOCK = 1024
"""Number of samples that the model takes at once."""

Given = ArrayLike | torch.Tensor | tuple[ArrayLike, ...] | Mapping[str, ArrayLike]
"""One array, or a tuple or a dictionary of arrays for a model with several inputs."""


def predict(run: ModelReader, module: nn.Module, x: Given) -> Any:
    """Return the outputs of a module for samples, as NumPy arrays."""
    inputs = _inputs(x, sample_form(run), _dtype_of(module))
    parts = []
    with torch.no_grad():
        for start in range(0, len(first(inputs)), BLOCK):
            parts.append(called(module, _block(inputs, start)))
    return _joined(parts)


def _block(inputs: Inputs, start: int) -> Inputs:
    """Return the next samples from ``start`` on."""
    block: Inputs = mapped(lambda part: part[start : start + BLOCK], inputs)
    return block


def labelled(outputs: Any, names: Sequence[str]) -> NDArray[Any]:
    """Return the class of each sample from outputs (n, C, …): its number, or its name."""
    fits = (
        isinstance(outputs, np.ndarray) and outputs.ndim >= 2 and outputs.shape[1] > 1
    )
    require(
        fits,
        "labels: the outputs of this model are not one score per class",
        "leave labels out to get the outputs",
        where="labels",
    )
    numbers = cast("NDArray[Any]", outputs).argmax(axis=1)
    if not names:
        return np.asarray(numbers)
    require(
        outputs.shape[1] <= len(names),
        f"labels: the model has {outputs.shape[1]} outputs, but {len(names)} classes "
        "have names",
    )
    return np.asarray(np.array(names)[numbers])


def _dtype_of(module: nn.Module) -> torch.dtype:
    """Return the type of the floating-point numbers of a module."""
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32


def _inputs(x: Given, form: SampleForm, dtype: torch.dtype) -> Inputs:
    """Return samples as inputs of the model; raises if they do not have its form."""
    given: Any = dict(x) if isinstance(x, Mapping) else x
    pools = form.samples.pools
    parts = [_tensor(part) for part in leaves(given)]
    require(
        len(parts) == len(pools),
        f"predict: the model takes {len(pools)} inputs, not {len(parts)}",
        "give a tuple or a dictionary of arrays, as federation.client(i) returns them",
        where="x",
    )
    require(
        len({len(part) for part in parts}) == 1,
        "predict: the inputs have different numbers of samples",
        where="x",
    )
    converted = []
    scaling = form.scaling or ("",) * len(pools)
    for pool, part, words in zip(pools, parts, scaling, strict=True):
        _check_form(pool, part, plain=form.plain, scaling=words)
        converted.append(part.long() if pool.tokens else part.to(dtype))
    if isinstance(given, dict):
        return dict(zip(given, converted, strict=True))
    if isinstance(given, tuple):
        return tuple(converted)
    return converted[0]


def _tensor(part: ArrayLike | torch.Tensor) -> torch.Tensor:
    """Return an array as a tensor on the CPU."""
    if isinstance(part, torch.Tensor):
        tensor = part.detach().cpu()
    else:
        tensor = torch.from_numpy(np.array(part))
    require(
        tensor.ndim > 0, "predict: x is one number, not an array of samples", where="x"
    )
    return tensor


def _check_form(
    pool: Samples, part: torch.Tensor, *, plain: bool, scaling: str
) -> None:
    """Raise for samples of another shape, and for stored bytes of pictures."""
    shape = tuple(part.shape[1:])
    if not pool.tokens and shape != pool.shape:
        hint = "give samples as federation.client(i) returns them"
        if tuple(part.shape) == pool.shape:
            hint = "for one sample write x[None]"
        raise InvalidOption(
            f"predict: the samples have shape {shape}, the model takes {pool.shape}",
            hint,
            where=("x",),
        )
    if not plain and not pool.tokens and not part.is_floating_point():
        hint = "normalise x as federation.client(i) does"
        if scaling:
            hint = f"if x has the stored values of the data, {scaling}"
        raise InvalidOption(
            "predict: x has whole numbers, but the model takes normalised values",
            hint,
            where=("x",),
        )


def _joined(parts: list[Any]) -> Any:
    """Return the outputs of all blocks in one array, or in a tuple or dict of arrays."""
    if not parts:
        raise InvalidOption("predict: x has no samples", where=("x",))
    head = parts[0]
    if isinstance(head, torch.Tensor):
        return torch.cat(parts).numpy()
    if isinstance(head, tuple | list):
        return tuple(_joined([part[k] for part in parts]) for k in range(len(head)))
    if isinstance(head, Mapping):
        return {name: _joined([part[name] for part in parts]) for name in head}
    raise InvalidOption(
        f"predict: the model returns {type(head).__name__}, not arrays",
        "call run.module() yourself",
    )
