"""`Layers`: layers chosen by name stay with each client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from poise.core.errors import IncompatibleParts, require
from poise.core.parts import part
from poise.personal.entries import chosen_entries, entries_of, refuse_on_demand

if TYPE_CHECKING:
    from torch import nn

    from poise.core.types import Setting


@part("personal", "layers")
class Layers:
    """Keep entries whose names match a pattern with each client: a personal head.

    Names are those of ``module.state_dict()``. As in file names, ``*`` stands for any
    characters, dots included, and ``?`` for one character. The name of a layer stands
    for all its entries: ``head`` matches ``head.weight``. A tensor with several names
    is personal if one of them matches. A pattern without a match, and patterns that
    match all trainable parameters, raise `IncompatibleParts`.

    Args:
        patterns: one or more patterns; in Python also as arguments,
            ``Layers("head", "norm?")``.

    Source: [Arivazhagan 2019]; [Collins 2021].

    >>> from collections import OrderedDict
    >>> from torch import nn
    >>> layers = {"body": nn.Linear(4, 3), "norm": nn.LayerNorm(3), "head": nn.Linear(3, 2)}
    >>> net = nn.Sequential(OrderedDict(layers))
    >>> Layers("head").names(net)
    ('head.weight', 'head.bias')
    >>> Layers("head.bias", "n*").names(net)
    ('norm.weight', 'norm.bias', 'head.bias')
    >>> Layers("haed").names(net)
    Traceback (most recent call last):
    ...
    poise.core.errors.IncompatibleParts: Layers: no entry of the model matches 'haed' (nearest: ...)
    """

    patterns: tuple[str, ...]

    def __init__(self, *names: str, patterns: Sequence[str] = ()) -> None:
        if isinstance(patterns, str):
            patterns = (patterns,)
        if names:
            patterns = (*names, *patterns)
        object.__setattr__(self, "patterns", patterns)
        self.__post_init__()

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            require(
                isinstance(pattern, str) and pattern != "",
                f"Layers: patterns must be names of layers, not {pattern!r}",
                where="patterns",
            )
        require(
            bool(self.patterns),
            "Layers: patterns must name at least one layer",
            where="patterns",
        )

    def fit(self, setting: Setting) -> None:
        """Refuse populations on demand, whose clients keep nothing."""
        refuse_on_demand(self, setting)

    def names(self, module: nn.Module) -> tuple[str, ...]:
        """Return the names of all entries that match a pattern."""
        entries = entries_of(module)
        chosen: set[str] = set()
        for pattern in self.patterns:
            matches = {name for name in entries if _matches(name, pattern)}
            if not matches:
                raise IncompatibleParts(
                    f"Layers: no entry of the model matches {pattern!r}",
                    f"nearest: {', '.join(_nearest(pattern, entries))}",
                )
            chosen |= matches
        return chosen_entries(self, module, chosen)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches the name of an entry, or of a layer around it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _nearest(pattern: str, entries: Iterable[str]) -> list[str]:
    """Return the three names of layers or entries that look most like the pattern."""
    known = dict.fromkeys(entries)
    for name in list(known):
        steps = name.split(".")
        for k in range(1, len(steps)):
            known[".".join(steps[:k])] = None
    return get_close_matches(pattern, known, n=3, cutoff=0.0)
