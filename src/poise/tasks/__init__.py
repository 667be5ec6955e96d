"""Tasks: models, losses, metrics, and the gradient oracle."""

from poise.tasks.quadratics import Quadratics, quadratics
from poise.tasks.task import Task, task

__all__ = ["Quadratics", "Task", "quadratics", "task"]
