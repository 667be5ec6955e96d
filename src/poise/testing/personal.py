"""The contract of personal layers."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from poise.core.errors import PoiseError
from poise.core.protocols import Personal
from poise.core.types import Setting
from poise.testing.clauses import fits, holds, quietly, refused, setting_of


def check_personal(
    personal: Personal, module: nn.Module, setting: Setting | None = None
) -> None:
    """Check the contract of personal layers.

    Clauses: the names are entries of ``module.state_dict()``, at least one, each once;
    something trainable is left to the server; the same names at every call and for
    other values of the parameters; the model is not modified; clients that are made on
    demand are refused.

    Args:
        personal: the choice of layers.
        module: a model that it is made for.
        setting: the setting that it must accept; eight clients by default.
    """
    where = setting or setting_of()
    fits(personal, where)
    with refused(personal, "clients that are made on demand are refused", PoiseError):
        personal.fit(replace(where, on_demand=True))
    before = deepcopy(module)
    names = _names(personal, module)
    _well_formed(personal, names, module)
    _leaves_something(personal, names, module)
    holds(_same_state(before, module), personal, "the model is not modified")
    holds(_names(personal, module) == names, personal, "same model, same names")
    _ignores_values(personal, names, before)


def _well_formed(personal: Personal, names: list[str], module: nn.Module) -> None:
    holds(names, personal, "at least one entry is personal")
    known = module.state_dict()
    for name in names:
        holds(name in known, personal, "the names are entries of the model", name)
        holds(names.count(name) == 1, personal, "each name is given once", name)


def _leaves_something(
    personal: Personal, names: Iterable[str], module: nn.Module
) -> None:
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    holds(trained - set(names), personal, "something trainable is left to the server")


def _ignores_values(personal: Personal, names: list[str], module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    holds(
        _names(personal, module) == names,
        personal,
        "the names do not depend on the values",
    )


def _names(personal: Personal, module: nn.Module) -> list[str]:
    return list(
        quietly(lambda: personal.names(module), personal, "names entries of the model")
    )


def _same_state(left: nn.Module, right: nn.Module) -> bool:
    first = left.state_dict()
    second = right.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(first[n], second[n]) for n in first
    )
