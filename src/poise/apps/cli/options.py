"""Options of commands, derived from the declared options of a run and of a request to forget, and
from dataclasses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, get_origin, get_type_hints

import typer

from poise.config.entries import OptionEntry, entries_of

Command = Callable[..., None]
Given = Mapping[str, Any]
"""What a user gave, by key; None where the user gave nothing."""

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]
Training = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of the training.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what it would cost.")]


@dataclass(frozen=True)
class PresetArm:
    """Which arm of a reproduction is meant."""

    cell: Annotated[str, typer.Option(help="Cell of a reproduction; its first by default.")] = ""
    arm: Annotated[str, typer.Option(help="Arm of a reproduction; its first by default.")] = ""
    scale: Annotated[str, typer.Option(help="Scale of a reproduction.")] = "small"


OPTIONS = "options"
"""The parameter of a command that is replaced by the derived options."""

ALIASES = {"clients": ("--client",)}


def asks(
    kind: type, without: Iterable[str] = (), unset: bool = False
) -> Callable[[Command], Command]:
    """Give a command one option for every declared option of ``kind``; it gets their values as
    ``options``.

    Args:
        kind: a dataclass with declared options.
        without: names of options that the command does not take.
        unset: leave every option unset by default, for commands whose file has the values.
    """
    entries = entries_of(kind, without)

    def derive(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for parameter in own.parameters.values():
            if parameter.name == OPTIONS:
                parameters += [_parameter(entry, unset) for entry in entries.values()]
            else:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        @wraps(command)
        def derived(**given: Any) -> None:
            options = {key: given.pop(key) for key in entries}
            command(**given, options=options)

        return _declared(derived, parameters)

    return derive


def unfolds(command: Command) -> Command:
    """Give a command one option for every field of its parameters that are dataclasses; it gets the
    dataclasses.
    """
    own = inspect.signature(command, eval_str=True)
    kinds: dict[str, type[Any]] = {
        p.name: p.annotation
        for p in own.parameters.values()
        if isinstance(p.annotation, type) and is_dataclass(p.annotation)
    }
    parameters: list[Parameter] = []
    for parameter in own.parameters.values():
        if parameter.name in kinds:
            parameters += _of_fields(kinds[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def derived(**given: Any) -> None:
        made = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)})
            for name, kind in kinds.items()
        }
        command(**given, **made)

    return _declared(derived, parameters)


def _declared(command: Command, parameters: Sequence[Parameter]) -> Command:
    """The same command, which declares these parameters to typer."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _of_fields(kind: type[Any]) -> list[Parameter]:
    """The fields of a dataclass as parameters that typer takes."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(kind)
    ]


def _parameter(entry: OptionEntry, unset: bool) -> Parameter:
    """One derived option as typer takes it."""
    kind = _kind(entry)
    default = None if unset else entry.default
    flags = (entry.flag, *ALIASES.get(entry.key, ()))
    declared = typer.Option(*flags, help=entry.help)
    if entry.option.required:
        return Parameter(entry.key, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, declared])
    if default is None:
        kind = Optional[kind]  # noqa: UP045 - the kind is a value here
    return Parameter(
        entry.key, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared]
    )


def _kind(entry: OptionEntry) -> Any:
    """The type of one value on a command line: texts for choices, which the declared option
    checks.
    """
    if get_origin(entry.kind) is Literal:
        return str
    if get_origin(entry.kind) is tuple:
        return list[str]
    return entry.kind
