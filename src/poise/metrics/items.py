"""The items that a metric counts: samples, pixels, tokens or labels.

Outputs are logits. With targets (n, …) of classes, the outputs may be (n, C, …), as
PyTorch's cross-entropy takes them, or (n, …, C), or one logit (n, …) or (n, 1, …) per
item for two classes. Where both forms fit, the classes are the second dimension. With
targets (n, K) and outputs (n, K), each of the K > 1 columns is a label of its own that
a sample has or lacks.
"""

from __future__ import annotations

import torch

from poise.core.errors import IncompatibleParts

NUMBERS = "the labels are numbers, not classes"


def multi_label(outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    """Return whether every column is a label of its own."""
    return (
        targets.dim() == 2 and targets.shape[1] > 1 and outputs.shape == targets.shape
    )


def class_items(
    outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scores (m, C) and the class (m,) of every item.

    Items with a negative class are left out, as in PyTorch's cross-entropy with
    ``ignore_index=-100``. One logit z per item becomes the scores (0, z).

    >>> scores, classes = class_items(torch.tensor([[2.0], [-1.0]]), torch.tensor([1, 0]))
    >>> scores.tolist(), classes.tolist()
    ([[0.0, 2.0], [0.0, -1.0]], [1, 0])
    """
    if problem := numbers(targets):
        raise IncompatibleParts(
            problem, "use a metric of numbers, such as 'r2' or 'mae'"
        )
    if targets.dim() == outputs.dim() and targets.shape[1:2] == (1,):
        targets = targets.squeeze(1)
        if outputs.shape[1] == 1:
            outputs = outputs.squeeze(1)
    scores = _scores(outputs.detach(), targets)
    labels = targets.reshape(-1).long()
    known = labels >= 0
    if not bool(known.all()):
        scores = scores[known]
        labels = labels[known]
    if len(labels) and int(labels.max()) >= scores.shape[1]:
        raise IncompatibleParts(
            f"there is a class {int(labels.max())}, but the model has outputs for "
            f"{scores.shape[1]} classes",
            "number the classes from 0, or add outputs",
        )
    return scores, labels


def ambiguous(outputs: object, targets: torch.Tensor) -> bool:
    """Return whether the classes may be the second or the last dimension of the outputs.

    >>> ambiguous(torch.zeros(2, 5, 5), targets=torch.zeros(2, 5))
    True
    """
    if not isinstance(outputs, torch.Tensor) or targets.dim() != 2:
        return False
    return outputs.shape[1:] == (targets.shape[1], targets.shape[1])


def _scores(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return one row of scores per item of the targets."""
    shape = tuple(outputs.shape)
    n, rest = len(targets), tuple(targets.shape[1:])
    if shape in ((n, *rest), (n, 1, *rest)):
        logits = outputs.reshape(-1)
        return torch.stack([torch.zeros_like(logits), logits], dim=1)
    first = len(shape) == len(rest) + 2 and shape[2:] == rest
    last = len(shape) == len(rest) + 2 and shape[1:-1] == rest
    if first:
        return outputs.movedim(1, -1).reshape(-1, shape[1])
    if last:
        return outputs.reshape(-1, shape[-1])
    raise IncompatibleParts(
        f"outputs of shape {shape} do not fit labels of shape {(n, *rest)}",
        "return one score per class, or one logit, for every label",
    )


def numbers(targets: torch.Tensor) -> str:
    """Return a sentence if the targets are numbers; classes may be stored as floats."""
    if targets.is_floating_point() and not bool((targets == targets.round()).all()):
        return NUMBERS
    return ""


def paired(
    outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return predictions and targets (n, k) in float64, one prediction per target."""
    predictions = outputs.detach().reshape(len(outputs), -1).double()
    truth = targets.reshape(len(targets), -1).double()
    if predictions.shape != truth.shape:
        raise IncompatibleParts(
            f"the model has {predictions.shape[1]} outputs per sample for "
            f"{truth.shape[1]} targets",
            "measure regression, with one output per target",
        )
    return predictions, truth
