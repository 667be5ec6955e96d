"""Command options from `RunOptions`, `UnlearnRequest` and option dataclasses."""

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
OptionValues = Mapping[str, Any]
"""Option values by key; None for options that the user left out."""

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout and nothing else."),
]
Training = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder of the training.")
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Only show the cost; change nothing.")
]
GoBack = Annotated[
    bool,
    typer.Option(
        "--go-back",
        help="Allow to compute several recorded rounds again if files are damaged.",
    ),
]
Erase = Annotated[
    bool,
    typer.Option(
        "--erase",
        help="Then delete the clients' traces, and certify what was erased.",
    ),
]


@dataclass(frozen=True)
class PresetArm:
    """Options that select one arm of a reproduction."""

    cell: Annotated[
        str, typer.Option(help="Cell of a reproduction; default: the first.")
    ] = ""
    arm: Annotated[
        str, typer.Option(help="Arm of a reproduction; default: the first.")
    ] = ""
    scale: Annotated[
        str, typer.Option(help="Scale of a reproduction: small or paper.")
    ] = "small"


OPTIONS = "options"
"""Name of the command parameter that the derived options replace."""

ALIASES = {"clients": ("--client",)}


def declared_options(
    kind: type, without: Iterable[str] = (), unset: bool = False
) -> Callable[[Command], Command]:
    """Add each option declared by ``kind``; the command receives them as ``options``.

    Args:
        kind: a dataclass with declared options.
        without: names of options to omit.
        unset: default every option to None, for commands that read the values from a
            file.
    """
    entries = entries_of(kind, without)

    def derive(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == OPTIONS:
                parameters += [_parameter(entry, unset) for entry in entries.values()]
            else:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        @wraps(command)
        def derived(**given: Any) -> None:
            options = {key: given.pop(key) for key in entries}
            command(**given, options=options)

        return _with_signature(derived, parameters)

    return derive


def dataclass_options(command: Command) -> Command:
    """Replace each dataclass parameter of a command by one option per field."""
    signature = inspect.signature(command, eval_str=True)
    kinds: dict[str, type[Any]] = {
        p.name: p.annotation
        for p in signature.parameters.values()
        if isinstance(p.annotation, type) and is_dataclass(p.annotation)
    }
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name in kinds:
            parameters += _field_parameters(kinds[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def derived(**given: Any) -> None:
        groups: dict[str, Any] = {}
        for name, kind in kinds.items():
            values = {field.name: given.pop(field.name) for field in fields(kind)}
            groups[name] = kind(**values)
        command(**given, **groups)

    return _with_signature(derived, parameters)


def _with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    """The command with a signature that typer reads."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return command


def _field_parameters(kind: type[Any]) -> list[Parameter]:
    """The fields of a dataclass as typer parameters."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name]
        )
        for f in fields(kind)
    ]


def _parameter(entry: OptionEntry, unset: bool) -> Parameter:
    """A declared option as a typer parameter."""
    kind = _command_line_type(entry)
    default = entry.default
    if unset:
        default = None
    flags = (entry.flag, *ALIASES.get(entry.key, ()))
    declared = typer.Option(*flags, help=entry.help)
    if entry.option.required:
        return Parameter(
            entry.key, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, declared]
        )
    if default is None:
        kind = Optional[kind]  # noqa: UP045 - the kind is a value here
    return Parameter(
        entry.key,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, declared],
    )


def _command_line_type(entry: OptionEntry) -> Any:
    """The type of a value on the command line; choices are text, validated later."""
    if get_origin(entry.kind) is Literal:
        return str
    if get_origin(entry.kind) is tuple:
        return list[str]
    return entry.kind
