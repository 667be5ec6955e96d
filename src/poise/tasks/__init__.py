"""Tasks: models, losses, metrics, and the gradient oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from poise.core.errors import InvalidOption, require, suggest
from poise.core.options import check_keys
from poise.tasks.quadratics import Quadratics, quadratics
from poise.tasks.ridge import Ridge, ridge
from poise.tasks.task import Task, task


def named_task(model: str, **options: Any) -> Task | Ridge:
    """Return the task of a table [task]: an architecture by name, or ridge."""
    if model != "ridge":
        return task(model, **options)
    check_keys(options, [field.name for field in fields(Ridge)], "model 'ridge'")
    return Ridge(**options)


def _task_hint(options: Mapping[str, Any]) -> str:
    """Return the key that was probably meant, or an example."""
    for key in options:
        if suggest(key, ["model", "module"]).startswith("did you mean"):
            return f"did you mean model or module instead of {key}?"
    return 'for example model = "mlp", or module = "my_package.models:make"'


def task_of(table: Mapping[str, Any]) -> Task | Ridge:
    """Return the task of a table [task], which has a ``model`` or a ``module``."""
    options = dict(table)
    require(
        "model" in options or "module" in options,
        "[task] has no model and no module",
        _task_hint(options),
    )
    require(
        "model" not in options or "module" not in options,
        "[task] has both a model and a module",
        "leave one of them out",
        where="module",
    )
    if "model" in options:
        return named_task(options.pop("model"), **options)
    check_keys(options, [field.name for field in fields(Task)], "[task]")
    if isinstance(options.get("metrics"), list):
        options["metrics"] = tuple(options["metrics"])
    if not isinstance(options.get("options", {}), Mapping):
        raise InvalidOption(
            "[task] options must be a table",
            "for example options = {hidden = 32}",
            where=("options",),
        )
    return Task(**options)


__all__ = [
    "Quadratics",
    "Ridge",
    "Task",
    "named_task",
    "quadratics",
    "ridge",
    "task",
    "task_of",
]
