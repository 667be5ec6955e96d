"""Checks of a user's module, loss and metrics on two samples, before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from poise.core.errors import IncompatibleParts
from poise.tasks.losses import PerSample

SAME = 1e-4
"""Relative difference up to which two losses count as equal."""


def check_module(module: object) -> None:
    """Raise unless this is a module whose numbers exist and are real."""
    if not isinstance(module, nn.Module):
        raise _misfit(
            f"module must be an nn.Module or a function that returns one, not {module!r}"
        )
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise _misfit(
                f"the size of {name!r} is not known yet, as in lazy modules",
                "run the module once on a sample, or give the sizes",
            )
        if not isinstance(tensor, torch.Tensor):
            raise _misfit(f"the module's state has {name!r}, which is no tensor")
        if tensor.is_meta:
            raise _misfit(
                f"{name!r} is on the device 'meta' and has no values",
                "make the module on the CPU",
            )
        if tensor.is_complex():
            raise _misfit(f"{name!r} has complex numbers", "use real numbers")


def check_outputs(outputs: object, count: int) -> None:
    """Raise unless a module returned one real row per sample."""
    if not isinstance(outputs, torch.Tensor):
        raise _misfit(
            f"the model returns a {type(outputs).__name__} instead of one tensor",
            "return the tensor of the outputs from forward",
        )
    if not outputs.is_floating_point():
        raise _misfit(f"the model returns {outputs.dtype}, not real numbers")
    if outputs.dim() == 0 or len(outputs) != count:
        raise _misfit(
            f"the model returns shape {tuple(outputs.shape)} for {count} samples",
            "return one row per sample",
        )


def check_loss(loss: PerSample, outputs: torch.Tensor, labels: torch.Tensor) -> None:
    """Raise unless a loss returns one value per sample, or their mean."""
    outputs = outputs.detach().requires_grad_()
    both = _value("loss", loss, outputs, labels)
    first = _value("loss", loss, outputs[:1], labels[:1])
    second = _value("loss", loss, outputs[1:], labels[1:])
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
        return
    total = float((first.mean() + second.mean()).detach())
    value = float(both.detach())
    if total and abs(value - total) <= SAME * abs(total):
        raise _misfit(
            f"the loss of two samples is the sum of their losses ({value:g})",
            "return one value per sample, or their mean",
            where="loss",
        )


def check_metrics(
    metrics: Mapping[Any, PerSample], outputs: torch.Tensor, labels: torch.Tensor
) -> None:
    """Raise unless every metric returns one value per sample."""
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise _misfit(
                f"the name of a metric is {name!r}, not a text", where="metrics"
            )
        with torch.no_grad():
            values = _value(f"metric {name!r}", metric, outputs.detach(), labels)
        if tuple(values.shape) not in ((len(labels),), (len(labels), 1)):
            raise _misfit(
                f"metric {name!r} returns shape {tuple(values.shape)} for {len(labels)} "
                "samples",
                "return one value per sample",
                where="metrics",
            )


def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; its failure becomes an error that names it."""
    try:
        return function(*arguments)
    except Exception as error:  # the function is the user's: it may raise anything
        raise _misfit(
            f"the {what} fails on two samples: {type(error).__name__}: {error}",
            where=what.split()[0].replace("metric", "metrics"),
        ) from error


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
