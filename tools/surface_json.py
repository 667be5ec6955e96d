"""The JSON documents of the command line and of the console, by their keys."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

Items = dict[str, str]

EXPERIMENT = """
[data]
source = "digits"
partition = "iid"
clients = 4

[task]
model = "logistic"

[solver]
name = "sgd"
lr = 0.02
steps = 2
batch_size = 8

[run]
rounds = 2
keep = "all"

[unlearning]
epsilon = 10
"""

VERBS = {
    "run": "run exp.toml --out out",
    "resume": "resume out/seed-0 --rounds 3",
    "explain": "explain exp.toml",
    "inspect": "inspect exp.toml",
    "audit": "audit out",
    "compare": "compare out out",
    "report": "report out",
    "export": "export out/seed-0 --card card.md",
    "unlearn": "unlearn out/seed-0 --clients 1",
    "verify": "verify out/seed-0/unlearning/001/certificate.json",
    "sweep": "sweep exp.toml --over solver.lr=0.01,0.02 --out sweep",
    "list": "list weightings",
    "data list": "data list",
    "new": "new project",
    "keys list": "keys list",
}
"""One call of each verb that needs neither a network nor a deployment."""

FILES = {
    "certificate.json": "out/seed-0/unlearning/001/certificate.json",
    "request.json": "out/seed-0/unlearning/001/request.json",
}

BY_NAME = {
    "built-in",
    "client keys",
    "conditions",
    "final",
    "keys",
    "psi",
    "scores",
    "settings",
    "terms",
}
"""Keys whose objects have names of metrics, clients or conditions as keys."""


def documents() -> Items:
    """Return the keys of every document; what holds names of the user ends in ``*``."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("POISE_KEYS", str(Path(folder) / "keys"))
        os.chdir(folder)
        try:
            Path("exp.toml").write_text(EXPERIMENT, encoding="utf-8")
            found = dict(_all_documents())
        finally:
            os.chdir(before)
    return {**found, **_console()}


def _all_documents() -> Iterator[tuple[str, str]]:
    for verb, words in VERBS.items():
        yield from _keys(f"poise {verb} --json:", _printed(words))
    for name, path in FILES.items():
        yield from _keys(f"{name}:", json.loads(Path(path).read_text(encoding="utf-8")))


def _printed(words: str) -> Any:
    """The document that a command prints."""
    from poise.apps.cli.app import app

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [*words.split(), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise RuntimeError(f"poise {words} failed") from done.exception
    return json.loads(done.stdout)


def _keys(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every key of a document below a path; lists add nothing to the path."""
    if isinstance(value, list):
        for each in value:
            yield from _keys(path, each)
    elif isinstance(value, dict):
        for key, inner in value.items():
            joint = " " if path.endswith(":") else "."
            if joint == "." and re.split(r"[.:] ?", path)[-1] in BY_NAME:
                yield f"{path}.*", "by name"
            else:
                yield f"{path}{joint}{key}", "key"
                yield from _keys(f"{path}{joint}{key}", inner)


def _console() -> Items:
    """Paths of the console's JSON API, with the keys of what they take."""
    from poise.apps.ui import create_app

    with tempfile.TemporaryDirectory() as folder:
        description = create_app(folder).openapi()
    found: Items = {}
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            name = f"{method.upper()} {path}"
            found[name] = "path"
            for parameter in about.get("parameters", []):
                found[f"{name} {parameter['name']}"] = f"in {parameter['in']}"
    for model, schema in description.get("components", {}).get("schemas", {}).items():
        for key in schema.get("properties", {}):
            found[f"{model}.{key}"] = "key"
    return found
