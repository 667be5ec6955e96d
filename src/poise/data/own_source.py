"""A data source that is a user's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset

from poise.core.errors import DataError, InvalidOption, PoiseError, require, suggest
from poise.core.objects import failure, is_name, load_function, title_of
from poise.data.options import option_names
from poise.data.own import load_own, readers_of
from poise.data.sources import Source, arrays
from poise.data.sources.targets import Classes

OPTIONS = "options"
"""The key of a table [data] with the options of the user's function."""

SUPPLIED = ("clients", "seed")
"""What poise gives to a function that has a parameter of this name."""


def is_code(source: object) -> bool:
    """Return whether a source is a user's function, or the name of one."""
    if isinstance(source, str):
        return is_name(source)
    return callable(source) and not isinstance(source, Dataset)


def own_loader(
    given: str | Callable[..., Any], options: Mapping[str, Any]
) -> Callable[..., Source]:
    """Return the source of a user's function, given as it is or by its name.

    The function returns data of any kind that `poise.federation` takes, or a table with
    the data under ``data`` and their options (``test``, ``label``, ``keys``, …).

    Args:
        given: the function, or its name.
        options: of the function.
    """
    function = load_function(given) if isinstance(given, str) else given
    title = given if isinstance(given, str) else title_of(given)
    _check(function, options, title)

    def load(
        *,
        clients: int,
        seed: int,
        test_share: float = 0.0,
        classes: Classes | None = None,
        normalize: str | None = None,
        vocabulary: int | None = None,
        target: str | None = None,
        label: str | Sequence[str] | None = None,
        key: str | None = None,
        features: Sequence[str] | None = None,
        missing: str | float | None = None,
        categories: Mapping[str, Any] | None = None,
    ) -> Source:
        offered = {"clients": clients, "seed": seed}
        parameters = option_names(function)
        supplied = {
            name: value
            for name, value in offered.items()
            if name in parameters and name not in options
        }
        made = _called(function, {**options, **supplied}, title)
        if isinstance(made, Source):
            return made
        table = {"data": made}
        if isinstance(made, Mapping) and "data" in made:
            table = dict(made)
        form = {
            "test_share": test_share or None,
            "classes": classes,
            "normalize": normalize,
            "vocabulary": vocabulary,
            "target": target,
            "label": label,
            "key": key,
            "features": features,
            "missing": missing,
            "categories": categories,
        }
        chosen = {name: value for name, value in form.items() if value is not None}
        return _source({**table, **chosen}, title)

    return load


def _check(
    function: Callable[..., Any], options: Mapping[str, Any], title: str
) -> None:
    """Raise for options that a user's function does not take."""
    require(
        isinstance(options, Mapping),
        f"options must be a table, not {options!r}",
        "for example options = {rows = 100}",
        where=OPTIONS,
    )
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in options:
        if key not in parameters:
            raise InvalidOption(
                f"{title} has no option {key!r}",
                suggest(key, parameters) or "it has no options",
                where=(OPTIONS, key),
            )


def _called(
    function: Callable[..., Any], options: Mapping[str, Any], title: str
) -> object:
    try:
        return function(**options)
    except PoiseError:
        raise
    except (Exception, SystemExit) as error:  # the function is the user's
        raise DataError(f"{title} failed: {failure(error)}") from error


def _source(table: Mapping[str, Any], title: str) -> Source:
    options = {name: value for name, value in table.items() if name != "data"}
    try:
        takers: list[Callable[..., Any]] = [*readers_of(table["data"]), arrays]
        known = [name for taker in takers for name in option_names(taker)]
        for key in options:
            require(key in known, f"it has no option {key!r}", suggest(str(key), known))
        return load_own(table["data"], options)
    except InvalidOption as error:
        raise DataError(f"{title}: {error.message}", error.hint) from error
