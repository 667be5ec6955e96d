"""Checks of a user's module and loss on a few samples, before training."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from poise.core.errors import IncompatibleParts
from poise.core.samples import Samples
from poise.core.trees import Inputs, mapped
from poise.tasks.calls import called as run
from poise.tasks.copies import copy_of
from poise.tasks.losses import CLASS_LOSSES, Averaged, PerSample
from poise.tasks.module_outputs import each_tensor

SINGLE = "more than 1 value per channel"
"""What PyTorch's batch norm says of a single sample."""

SAME = 1e-4
"""Relative difference up to which two losses count as equal."""


def probe_size(samples: Samples) -> int:
    """Return how many samples a probe has: as many as no other dimension of the outputs.

    Outputs with samples and classes exchanged then have a wrong shape.
    """
    taken = (samples.classes, samples.element_classes, samples.outputs)
    return next(count for count in range(3, 7) if count not in taken)


def check_module(module: object) -> None:
    """Raise unless this is a module whose numbers exist and are real."""
    if not isinstance(module, nn.Module):
        raise _misfit(
            f"module must be an nn.Module or a function that returns one, not {module!r}"
        )
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor):
            raise _misfit(f"the module's state has {name!r}, which is no tensor")
        if tensor.is_meta:
            raise _misfit(
                f"{name!r} is on the device 'meta' and has no values",
                "make the module on the CPU",
            )
        if tensor.is_complex():
            raise _misfit(f"{name!r} has complex numbers", "use real numbers")


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module; raise if it cannot be copied."""
    try:
        return copy_of(module)
    except Exception as error:  # the module is the user's: it may raise anything
        raise _misfit(
            f"{type(module).__name__} cannot be copied: {str(error).partition('.')[0]}",
            "a tensor that is computed from others cannot be part of it; of weight norm "
            "use torch.nn.utils.parametrizations.weight_norm",
        ) from error


def is_lazy(module: nn.Module) -> bool:
    """Whether the size of a tensor is not known before the first pass."""
    return any(
        isinstance(tensor, UninitializedParameter | UninitializedBuffer)
        for tensor in (*module.parameters(), *module.buffers())
    )


def materialised(module: nn.Module, example: Inputs) -> nn.Module:
    """Return a lazy module after one pass in evaluation mode; other modules as they are."""
    if not is_lazy(module):
        return module
    modes = {layer: layer.training for layer in module.modules()}
    with torch.no_grad():
        run(module.eval(), example)
    for layer, mode in modes.items():
        layer.training = mode
    return module


def refuses_one(module: nn.Module, example: Inputs) -> bool:
    """Return whether batch norm of a module refuses this single sample in training."""
    norms = (nn.modules.batchnorm._BatchNorm, nn.modules.batchnorm._LazyNormBase)
    if not any(isinstance(layer, norms) for layer in module.modules()):
        return False
    example = mapped(
        lambda part: part.float() if part.is_floating_point() else part, example
    )
    made = copy_of(module).cpu().float().train()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            run(made, example)
    except Exception as error:  # the module is the user's: it may raise anything
        return SINGLE in str(error)
    return False


def usual_loss(samples: Samples) -> str:
    """Return the loss that labels of this kind usually have."""
    if samples.classes or samples.element_classes:
        return "cross-entropy"
    if samples.multi_label:
        return "bce"
    return "mse"


def check_labels(loss: str | PerSample, samples: Samples, named_model: bool) -> None:
    """Raise if a named loss cannot have labels of this kind."""
    classes = samples.classes or samples.element_classes
    if loss in CLASS_LOSSES and not classes:
        raise _misfit(
            f"{loss} needs class labels, but the labels are numbers",
            "use 'mse', 'bce', or the option target='classes' of the federation",
            where="loss",
        )
    if loss == "mse" and classes and named_model:
        raise _misfit(
            "mse needs numbers, but the labels are classes",
            "give y as floats",
            where="loss",
        )
    if loss == "bce" and len(samples.labels):
        low = float(samples.labels.min())
        high = float(samples.labels.max())
        if low < 0 or high > 1:
            raise _misfit(
                f"bce needs labels from 0 to 1, but they go from {low:g} to {high:g}",
                "use 'cross-entropy' for classes, or 'mse' for numbers",
                where="loss",
            )


def check_shapes(
    loss: str | PerSample, outputs: torch.Tensor, samples: Samples
) -> None:
    """Raise unless the outputs fit the labels under a named loss."""
    shape = tuple(outputs.shape[1:])
    wanted = samples.target_shape
    if loss in CLASS_LOSSES and not wanted:
        if outputs.dim() != 2 or outputs.shape[1] < samples.classes:
            raise _misfit(
                f"the model gives outputs of shape {shape} for {samples.classes} classes",
                f"return one output per class, (n, {samples.classes}); the classes are "
                f"0 … {samples.classes - 1}, also if no label is 0",
                where="model",
            )
    elif loss in CLASS_LOSSES:
        classes = samples.element_classes
        if shape[1:] == wanted and shape[0] >= classes:
            return
        hint = f"return (n, {classes}, {', '.join(map(str, wanted))})"
        if classes == 2 and len(wanted) == 1:
            hint += f", or write target='multi-label' for {wanted[0]} labels of 0 or 1"
        if shape[:-1] == wanted and shape[-1] >= classes:
            hint = "put the classes second: outputs.movedim(-1, 1)"
            if len(wanted) == 1:
                hint = "put the classes second: outputs.transpose(1, 2)"
        raise _misfit(
            f"the model gives outputs of shape {shape} for {classes} classes and labels "
            f"of shape {wanted}",
            hint,
            where="model",
        )
    elif isinstance(loss, str) and prod(shape) != prod(wanted):
        raise _misfit(
            f"the model gives outputs of shape {shape} for labels of shape {wanted}",
            "return one output per label",
            where="model",
        )


def check_outputs(outputs: object, count: int, named_loss: bool = True) -> None:
    """Raise unless a module returned one real row per sample.

    A loss of the user's own takes the outputs as they are.
    """
    if not named_loss and not isinstance(outputs, torch.Tensor):
        return
    if not isinstance(outputs, torch.Tensor):
        raise _misfit(
            f"the model returns a {type(outputs).__name__} instead of one tensor",
            "return one tensor from forward, or give loss=f and metrics={name: f} with "
            "functions of (outputs, labels)",
        )
    if not outputs.is_floating_point():
        raise _misfit(f"the model returns {outputs.dtype}, not real numbers")
    if outputs.dim() == 0 or len(outputs) != count:
        raise _misfit(
            f"the model returns shape {tuple(outputs.shape)} for {count} samples",
            "return one row per sample",
        )


def checked_loss(
    loss: PerSample, outputs: torch.Tensor, labels: torch.Tensor
) -> PerSample:
    """Return a loss with one value per sample, or their mean; raise for another one.

    Values per entry, (n, …), are averaged to one per sample.
    """
    outputs = each_tensor(_leaf, outputs)
    both = _value("loss", loss, outputs, labels)
    first = _value("loss", loss, _rows(outputs, slice(1)), labels[:1])
    second = _value("loss", loss, _rows(outputs, slice(1, None)), labels[1:])
    if not both.requires_grad:
        raise _misfit(
            "the loss does not depend on the outputs of the model",
            "compute it from the outputs without detach() or numbers of Python",
            where="loss",
        )
    if both.dim():
        if len(both) != len(labels) or both.shape[1:] != first.shape[1:]:
            raise _misfit(
                f"the loss returns shape {tuple(both.shape)} for {len(labels)} samples",
                "return one value per sample, or their mean",
                where="loss",
            )
        return Averaged(loss) if both.dim() > 1 else loss
    total = float((first.mean() + second.mean()).detach())
    value = float(both.detach())
    if total and abs(value - total) <= SAME * abs(total):
        raise _misfit(
            f"the loss of {len(labels)} samples is the sum of their losses ({value:g})",
            "return one value per sample, or their mean",
            where="loss",
        )
    return loss


def check_vocabulary(module: nn.Module, example: Inputs, samples: Samples) -> None:
    """Raise if a module of one input fails on the largest token."""
    if not samples.tokens or not isinstance(example, torch.Tensor):
        return
    largest = samples.vocabulary - 1
    tokens = example.clone()
    tokens.view(len(tokens), -1)[:, -1] = largest
    try:
        run(module, tokens)
    except Exception as error:  # the module is the user's: it may raise anything
        raise _misfit(
            f"{type(module).__name__} does not take token {largest} of "
            f"{samples.vocabulary}: {error}",
            f"give its embedding {samples.vocabulary} rows; the tokens are 0 … {largest}",
            where="model",
        ) from error


def check_largest_class(
    loss: PerSample, outputs: torch.Tensor, labels: torch.Tensor, classes: int
) -> None:
    """Raise if a loss of class labels fails on the largest class."""
    if not classes:
        return
    try:
        loss(outputs, torch.full_like(labels, classes - 1))
    except Exception as error:  # the loss is the user's: it may raise anything
        raise _misfit(
            f"the loss fails on labels {classes - 1} of {classes} classes: {error}",
            f"return one output per class; the classes are 0 … {classes - 1}",
            where="loss",
        ) from error


def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; its failure becomes an error that names it."""
    try:
        return function(*arguments)
    except Exception as error:  # the function is the user's: it may raise anything
        verb = "cannot be made"
        if arguments:
            verb = "fails on a few samples"
        raise _misfit(
            f"the {what} {verb}: {type(error).__name__}: {error}",
            where=what.split()[0].replace("metric", "metrics"),
        ) from error


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return an output as the beginning of a gradient."""
    if tensor.is_floating_point():
        return tensor.detach().requires_grad_()
    return tensor


def _rows(outputs: Any, part: slice) -> Any:
    """Return the outputs of some of the samples."""
    return each_tensor(lambda t: t[part] if t.dim() else t, outputs)


def _value(
    what: str, function: PerSample, outputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    value = called(what, function, outputs, labels)
    if not isinstance(value, torch.Tensor):
        raise _misfit(
            f"the {what} returns a {type(value).__name__} instead of a tensor",
            "return a tensor with one value per sample",
            where=what.split()[0].replace("metric", "metrics"),
        )
    return value


def _misfit(message: str, hint: str = "", where: str = "module") -> IncompatibleParts:
    return IncompatibleParts(f"Task: {message}", hint, where=(where,))
