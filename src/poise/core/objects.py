"""Objects by name, ``"package.module:name"``: load them, and name the ones that have a name."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from poise.core.errors import InvalidOption, suggest

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
NAME = re.compile(rf"{MODULE.pattern}:[^\W\d]\w*")

RUN_FILE = "ledger.sqlite"
"""The file that every run folder has; poise imports nothing that lies beside or below it."""

_loaded: dict[int, tuple[str, object]] = {}


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value is written as the name of an object, right or wrong.

    >>> is_name("my_package.models:make"), is_name("mlp")
    (True, False)
    """
    return isinstance(value, str) and ":" in value


def module_of(name: str) -> str:
    """Return the module in the name of an object.

    >>> module_of("my_package.models:make")
    'my_package.models'
    """
    return name.partition(":")[0]


def load_object(name: str) -> Any:
    """Import the object ``"package.module:name"``.

    >>> load_object("math:sqrt")(4.0)
    2.0
    >>> load_object("math:sqtr")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: the module 'math' has no 'sqtr' (did you mean 'sqrt'?)
    """
    if not NAME.fullmatch(name):
        raise InvalidOption(
            f"{name!r} is not the name of an object",
            "write 'package.module:name', for example 'my_package.models:make'",
        )
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    try:
        value = getattr(module, attribute)
    except AttributeError as error:
        known = [word for word in vars(module) if not word.startswith("_")]
        hint = suggest(attribute, known)
        if not hint.startswith("did you mean"):
            hint = f"define it in {module.__file__ or module_name}"
        message = f"the module {module_name!r} has no {attribute!r}"
        raise InvalidOption(message, hint) from error
    _loaded[id(value)] = (name, value)
    return value


def load_function(name: str) -> Callable[..., Any]:
    """Import a function or a class by name; raises for other objects."""
    value = load_object(name)
    if not callable(value):
        raise InvalidOption(
            f"{name} is {value!r}, not a function", "name a function or a class"
        )
    function: Callable[..., Any] = value
    return function


def name_of(value: object) -> str | None:
    """Return the name that `load_object` finds an object by; None if there is none.

    Lambdas, functions inside functions, and objects of ``__main__`` have no name.

    >>> name_of(suggest), name_of(lambda: 0)
    ('poise.core.errors:suggest', None)
    """
    known = _loaded.get(id(value))
    if known is not None and known[1] is value:
        return known[0]
    if not isinstance(value, FunctionType | type):
        return None
    module = sys.modules.get(value.__module__)
    if module is None or module.__name__ == "__main__" or module.__spec__ is None:
        return None
    name = value.__qualname__
    if vars(module).get(name) is not value:
        return None
    return f"{module.__name__}:{name}"


def title_of(value: object) -> str:
    """Return the name of an object for messages, also if it cannot be loaded by name.

    >>> title_of(suggest), title_of(lambda: 0)
    ('poise.core.errors:suggest', '<lambda>')
    """
    name = name_of(value)
    if name is None and isinstance(value, FunctionType | type):
        name = value.__qualname__
    return name or repr(value)


def import_module(name: str) -> ModuleType:
    """Import a module by name; every failure is one sentence that says where.

    >>> import_module("no_such_package.models")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: there is no module 'no_such_package.models' ...
    """
    if not MODULE.fullmatch(name):
        raise InvalidOption(
            f"{name!r} is not the name of a module",
            "write 'package.module', for example 'my_package.parts'",
        )
    if name not in sys.modules:
        importlib.invalidate_caches()
    _refuse_other_place(name)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the module is the user's
        absent = isinstance(error, ModuleNotFoundError) and error.name
        if absent and f"{name}.".startswith(f"{absent}."):
            raise InvalidOption(f"there is no module {name!r}", _looked()) from error
        raise InvalidOption(
            f"the module {name!r} cannot be imported: {failure(error)}"
        ) from error


def failure(error: BaseException) -> str:
    """Return the kind and the text of an error of a user's code, with file and line.

    >>> failure(SyntaxError("invalid syntax", ("models.py", 3, 1, "def f(", 3, 7)))
    'SyntaxError: invalid syntax (models.py, line 3)'
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError):  # its text names file and line already
        return f"{kind}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if not f.filename.startswith("<frozen")]
    place = ""
    if users:
        place = f" ({users[-1].filename}, line {users[-1].lineno})"
    return f"{kind}: {error}{place}"


def use_folders(folders: Iterable[Path]) -> None:
    """Put folders at the front of the path, as ``python FILE`` does with the file's folder.

    Run folders are left out: poise imports nothing from them.
    """
    for folder in reversed([path.resolve() for path in folders]):
        if run_folder_of(folder) is None and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def run_folder_of(path: Path) -> Path | None:
    """Return the run folder that a path is, or lies in; None if there is none."""
    for folder in (path, *path.parents):
        if (folder / RUN_FILE).exists():
            return folder
    return None


def places_of(name: str) -> list[Path]:
    """Return the file or the folders of a top-level module, without importing it."""
    spec = _spec_of(name)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place).resolve() for place in spec.submodule_search_locations]
    if spec.origin is None or not spec.has_location:
        return []
    return [Path(spec.origin).resolve()]


def _spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return how a top-level module would be imported now; imports nothing."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None)
        if spec is not None:
            return spec
    return None


def _refuse_other_place(name: str) -> None:
    """Raise if a module lies in a run folder, or was imported from another place."""
    top = name.partition(".")[0]
    places = places_of(top)
    for place in places:
        folder = run_folder_of(place)
        if folder is not None:
            raise InvalidOption(
                f"the module {name!r} lies in the run folder {folder}: poise imports "
                "nothing from run folders",
                "read the file, and copy it into a folder of your own if you trust it",
            )
    loaded = sys.modules.get(top)
    if loaded is None or loaded.__spec__ is None or not places:
        return
    origin = loaded.__spec__.origin
    if loaded.__spec__.submodule_search_locations is not None and origin is not None:
        origin = str(Path(origin).parent)
    if origin is None or not loaded.__spec__.has_location:
        return
    if Path(origin).resolve() not in places:
        raise InvalidOption(
            f"the module {top!r} is already imported from {origin}, and would now come "
            f"from {places[0]}",
            "begin a new process, or rename one of them",
        )


def _looked() -> str:
    """Return a hint that names the folders in which poise looked for a module."""
    own = [
        place
        for place in sys.path
        if place and not re.search(r"python[\d.]+|site-packages|\.zip$|/bin$", place)
    ]
    places = ", ".join([*own, "the installed packages"])
    return (
        f"poise looked in {places}; start the command in the folder of the module, or "
        "install its package"
    )
