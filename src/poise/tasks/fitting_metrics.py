"""The metrics that make sense for the labels and the outputs of a model."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

import torch

from poise.core.errors import IncompatibleParts
from poise.core.samples import Samples
from poise.metrics.items import ambiguous
from poise.tasks.losses import USUAL_METRICS
from poise.tasks.probe import check_shapes, usual_loss


def metrics_for_own_loss(outputs: object, samples: Samples) -> tuple[str, ...]:
    """Return the usual metrics of the labels that the outputs can have.

    The largest of several outputs is the class under any loss. One output for truth
    values may be a logit or a probability, which only the user knows: no metric then.
    """
    loss = usual_loss(samples)
    if loss == "bce" or (loss == "cross-entropy" and _one_output(outputs, samples)):
        return ()
    if isinstance(outputs, torch.Tensor) and ambiguous(outputs, samples.labels[:1]):
        return ()  # which dimension holds the classes?
    names = USUAL_METRICS[loss]
    return tuple(name for name in names if not reason_against(name, outputs, samples))


def check_metrics(names: Collection[str], outputs: object, samples: Samples) -> None:
    """Raise if a named metric has no meaning for these outputs and labels."""
    for name in names:
        reason = reason_against(name, outputs, samples)
        if reason:
            raise IncompatibleParts(
                f"Task: metric {name!r} cannot be measured: {reason}",
                "leave it out, or give a function of (outputs, labels)",
                where=("metrics",),
            )


def reason_against(name: str, outputs: object, samples: Samples) -> str:
    """Return why outputs and labels do not have ``accuracy`` or ``mae``; empty if they do."""
    if name not in ("accuracy", "mae"):
        return ""
    if not isinstance(outputs, torch.Tensor):
        return f"the model returns a {type(outputs).__name__}, not one tensor"
    classes = samples.classes or samples.element_classes
    if name == "accuracy" and classes and not _one_output(outputs, samples):
        return _class_reason(outputs, samples)
    if name == "accuracy" and classes > 2:
        return f"the model gives one output per label for {classes} classes"
    if name == "accuracy" and samples.classes == 1:
        return "all labels are of one class"
    if not _one_output(outputs, samples):
        return (
            f"the model gives outputs of shape {tuple(outputs.shape[1:])} for labels of "
            f"shape {samples.target_shape}"
        )
    return ""


def _one_output(outputs: object, samples: Samples) -> bool:
    """Whether the model gives one number per label."""
    if not isinstance(outputs, torch.Tensor):
        return False
    return prod(outputs.shape[1:]) == prod(samples.target_shape)


def _class_reason(outputs: torch.Tensor, samples: Samples) -> str:
    try:
        check_shapes("cross-entropy", outputs, samples)
    except IncompatibleParts as error:
        return error.message.removeprefix("Task: ")
    return ""
