"""Fill the slots of a run with parts, from Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch.nn import Module

from poise import engine
from poise.config.run_options import RunOptions
from poise.core.errors import IncompatibleParts, InvalidOption, errors_at, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.parts import build, is_part, parts_of
from poise.core.plugins import load_parts_named
from poise.core.protocols import (
    Aggregator,
    Attack,
    Channel,
    Clock,
    Personal,
    Sampler,
    Server,
    Solver,
    Weighting,
)
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.privacy.budget import Budget
from poise.training.composition import Composition

PROTOCOLS = {
    "solver": Solver,
    "sampler": Sampler,
    "clock": Clock,
    "weighting": Weighting,
    "aggregator": Aggregator,
    "channel": Channel,
    "server": Server,
    "personal": Personal,
    "attack": Attack,
}

MEMBERS = {
    slot: tuple(
        member
        for member in vars(protocol)
        if not member.startswith("_") and member != "traits"
    )
    for slot, protocol in PROTOCOLS.items()
}
"""The members that a part must have, by slot; ``traits`` is optional."""


def composed(
    federation: FederationLike,
    task: TaskLike,
    chosen: Mapping[str, Any],
    options: RunOptions,
    attacks: Iterable[Attack | str] = (),
    unlearning: Budget | None = None,
) -> Composition:
    """Compose a run from Python objects.

    Args:
        federation: the clients and their data.
        task: the model and the loss.
        chosen: parts, or their names, by slot; the other slots get their default part.
        options: of the run.
        attacks: parts of the slot ``attack``.
        unlearning: the guarantee of later unlearning requests.
    """
    require(
        hasattr(federation, "importance"),
        f"{federation!r} is not a federation",
        "make one: poise.federation(…)",
        where="data",
    )
    require(
        not _is_module(task),
        f"{getattr(task, '__name__', type(task).__name__)} is a module, not a task",
        "make a task of it: poise.Task(module=…)",
        where="task",
    )
    require(
        hasattr(task, "bind"),
        f"{task!r} is not a task",
        "make one: poise.task(…)",
        where="task",
    )
    parts = {name: part_or_default(name, chosen.get(name)) for name in RUN_SLOTS}
    with errors_at("attacks"):
        attack_parts = tuple(slot("attack", attack) for attack in attacks)
    return Composition(
        federation,
        task,
        parts=engine.Parts(**parts, attacks=attack_parts),
        options=replace(options, backend=part_or_default("backend", options.backend)),
        unlearning=unlearning,
    )


def _is_module(task: object) -> bool:
    """Whether a module of PyTorch, or its class, was given as the task."""
    if isinstance(task, type):
        return issubclass(task, Module)
    return isinstance(task, Module)


def part_or_default(name: str, given: object) -> Any:
    """Return the given part of a slot, or its default; ``personal`` may be None."""
    if given is None:
        given = DEFAULTS.get(name)
    if given is None and name == "personal":
        return None
    with errors_at(name):
        return slot(name, given)


def slot(name: str, given: object) -> Any:
    """Return a part of this slot, from a part or its name; raises for anything else."""
    if is_part(given) and given.slot != name:
        raise IncompatibleParts(
            f"{type(given).__name__} belongs in the slot {given.slot}, not in {name}"
        )
    if isinstance(given, type):
        hint = f"known: {', '.join(parts_of(name))}"
        ours = is_part(given)
        if ours:
            hint = f"make one: {given.__name__}(…)"
        raise InvalidOption(f"{name} is the class {given.__name__}, not a part", hint)
    if isinstance(given, str):
        load_parts_named(name, given)
        return build(name, {"name": given}, title=name)
    missing = [member for member in MEMBERS.get(name, ()) if not hasattr(given, member)]
    if missing and not is_part(given) and len(missing) == len(MEMBERS[name]):
        raise InvalidOption(
            f"{given!r} is not a part for the slot {name}",
            f"known: {', '.join(parts_of(name))}",
        )
    if missing:
        raise InvalidOption(
            f"{type(given).__name__} is no {name} yet: it has no {', '.join(missing)}",
            f"see poise.core.protocols.{PROTOCOLS[name].__name__}",
        )
    return given
