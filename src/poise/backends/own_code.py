"""Users' packages that are not installed, and so must travel with the work."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

from poise.core.objects import places_of
from poise.core.parts import is_part, option_names
from poise.engine.local_work import LocalWork

OURS = ("poise", "torch", "numpy", "builtins", "__main__")


def local_packages(local: LocalWork) -> list[ModuleType]:
    """Return the imported packages of users that local work needs and nobody installed."""
    tops = {module.partition(".")[0] for module in _modules(local)}
    return [
        sys.modules[top]
        for top in sorted(tops - {*OURS})
        if top in sys.modules and _is_local(top)
    ]


def _modules(local: LocalWork) -> Iterator[str]:
    """Yield the modules of the classes and functions that local work needs."""
    for part in (local.solver, local.wire.channel):
        yield from _part_modules(part)
    if local.oracle.module is not None:
        for module in local.oracle.module.modules():
            yield type(module).__module__
    for value in vars(local.oracle).values():
        for item in value.values() if isinstance(value, dict) else (value,):
            if isinstance(item, FunctionType):
                yield item.__module__


def _part_modules(part: object) -> Iterator[str]:
    """Yield the modules of a part, and of the parts and functions in its options."""
    yield type(part).__module__
    if not is_part(part):
        return
    for option in option_names(part):
        value = vars(part)[option]
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, FunctionType):
                yield item.__module__
            elif is_part(item):
                yield from _part_modules(item)


def _is_local(package: str) -> bool:
    """Return whether a package lies outside the folders of installed packages."""
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    places = places_of(package)
    return bool(places) and not any(
        place.is_relative_to(folder.resolve()) or "site-packages" in place.parts
        for place in places
        for folder in installed
    )
