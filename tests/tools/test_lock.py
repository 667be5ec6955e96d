"""The locked dependencies of a release: each has a hash, and the versions are the tested ones."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import lock

LOCKS = ("requirements.lock", "requirements-dev.lock")
ENTRY = re.compile(r"([a-z0-9-]+)==(\d[\w.]*) --hash=sha256:([0-9a-f]{64})")


def entries(name: str) -> dict[str, str]:
    """The locked version of each package; every line must be an entry with a hash."""
    versions = {}
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        found = ENTRY.fullmatch(line)
        assert found, f"{name}: {line!r} is no entry with a hash"
        assert found[1] not in versions, f"{name}: {found[1]} occurs twice"
        versions[found[1]] = found[2]
    return versions


def pins() -> dict[str, str]:
    text = (ROOT / "constraints.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def direct(developers: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = lock.requirements(project, developers)
    return {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in wanted}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_the_tested_versions(name: str) -> None:
    locked = entries(name)
    tested = {package: v for package, v in pins().items() if package in locked}
    assert {package: locked[package] for package in tested} == tested
    assert direct(developers="dev" in name) <= set(locked)


def test_every_tested_version_is_locked() -> None:
    assert set(pins()) <= set(entries("requirements-dev.lock"))
    release, developers = map(entries, LOCKS)
    assert release.items() <= developers.items()
    assert "pytest" not in release


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_place(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "index" not in text.replace("importlib", "")


def test_a_line_has_the_version_without_the_name_of_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package: dict[str, Any] = {
        "metadata": {"name": "Some_Package.x", "version": "2.13.0+cpu"},
        "download_info": {"archive_info": {"hashes": {"sha256": "ab" * 32}}},
    }

    def pip(command: list[str], check: bool) -> None:
        report = Path(command[command.index("--report") + 1])
        report.write_text(json.dumps({"install": [package]}))

    monkeypatch.setattr(lock.subprocess, "run", pip)
    line = f"some-package-x==2.13.0 --hash=sha256:{'ab' * 32}"
    assert lock.resolved(["some"]) == {"some-package-x": line}
