"""Import names of packages when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports its names at first use.

    Args:
        package: the package's ``__name__``.
        modules: the module inside the package that defines each name; an empty text
            if the name is a module itself.
    """

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not modules[name]:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name


class LazyRegister(Mapping[str, T], Generic[T]):
    """Objects by name; the module of an object is imported when the object is read.

    Args:
        package: the package that contains the modules.
        places: ``module:object`` by name.

    >>> register = LazyRegister("poise.data.partitions", {"iid": "iid:iid"})
    >>> list(register), register["iid"].__name__
    (['iid'], 'iid')
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._package = package
        self._places = dict(places)

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(import_module(f"{self._package}.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
