"""Tasks: models, losses, metrics, and the gradient oracle."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

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


__all__ = ["Quadratics", "Ridge", "Task", "named_task", "quadratics", "ridge", "task"]
