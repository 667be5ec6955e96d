"""``poise --version`` reads metadata, and imports nothing that it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import poise
from faults.support import call
from poise.apps.cli import versions


def test_the_versions_are_those_of_the_installed_packages() -> None:
    outcome = call("--version")
    lines = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert outcome.code == 0
    assert list(lines) == ["poise", "python", "torch", "numpy", "flwr", "platform"]
    assert lines["poise"] == poise.__version__
    assert lines["python"] == sys.version.split()[0]
    assert lines["torch"] == version("torch")


def test_the_document_has_the_same_versions() -> None:
    document = json.loads(call("--version", "--json").out)
    assert document == versions.versions()


def test_a_package_that_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PACKAGES", ("no-such-package",))
    assert versions.versions()["no-such-package"] is None
    assert "no-such-package not installed" in call("--version").out


def test_json_before_a_verb_is_refused() -> None:
    outcome = call("--json", "list")
    assert outcome.code == 2
    assert "after the verb" in outcome.err


def test_neither_torch_nor_numpy_is_imported() -> None:
    code = (
        "import sys\nsys.argv = ['poise', '--version']\n"
        "from poise.apps.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print({'torch', 'numpy', 'flwr'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
