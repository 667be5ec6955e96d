"""Users' code on nodes: the server names it, the node's policy allows it, the hash fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from poise.apps.deploy.policy import Policy, PolicyRefused
from poise.core.errors import UpdateRefused
from poise.core.objects import (
    MODULE,
    import_module,
    load_object,
    module_of,
    use_folders,
)
from poise.core.own_code import CODE, IMPORT, PackageCode, code_of
from poise.core.own_functions import allow_function, functions_in
from poise.tasks.named import task_names

MOST_MODULES = 100
"""The most modules that a request may name."""


def admit_code(facts: Mapping[str, Any], policy: Policy, folder: Path | None) -> None:
    """Import the users' code that a request names, or refuse it before any import.

    Args:
        facts: of the request.
        policy: of the node; its ``allow`` lists the allowed packages.
        folder: of the node, where packages may lie beside the installed ones.
    """
    table = facts.get("task", {})
    parts_sent = [facts.get("solver"), facts.get("channel")]
    schedules = [name for _, name in functions_in(parts_sent)]
    names = [*task_names(table), *schedules]
    parts = [str(module) for module in facts.get(IMPORT, ())]
    modules = [*parts, *map(module_of, names)]
    if not modules:
        return
    if len(modules) > MOST_MODULES or not all(map(MODULE.fullmatch, modules)):
        raise UpdateRefused("a request that names no valid modules")
    for module in modules:
        policy.check_module(module)
    if folder is not None:
        use_folders([folder])
    sent = facts.get(CODE, {})
    for package, known in code_of(modules).items():
        _check_source(package, known, sent.get(package))
    for module in parts:
        import_module(module)
    for name in names:
        _check_object(name, policy)
    for name in schedules:
        allow_function(name)


def _check_source(package: str, known: PackageCode, sent: object) -> None:
    """Raise unless the server has the same source of a package."""
    if not known.sha256:
        raise UpdateRefused(
            f"its node has no package {package!r}", "install the package on the node"
        )
    if known.sha256 != sent:
        raise UpdateRefused(
            f"the source of {package!r} on its node (sha256 {known.sha256[:12]}) differs "
            f"from the server's ({str(sent)[:12]})",
            "install the same version on both",
        )


def _check_object(name: str, policy: Policy) -> None:
    """Raise unless an object is a function or class of an allowed package.

    An allowed module may import functions of other packages; a server must not call
    those.
    """
    value = load_object(name)
    if not isinstance(value, FunctionType | type):
        raise PolicyRefused(f"its policy does not allow {name}, which is no function")
    policy.check_module(str(value.__module__))
