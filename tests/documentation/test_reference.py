"""The reference has every public name, and a name without documentation fails the build."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import poise
from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import reference

INTERNAL = {"poise.apps.cli", "poise.training", "poise.engine", "poise.apps.ui"}
"""Packages that have ``__all__`` and are no part of the library."""


def test_every_public_module_has_a_page() -> None:
    packages = {
        f"poise.{m.name}" for m in pkgutil.iter_modules(poise.__path__) if m.ispkg
    }
    public = {
        name for name in packages if hasattr(importlib.import_module(name), "__all__")
    } - INTERNAL
    named = {
        f"poise.{n}"
        for n in poise.__all__
        if isinstance(getattr(poise, n), types.ModuleType)
    }
    assert public | named <= set(reference.MODULES)


def test_every_public_name_has_an_entry() -> None:
    pages = reference.pages()
    for module in reference.importable():
        headings = re.findall(
            r"^## (\w+)$", pages[reference.page_of(module)], re.MULTILINE
        )
        assert headings == reference.public_names(importlib.import_module(module)), (
            module
        )


def test_a_name_without_documentation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> None: ...

    class Half:
        """Said."""

        def unsaid(self) -> None: ...

    Half.__module__ = "poise.recipes"
    monkeypatch.setattr("poise.recipes.nameless", nameless, raising=False)
    monkeypatch.setattr("poise.recipes.Half", Half, raising=False)
    nameless.__module__ = "poise.recipes"
    with pytest.raises(
        reference.Undocumented,
        match=r"poise\.recipes\.Half\.unsaid, poise\.recipes\.nameless$",
    ):
        reference.pages()


def test_the_strategies_for_flower_have_a_page() -> None:
    pytest.importorskip("flwr", reason="the extra [flower] is not installed")
    page = reference.pages()["reference/flower.strategies.md"]
    assert "## FedSoftMax" in page


def test_a_site_without_flower_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "NEEDS", {"poise.flower.strategies": "no_package"})
    pages = reference.pages()
    assert "without the package `no_package`" in pages["reference/flower.strategies.md"]
    assert "needs the package `no_package`" in pages["reference/index.md"]


def test_every_page_names_the_version() -> None:
    line = reference.on_config({})["copyright"]
    assert line.startswith(f"poise {poise.__version__}, built with python 3.")
    assert "torch" in line
    assert "platform" not in line


def test_signatures_say_nothing_of_this_process() -> None:
    assert not [
        page
        for page, text in reference.pages().items()
        if re.search(r"at 0x[0-9a-f]", text)
    ]


def test_the_navigation_has_every_page() -> None:
    """Also where mkdocs is not installed; there `mkdocs build --strict` says the same."""
    text = (ROOT / "mkdocs.yml").read_text()
    pages = {
        p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")
    } | set(reference.pages())
    listed = re.findall(r"([\w./-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(pages)


@pytest.mark.slow
def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="extra docs")
    mkdocs = shutil.which("mkdocs", path=str(Path(sys.executable).parent)) or "mkdocs"
    built = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r"<(?:link|script|img)[^>]+(?:src|href)=[\"']?((?:https?:)?//[^\"'> ]+)",
            page.read_text(),
        )
        assert fetched == [], f"{page.name} fetches from elsewhere"
