"""The verb ``poise new``: a project folder that runs as it is."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path
from string import Template

from poise.apps.cli.terminal import print_json, remark
from poise.core.errors import InvalidOption, require
from poise.core.objects import places_of

TEMPLATES = Path(__file__).parent / "project"
SUFFIX = ".txt"


def new_project(folder: Path, json: bool) -> None:
    """Write the files of a new project into a folder, and say what to do next."""
    name = folder.name
    _check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidOption(
            f"{folder} exists and is not empty", "choose another name for the project"
        )
    written = []
    for template in sorted(TEMPLATES.rglob(f"*{SUFFIX}")):
        file = folder / _path(template, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = template.read_text(encoding="utf-8")
        file.write_text(Template(text).substitute(name=name), encoding="utf-8")
        written.append(file.relative_to(folder).as_posix())
    if json:
        print_json({"path": str(folder), "files": written})
        return
    remark(f"{folder}: {', '.join(written)}")
    remark(f"next: cd {folder}; poise run experiment.toml; pytest")


def _check_name(name: str) -> None:
    """Raise unless a name can be that of a package of the user's own."""
    require(
        name.isidentifier() and name.isascii() and name == name.lower(),
        f"{name!r} cannot be the name of a package",
        "use lower-case letters, digits and _, for example my_project",
    )
    taken = keyword.iskeyword(name) or name in sys.stdlib_module_names
    # the package must not hide an installed one
    require(
        not taken and name not in ("tests", "runs") and not _is_installed(name),
        f"the name {name!r} is taken",
        "choose a name that no Python package has, for example my_project",
    )


def _is_installed(name: str) -> bool:
    return any("site-packages" in place.parts for place in places_of(name)) or (
        name == "poise"
    )


def _path(template: Path, name: str) -> Path:
    """Return where a template goes in the project ``name``."""
    inside = template.relative_to(TEMPLATES).as_posix().removesuffix(SUFFIX)
    inside = inside.replace("package/", f"{name}/")
    return Path(inside.replace("test_project", f"test_{name}"))
