"""Export a model to ONNX, checked against the module that it comes from."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, InvalidOption, require
from poise.core.federations import TaskLike
from poise.core.samples import Samples, SeveralInputs
from poise.core.trees import Inputs, first, leaves
from poise.exports.trained import TrainedModel
from poise.exports.writing import file_at, write
from poise.results import Run
from poise.tasks.calls import called

MODEL = "model.onnx"

CLOSE = 1e-5
"""Largest difference to the module, relative to the largest output or 1."""

LARGEST = 2**31 - 1
"""Bytes of an ONNX file, the limit of its format."""

BATCHES = (1, 2, 5)
"""Numbers of samples with which a file is checked."""


def onnx(
    run: Run,
    path: str | Path,
    *,
    n: int | None = None,
    client: int | str | None = None,
    task: TaskLike | None = None,
) -> Path:
    """Write a model as an ONNX file; return its path.

    The file takes any number of samples at once. Its metadata name the run: digest,
    round, seed, classes and form of a sample. Before it is written, onnxruntime computes
    random samples with it; a difference above 1e-5 to the module is an error. Needs
    ``pip install 'poise[onnx]'``.

    Args:
        run: the run. If its model is code of your own, this imports it.
        path: the file, or a folder for ``model.onnx``.
        n: the model after n aggregations; the newest by default.
        client: the model that this client uses, with its personal layers.
        task: the task of the run; required if the ledger has no name of its model.
    """
    file = file_at(path, MODEL)
    write({file: onnx_file(TrainedModel(run, n, client, task))})
    return file


def onnx_file(model: TrainedModel) -> bytes:
    """Return the content of an ONNX file, after comparing it with the module."""
    _require_extra()
    module = model.module
    proto = _exported(module, example(model.form, module, count=2))
    _without_traces(proto)
    for key, value in model.facts.items():
        proto.metadata_props.add(key=key, value=value)
    size = proto.ByteSize()
    require(
        size <= LARGEST,
        f"the model has {size:,} bytes, and an ONNX file at most {LARGEST:,}",
        "export it with --safetensors",
    )
    content: bytes = proto.SerializeToString(deterministic=True)
    for count in BATCHES:
        _compare(content, module, example(model.form, module, count=count))
    return content


def example(form: Samples, module: torch.nn.Module, *, count: int) -> Inputs:
    """Return random inputs of a module: normal numbers, or tokens of the vocabulary."""
    generator = torch.Generator().manual_seed(count)
    dtype = _float_type(module)

    def part(pool: Samples) -> torch.Tensor:
        shape = (count, *pool.shape)
        if pool.tokens:
            return torch.randint(pool.vocabulary, shape, generator=generator)
        return torch.randn(shape, generator=generator, dtype=dtype)

    if not isinstance(form, SeveralInputs):
        return part(form)
    parts = tuple(part(pool) for pool in form.pools)
    if form.names:
        return dict(zip(form.names, parts, strict=True))
    return parts


def _float_type(module: torch.nn.Module) -> torch.dtype:
    """Return the floating type of the weights of a module."""
    tensors = [*module.parameters(), *module.buffers()]
    types = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return types[0] if types else torch.float32


def _exported(module: torch.nn.Module, x: Inputs) -> Any:
    """Return the ONNX model of a module."""
    batch = torch.export.Dim("batch")
    names = input_names(x)
    dynamic: Any = tuple({0: batch} for _ in names)
    given: dict[str, Any] = {"args": leaves(x)}
    if isinstance(x, dict):
        dynamic = {name: {0: batch} for name in names}
        given = {"args": (), "kwargs": x}
    with _quiet():
        outputs = _output_names(called(module, x))
        try:
            program = torch.onnx.export(
                module,
                **given,
                dynamo=True,
                input_names=names,
                output_names=outputs,
                dynamic_shapes=dynamic,
                verbose=False,
            )
        except Exception as error:  # the module is the user's: it may raise anything
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise IncompatibleParts(
                f"torch.onnx cannot export {type(module).__name__}: {reason}",
                "avoid Python branches on values in forward, or export the weights with "
                "--safetensors",
                where=("task",),
            ) from error
    assert program is not None
    return program.model_proto


def input_names(x: Inputs) -> list[str]:
    """Return the names of the inputs: ``x``, ``x0``, ``x1``, …, or those of a dict.

    >>> input_names((torch.ones(1), torch.ones(1)))
    ['x0', 'x1']
    """
    if isinstance(x, dict):
        return list(x)
    if isinstance(x, tuple):
        return [f"x{k}" for k in range(len(x))]
    return ["x"]


def _output_names(outputs: object) -> list[str]:
    """Return the names of the outputs: ``y``, ``y0``, ``y1``, …, or those of a dict."""
    if isinstance(outputs, Mapping):
        return [str(name) for name in outputs]
    if isinstance(outputs, tuple | list):
        return [f"y{k}" for k in range(len(outputs))]
    return ["y"]


def _without_traces(proto: Any) -> None:
    """Remove the places in source files that torch writes into every node."""
    for graph in [proto.graph, *proto.functions]:
        for node in graph.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
    for value in [*proto.graph.value_info, *proto.graph.initializer]:
        value.ClearField("metadata_props")


def _compare(content: bytes, module: torch.nn.Module, x: Inputs) -> None:
    """Raise if onnxruntime computes other outputs than the module."""
    with torch.no_grad():
        wanted = [out.numpy() for out in _tensors(called(module, x))]
    try:
        found = _run(content, dict(zip(input_names(x), leaves(x), strict=True)))
    except Exception as error:  # onnxruntime has no common class of errors
        raise IncompatibleParts(
            f"the ONNX file of {type(module).__name__} does not take {len(first(x))} "
            f"samples: {' '.join(str(error).split()):.200}",
            "in forward, write x.flatten(1) or x.shape[0] where it has len(x) or a fixed "
            "number of samples",
            where=("task",),
        ) from error
    for a, b in zip(found, wanted, strict=True):
        bound = CLOSE * max(1.0, float(np.abs(b).max(initial=0.0)))
        if a.shape != b.shape or not np.allclose(a, b, rtol=0, atol=bound):
            raise IncompatibleParts(
                f"the ONNX file of {type(module).__name__} computes something else than "
                f"the module for {len(first(x))} samples",
                "forward may depend on the number of samples, or draw random numbers",
                where=("task",),
            )


def _run(content: bytes, inputs: Mapping[str, torch.Tensor]) -> list[Any]:
    """Return what onnxruntime computes; a model may not use each of its inputs."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    found: list[Any] = session.run(None, {name: inputs[name].numpy() for name in names})
    return found


def _tensors(outputs: object) -> list[torch.Tensor]:
    """Return the outputs of a module in order."""
    if isinstance(outputs, Mapping):
        return list(outputs.values())
    if isinstance(outputs, tuple | list):
        return list(outputs)
    assert isinstance(outputs, torch.Tensor)
    return [outputs]


def _require_extra() -> None:
    """Raise if a package of the extra is missing; torch.onnx writes with onnxscript."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(package) is None:
            raise InvalidOption(
                f"ONNX needs the package {package}", "pip install 'poise[onnx]'"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the reports of torch.onnx inside the block."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
