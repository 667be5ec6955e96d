"""Write the locked dependencies of a release: one version and its SHA-256 per package.

    python tools/lock.py            # what `make lock` does

pip resolves the dependencies of pyproject.toml under constraints.txt, with the indexes
of its own configuration, and reports the hash of every file that it would install. The
files name no index, so that they hold for every mirror.

The hashes are those of the files for this machine's system and Python. torch is written
without the suffix of its build (``+cpu``): the hash tells which build is meant.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOR_DEVELOPERS = ("dev", "docs")  # extras that no installation of a release needs

HEADER = """\
# {title}, locked: {system}.
# Written by `make lock` from pyproject.toml and constraints.txt; do not edit.
# Install with: pip install --require-hashes --no-deps -r {name}
"""


def requirements(project: Mapping[str, Any], developers: bool) -> list[str]:
    """Return the direct dependencies, with those of all extras that are wanted."""
    wanted = list(project["dependencies"])
    for extra, dependencies in project["optional-dependencies"].items():
        if developers or extra not in FOR_DEVELOPERS:
            wanted += dependencies
    return sorted(set(wanted))


def resolved(wanted: Iterable[str]) -> dict[str, str]:
    """Return the lines of a lock file, by package: what pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:"]
        command += ["--report", str(report), "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*command, *wanted], check=True)
        found = json.loads(report.read_text())["install"]
    return dict(sorted(line_of(package) for package in found))


def line_of(package: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the line of one package of pip's report."""
    name = package["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
    version = package["metadata"]["version"].partition("+")[0]
    sha256 = package["download_info"]["archive_info"]["hashes"]["sha256"]
    return name, f"{name}=={version} --hash=sha256:{sha256}"


def write(name: str, title: str, developers: bool) -> None:
    """Write one lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = resolved(requirements(project, developers)).values()
    major, minor = sys.version_info[:2]
    system = f"{sys.platform} {platform.machine()}, Python {major}.{minor}"
    header = HEADER.format(title=title, system=system, name=name)
    (ROOT / name).write_text(header + "\n".join(lines) + "\n")


if __name__ == "__main__":
    write("requirements.lock", "poise with its extras", developers=False)
    write("requirements-dev.lock", "poise with its extras and tools", developers=True)
