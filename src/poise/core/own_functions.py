"""Functions of users in tables of parts: find their names, and which ones to import.

A table may come from anybody: from a run folder, or from a server. So a function that a
table names is imported only after the user, or the policy of a node, allowed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from poise.core.errors import InvalidOption
from poise.core.objects import NAME, is_name, load_function, module_of, name_of

SCHEDULES = ("schedule", "local_schedule", "then")
"""Options that hold a schedule, so also the name of a function."""

FUNCTION = "function"
"""The schedule with a function, and its option."""

MAIN = "__main__"
"""The module of a script; another process cannot import it."""

_names: set[str] = set()
_modules: set[str] = set()


def functions_in(table: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield place and name of every function that the table of a part names.

    >>> list(functions_in({"name": "sgd", "schedule": "mine.rates:fall"}))
    [(('schedule',), 'mine.rates:fall')]
    """
    items: list[tuple[str, object]] = []
    if isinstance(table, Mapping):
        items = [(str(key), value) for key, value in table.items()]
    elif isinstance(table, list | tuple):
        items = [(str(index), value) for index, value in enumerate(table)]
    for key, value in items:
        if is_name(value) and _holds_function(table, key):
            yield (key,), value
        for place, name in functions_in(value):
            yield (key, *place), name


def _holds_function(table: object, key: str) -> bool:
    """Return whether an option of this table can name a function."""
    if key in SCHEDULES:
        return True
    is_function = isinstance(table, Mapping) and table.get("name") == FUNCTION
    return key == FUNCTION and is_function


def function_modules(table: object) -> list[str]:
    """Return the modules of the functions that a table names; imports nothing."""
    modules = [module_of(name) for _, name in functions_in(table)]
    return [module for module in modules if module != MAIN]


def allow_function(name: str) -> Callable[..., Any]:
    """Import a function; tables may name it from now on."""
    _refuse_unnamed(name)
    function = load_function(name)
    _names.add(name)
    return function


def allow_given(function: object) -> None:
    """Let tables name a function that the user gave in Python."""
    name = name_of(function)
    if name is not None:
        _names.add(name)


def allow_functions_of(module: str) -> None:
    """Let tables name the functions that a module defines."""
    _modules.add(module)


def allowed_function(name: str) -> Callable[..., Any]:
    """Return the function that a table names; raise if nobody allowed it."""
    _refuse_unnamed(name)
    if name in _names:
        return load_function(name)
    if module_of(name) in _modules:
        function = load_function(name)
        if getattr(function, "__module__", None) == module_of(name):
            return function
    raise InvalidOption(
        f"this command does not import the function {name!r}",
        f"if you trust the code: poise verify … --import {module_of(name)}, or in Python "
        f"poise.solvers.schedules.Function({name!r})",
    )


def _refuse_unnamed(name: str) -> None:
    """Raise for a function that no other process can find by its name."""
    if module_of(name) == MAIN or "<" in name:
        raise InvalidOption(
            f"the function {name!r} cannot be imported: it is no function of a module",
            "move it to the top level of a module, and give its name "
            "'package.module:function'",
        )
    if not NAME.fullmatch(name):
        load_function(name)  # raises, and imports nothing
