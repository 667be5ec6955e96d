"""Models, losses and metrics of users by name, ``"package.module:name"``, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from poise.core.errors import InvalidOption, errors_at, require, suggest
from poise.core.objects import (
    is_name,
    load_function,
    load_object,
    module_of,
    name_of,
    title_of,
)
from poise.metrics.metric import Metric
from poise.metrics.of_set import TorchMetric
from poise.tasks.losses import LOSSES, PerSample
from poise.tasks.metric_kinds import KNOWN, AnyMetric
from poise.tasks.transforms import Transform

Maker = Callable[..., nn.Module]


def module_named(name: str) -> nn.Module | Maker:
    """Return the module, or the function or class that makes one, of this name."""
    with errors_at("module"):
        require(
            is_name(name),
            f"Task: module = {name!r} is not the name of a function",
            "write 'package.module:name', or model= for a model of poise",
        )
        value = load_object(name)
        if isinstance(value, nn.Module):
            return value
        return load_function(name)


def loss_named(name: str) -> PerSample:
    """Return the user's loss of this name."""
    with errors_at("loss"):
        return load_function(name)


def transform_named(name: str) -> Transform:
    """Return the user's transform of this name."""
    with errors_at("transform"):
        return load_function(name)


def metrics_named(
    given: Sequence[str] | Mapping[str, str | AnyMetric],
) -> dict[str, AnyMetric]:
    """Return metrics by their titles; a list names each after its function.

    >>> list(metrics_named(["accuracy", "poise.tasks.losses:absolute_error"]))
    ['accuracy', 'absolute_error']
    """
    titled: dict[str, str | AnyMetric] = {}
    if isinstance(given, Mapping):
        titled = dict(given)
    else:
        titled = {name.rpartition(":")[2]: name for name in given}
        require(
            len(titled) == len(given),
            f"Task: two metrics have the same name: {', '.join(given)}",
            "give titles: metrics = {first = 'a.b:f', second = 'c.d:f'}",
            where="metrics",
        )
    return {title: _metric(name) for title, name in titled.items()}


def _metric(given: str | AnyMetric) -> AnyMetric:
    if not isinstance(given, str):
        return given
    with errors_at("metrics"):
        if is_name(given):
            value = load_object(given)
            if isinstance(value, Metric | TorchMetric):
                return value
            return load_function(given)
        if given not in KNOWN:
            raise InvalidOption(
                f"Task: unknown metric {given!r}", suggest(given, KNOWN)
            )
        return KNOWN[given]


def names_metrics(given: object) -> bool:
    """Return whether metrics contain names of users' functions."""
    if isinstance(given, Mapping):
        return any(isinstance(value, str) for value in given.values())
    return isinstance(given, Iterable) and any(is_name(value) for value in given)


def check_maker_options(maker: object, options: Mapping[str, Any]) -> None:
    """Raise for options that the function or class of a module does not take."""
    if not options:
        return
    if isinstance(maker, nn.Module) or not callable(maker):
        raise InvalidOption(
            "Task: options need a function that makes the module",
            "give the function or the class instead of a module",
            where=("options",),
        )
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # some classes of C have no signature
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    title = title_of(maker)
    for key in options:
        if key not in parameters:
            hint = suggest(key, parameters) or "it has no options"
            raise InvalidOption(
                f"Task: {title} has no option {key!r}", hint, where=("options", key)
            )


def module_spec(maker: object, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``module`` and ``options`` of a table [task]; None if they have no name."""
    name = name_of(maker)
    if name is None or not _is_plain(options):
        return None
    table: dict[str, Any] = {"module": name}
    if options:
        table["options"] = dict(options)
    return table


def function_specs(
    loss: object, metrics: object, transform: object
) -> dict[str, str | list[str] | dict[str, str]] | None:
    """Return ``loss``, ``metrics`` and ``transform`` of a table [task].

    None if one of them has no name.
    """
    if without_name(loss, metrics, transform):
        return None
    table: dict[str, str | list[str] | dict[str, str]] = {}
    if transform is not None:
        table["transform"] = _known_name({}, transform) or ""
    if loss is not None:
        table["loss"] = _known_name(LOSSES, loss) or ""
    if isinstance(metrics, Mapping):
        names = {title: _known_name(KNOWN, f) for title, f in metrics.items()}
        table["metrics"] = {title: name or "" for title, name in names.items()}
    elif isinstance(metrics, tuple):
        table["metrics"] = list(metrics)
    return table


def without_name(loss: object, metrics: object, transform: object) -> str:
    """Return which function or metric has no name; empty if all have one.

    >>> without_name("mse", {"f": Metric}, transform=lambda x, generator: x)
    'the transform'
    """
    if transform is not None and _known_name({}, transform) is None:
        return "the transform"
    if loss is not None and _known_name(LOSSES, loss) is None:
        return "the loss"
    if isinstance(metrics, Mapping):
        for title, metric in metrics.items():
            if _known_name(KNOWN, metric) is None:
                return f"metric {title!r}"
    return ""


def _known_name(register: Mapping[str, AnyMetric], value: object) -> str | None:
    """Return the name of an object in one of poise's registers, or its own name."""
    if isinstance(value, str):
        return value
    for name, known in register.items():
        equal = isinstance(known, Metric) and type(known) is type(value)
        if known is value or (equal and known == value):
            return name
    return name_of(value)


def _is_plain(value: object) -> bool:
    """Return whether an experiment file can hold a value."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, str | bool | int | float)


def task_modules(table: Mapping[str, Any]) -> list[str]:
    """Return the modules of users that a table [task] names; imports nothing.

    >>> task_modules({"module": "mine.models:make", "metrics": ["accuracy", "my:top"]})
    ['mine.models', 'my']
    """
    return [module_of(name) for name in task_names(table)]


def task_names(table: Mapping[str, Any]) -> list[str]:
    """Return the names of users' objects in a table [task]; imports nothing."""
    names: list[object] = [table.get(key) for key in ("module", "loss", "transform")]
    metrics = table.get("metrics", ())
    if isinstance(metrics, Mapping):
        names += metrics.values()
    elif isinstance(metrics, list | tuple):
        names += metrics
    return [name for name in names if is_name(name)]
