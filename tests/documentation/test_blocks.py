"""Every code block of the documentation is run, or says why not."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import tomli_w
import typer

from documentation.blocks import (
    LANGUAGES,
    ROOT,
    SHELL,
    Block,
    Command,
    blocks_of,
    commands,
    pages,
    parse,
)
from parameters import thorough_except
from poise.apps.cli.app import app
from poise.config.experiment import TABLES
from poise.config.experiment import parse as parse_experiment
from poise.core.errors import DataError
from poise.training import compose, prepare

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BASE = """
[data]
source = "digits"
clients = 10
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 1
[run]
rounds = 1
"""
"""What the tables of a fragment are laid over."""

PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(*languages: str) -> Any:
    chosen = [b for b in BLOCKS if b.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[b.place for b in chosen])


def test_every_block_has_a_language_that_is_tested() -> None:
    assert BLOCKS
    assert [b.place for b in BLOCKS if b.language not in LANGUAGES] == []


@of("python")
def test_python_is_a_doctest_of_a_collected_page(block: Block) -> None:
    """pytest runs ``>>>`` lines of all pages below its test paths: nothing else may stand in a
    python block."""
    if block.excuse:
        compile(block.text, block.place, "exec")
        return
    assert block.text.lstrip().startswith(">>> "), (
        "write it as a doctest, or say <!-- not run: why -->"
    )
    assert doctest.DocTestParser().get_examples(block.text)
    tested = PROJECT["tool"]["pytest"]["ini_options"]
    assert block.page.split("/")[0] in tested["testpaths"]
    assert "--doctest-glob=*.md" in tested["addopts"]


@of("toml")
def test_experiment_files_are_whole_and_right(block: Block) -> None:
    """A fragment is laid over a small experiment; what is no experiment says so."""
    tables = tomllib.loads(block.text)
    if block.excuse:
        return
    assert set(tables) <= set(TABLES), (
        "not an experiment file: say <!-- not run: why -->"
    )
    base = tomllib.loads(BASE)
    if "solver" in tables:  # a whole experiment stands for itself
        base = {}
    try:
        prepare(compose(parse_experiment(tomli_w.dumps({**base, **tables})), 0))
    except DataError as absent:
        pytest.skip(str(absent))


@of(*SHELL)
def test_commands_exist(block: Block) -> None:
    for command in commands(block):
        check(command.text)


SESSIONS = [
    p for p in PAGES if any(b.language in SHELL and not b.excuse for b in blocks_of(p))
]


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    thorough_except([ROOT / "docs/graph.md"], SESSIONS),
    ids=[p.relative_to(ROOT).as_posix() for p in SESSIONS],
)
def test_a_page_can_be_typed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files and commands of a page, from its top to its end, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for block in blocks_of(page):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        elif block.language in SHELL and not block.excuse:
            for command in commands(block):
                type_in(command, block.place)


def type_in(command: Command, place: str) -> None:
    """Run ``poise …`` and compare what it prints; other programs are not for a test to start."""
    program, *arguments = shlex.split(command.text)
    assert program == "poise", (
        f"{place}: say <!-- not run: why --> before `{command.text}`"
    )
    typed = [
        sys.executable,
        "-m",
        "poise",
        *arguments,
    ]  # a process of its own: a width is read when a program begins
    outcome = subprocess.run(typed, capture_output=True, text=True, check=False)
    said = outcome.stdout + outcome.stderr
    assert outcome.returncode == 0, f"{place}: {command.text}\n{said}"
    if command.expected:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(command.expected, said, flags), (
            f"{place}: {command.text}\n{said}"
        )


def check(text: str) -> None:
    """A command that a reader can really type: verb, options, targets, extras and files exist."""
    program, *arguments = shlex.split(text)
    if program == "poise":
        parsed(arguments)
    elif program == "make":
        targets = set(
            re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        )
        assert set(arguments) <= targets, text
    elif program == "pip":
        for extras in re.findall(r"poise\[([^\]]*)\]", text):
            assert set(extras.split(",")) <= set(
                PROJECT["project"]["optional-dependencies"]
            ), text
    elif program == "python":
        assert (ROOT / arguments[0]).is_file() or arguments[0] == "-m", text
    else:
        assert program in ("flwr", "mlflow", "ray", "tensorboard"), (
            f"nobody checks `{text}`"
        )


def parsed(arguments: list[str]) -> None:
    """Find the verb and read its options, as the command line would, without doing anything."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and arguments:
        name, *arguments = arguments
        assert name in command.commands, f"poise has no verb {name}"
        command = command.commands[name]
    command.make_context("poise", arguments)


# The tests above can fail
# -------------------------------------------------------------------------------------------


WRONG = [
    "poise rnu exp.toml",
    "poise run",
    "poise run exp.toml --seed 1",
    "make tset",
    "ls",
    "pip install poise[ray,x]",
]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_commands_are_noticed(text: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        check(text)


def test_what_a_block_is() -> None:
    text = (
        "<!-- not run: why -->\n```sh\na  # b\n```\n```toml "
        'title="x.toml"\n[run]\n```\n```console\n$ c d\ne\n```\n'
    )
    script, file, session = parse(text)
    assert (script.excuse, file.excuse, file.title, session.line) == (
        "why",
        "",
        "x.toml",
        8,
    )
    assert commands(script) == [Command("a", "")]
    assert commands(session) == [Command("c d", "e\n")]


def test_an_excuse_for_a_page_is_for_its_commands_only() -> None:
    found = parse(
        "<!-- shell not run: needs nodes -->\n```sh\na\n```\n```python\n1\n```\n"
    )
    assert [b.excuse for b in found] == ["needs nodes", ""]


def test_other_output_than_printed_is_noticed() -> None:
    with pytest.raises(AssertionError):
        type_in(Command("poise --version", "never"), "here")
