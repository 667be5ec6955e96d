"""The metrics of a task by kind: of each sample, or of a set of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from poise.core.directions import Directions
from poise.core.errors import IncompatibleParts, errors_at
from poise.core.parts import OURS
from poise.metrics.items import ambiguous
from poise.metrics.metric import Metric
from poise.metrics.named import NAMED
from poise.metrics.of_set import OfSet, SetFunction, TorchMetric, from_torchmetrics
from poise.tasks.losses import METRICS, PerSample
from poise.tasks.module_outputs import each_tensor
from poise.tasks.probe import called

AnyMetric: TypeAlias = PerSample | SetFunction | Metric | TorchMetric
"""A metric of each sample or of a set: a function, a `Metric` or a torchmetrics object."""

KNOWN: dict[str, PerSample | Metric] = {**METRICS, **NAMED}
"""All metrics that have a name."""

READERS = tuple({type(metric) for metric in NAMED.values()})
"""The metrics that find the classes in the outputs by their shape."""


@dataclass(frozen=True)
class MetricKinds:
    """Functions of each sample, whose mean counts, and metrics of a set."""

    per_sample: dict[str, PerSample] = field(default_factory=dict)
    of_set: dict[str, Metric] = field(default_factory=dict)


def declared_directions(metrics: Mapping[str, AnyMetric]) -> Directions:
    """Return the directions that metrics of a set declare."""
    lower: set[str] = set()
    higher: set[str] = set()
    for name, metric in metrics.items():
        if isinstance(metric, Metric | TorchMetric):
            kind = lower if metric.higher_is_better is False else higher
            kind.add(name)
    return Directions(frozenset(lower), frozenset(higher))


def metric_kinds(
    metrics: Mapping[str, AnyMetric],
    outputs: torch.Tensor,
    labels: torch.Tensor,
    *,
    named_loss: bool = True,
) -> MetricKinds:
    """Return the metrics by kind; raise if one does not fit the outputs of the probe.

    A function that returns one number for several samples is a metric of the set. A named
    loss tells where the outputs have the classes; a loss of the user's own does not.
    """
    kinds = MetricKinds()
    outputs = each_tensor(torch.Tensor.detach, outputs)
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise IncompatibleParts(
                f"Task: the name of a metric is {name!r}, not a text",
                where=("metrics",),
            )
        if isinstance(metric, TorchMetric):
            metric = from_torchmetrics(metric)
        if isinstance(metric, Metric):
            if isinstance(metric, READERS) and not named_loss:
                _check_form(name, outputs, labels)
            _check_fit(name, metric, outputs, labels)
            kinds.of_set[name] = metric
        elif _per_sample(name, metric, outputs, labels):
            kinds.per_sample[name] = metric  # type: ignore[assignment]
        else:
            kinds.of_set[name] = OfSet(metric)
            _check_tensor(name, kinds.of_set[name], outputs)
    return kinds


def _check_tensor(name: str, metric: Metric, outputs: object) -> None:
    """Raise if a metric of poise would get outputs that are not one tensor."""
    ours = type(metric).__module__.startswith(OURS)
    if ours and not isinstance(outputs, torch.Tensor):
        raise IncompatibleParts(
            f"Task: metric {name!r} cannot be measured: the model returns a "
            f"{type(outputs).__name__}, not one tensor",
            "leave it out, or give a function of (outputs, labels) with one value per sample",
            where=("metrics",),
        )


def _check_form(name: str, outputs: object, labels: torch.Tensor) -> None:
    """Raise if a metric would have to guess which dimension holds the classes."""
    if ambiguous(outputs, labels):
        size = labels.shape[1]
        raise IncompatibleParts(
            f"Task: metric {name!r} cannot be measured: outputs of shape (n, {size}, "
            f"{size}) do not tell which dimension holds the classes",
            "use loss='cross-entropy', or poise.metrics.OfSet with a function of your own",
            where=("metrics",),
        )


def _check_fit(
    name: str, metric: Metric, outputs: torch.Tensor, labels: torch.Tensor
) -> None:
    """Raise if a metric cannot take the outputs and labels of the probe."""
    _check_tensor(name, metric, outputs)
    try:
        metric.update(metric.init(), outputs, labels)
    except IncompatibleParts as error:
        raise IncompatibleParts(
            f"Task: metric {name!r} cannot be measured: {error.message}",
            error.hint,
            where=("metrics",),
        ) from error


def _per_sample(
    name: str,
    function: PerSample | SetFunction,
    outputs: torch.Tensor,
    labels: torch.Tensor,
) -> bool:
    """Return whether a function returns one value per sample; False for a single number."""
    with torch.no_grad():
        values = called(f"metric {name!r}", function, outputs, labels)
    count = len(labels)
    if isinstance(values, torch.Tensor):
        if tuple(values.shape) in ((count,), (count, 1)):
            return True
        if values.dim() == 0:
            return False
        shape = f"shape {tuple(values.shape)}"
    else:
        with errors_at("metrics"):
            return _single_number(name, values)
    raise IncompatibleParts(
        f"Task: metric {name!r} returns {shape} for {count} samples",
        "return one value per sample, or one number for all",
        where=("metrics",),
    )


def _single_number(name: str, value: object) -> bool:
    """Return False if the value is a number; raise otherwise."""
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise IncompatibleParts(
            f"Task: metric {name!r} returns a {type(value).__name__} instead of a tensor",
            "return a tensor with one value per sample, or one number for all",
        ) from error
    return False
