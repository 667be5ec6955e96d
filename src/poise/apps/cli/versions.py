"""``poise --version``: the versions that decide how a run behaves."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from poise._version import __version__

PACKAGES = ("torch", "numpy", "flwr")
"""Packages whose versions matter; their metadata is read, and none is imported."""


def versions() -> dict[str, str | None]:
    """Return versions by name; None for a package that is not installed."""
    return {
        "poise": __version__,
        "python": platform.python_version(),
        **{name: _installed(name) for name in PACKAGES},
        "platform": platform.platform(),
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def show_versions(json: bool) -> None:
    """Print one line per version, or one JSON document."""
    found = versions()
    if json:
        from poise.apps.cli.terminal import print_json

        print_json(found)
        return
    for name, number in found.items():
        print(f"{name:9} {number or 'not installed'}")
