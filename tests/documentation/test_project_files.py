"""Files for forges and editors parse, and agree with pyproject.toml and the Makefile."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import poise
from documentation.blocks import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

YAML = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / ".github").rglob("*.yml"),
        ROOT / ".pre-commit-config.yaml",
        ROOT / "CITATION.cff",
    )
)


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile, without the path of the tools."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = text.partition(f"\n{target}:")[2].partition("\n\n")[0].splitlines()[1:]
    return [line.strip().removeprefix("$(BIN)/") for line in lines]


@pytest.mark.parametrize("name", YAML)
def test_every_file_parses(name: str) -> None:
    assert isinstance(read(name), dict)


def test_pre_commit_runs_what_make_check_runs() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    hooks = repository["hooks"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in hooks] == recipe("check")
    assert not any(hook["pass_filenames"] for hook in hooks), "the same files as make"


def test_ci_runs_the_script_on_every_python_of_the_metadata() -> None:
    job = read(".github/workflows/ci.yml")["jobs"]["check-and-test"]
    named = re.findall(
        r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]), re.MULTILINE
    )
    assert job["strategy"]["matrix"]["python"] == named
    assert project()["requires-python"] == f">={named[0]}"
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100, "the script is executable"


def test_ci_may_only_read() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}


def test_the_citation_is_that_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == poise.__version__
    assert citation["license"] == project()["license"]
    assert citation["keywords"] == project()["keywords"]
    assert citation["authors"] == [{"name": "the poise developers"}]


def test_the_editor_writes_what_ruff_accepts() -> None:
    parser = configparser.ConfigParser()
    text = (ROOT / ".editorconfig").read_text(encoding="utf-8")
    parser.read_string(f"[top]\n{text}")
    with (ROOT / "pyproject.toml").open("rb") as file:
        length = tomllib.load(file)["tool"]["ruff"]["line-length"]
    assert parser["*.py"]["max_line_length"] == str(length)
    assert parser["Makefile"]["indent_style"] == "tab"


@pytest.mark.parametrize("name", ["CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_links_between_the_files_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert targets
    assert [link for link in targets if not Path(ROOT / link).exists()] == []


def test_reports_of_defects_ask_for_the_versions() -> None:
    form = read(".github/ISSUE_TEMPLATE/defect.yml")
    versions = next(part for part in form["body"] if part.get("id") == "versions")
    assert "poise --version" in versions["attributes"]["description"]
