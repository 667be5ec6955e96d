"""The facts that a server sends to nodes about users' code."""

from __future__ import annotations

from typing import Any

from poise.config.experiment import Experiment
from poise.core.own_code import CODE, IMPORT, code_of
from poise.core.own_functions import function_modules
from poise.core.parts import describe
from poise.tasks.named import task_modules
from poise.training import declaring_modules, parts_in, use_code


def code_facts(experiment: Experiment) -> dict[str, Any]:
    """Return the facts of every request about the users' code that nodes need.

    Nodes need the modules of the task, of the solver, of its schedules and of the
    channel. The facts are empty if all of these are poise's.
    """
    use_code(experiment)
    parts = parts_in(experiment)
    modules = sorted(
        {*declaring_modules(parts.solver), *declaring_modules(parts.channel)}
    )
    functions = [describe(parts.solver), describe(parts.channel)]
    named = [*task_modules(experiment.table("task")), *function_modules(functions)]
    code = code_of([*modules, *named])
    if not code:
        return {}
    return {
        IMPORT: modules,
        CODE: {package: known.sha256 for package, known in code.items()},
    }
