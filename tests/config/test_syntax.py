"""Mistakes in the text of an experiment file: one sentence, the line, what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.config.experiment import load, parse
from poise.core.errors import InvalidOption, suggest, without_quotes

MISTAKES = [
    ("a = 1\nb = mlp", 2, "cannot read the value mlp", 'into quotes: "mlp"'),
    ("a = True", 1, "cannot read the value True", "write true"),
    ("a = None", 1, "cannot read the value None", "remove the line"),
    ("a =", 1, "cannot read the value", "remove the line"),
    ("a = .5", 1, "cannot read the value .5", "before and after the point"),
    ("a = “x”", 1, "typographic quotes", "straight quotes"),
    ("a : 1", 1, "cannot read 'a : 1'", "write key = value"),
    ("run", 1, "'run' is neither a key with a value nor a table", r"[run]"),
    ("[x]\na = 1\n[x]\nb = 2", 3, "the table [x] appears twice", "merge"),
    ("a = 1\na = 2", 2, "a is set twice", "remove one"),
    ('a = "x', 1, "", ""),
    ("a = [1, 2", 1, "", ""),
    ('a = """x', 1, "the file ends too early", ""),
    ("[x", 1, "", ""),
]


@pytest.mark.parametrize(("text", "line", "message", "hint"), MISTAKES)
def test_a_mistake_in_the_text_is_explained(
    text: str, line: int, message: str, hint: str
) -> None:
    with pytest.raises(InvalidOption) as error:
        parse(text, Path("exp.toml"))
    assert error.value.message.startswith(f"exp.toml, line {line}: ")
    assert message in error.value.message
    assert hint in error.value.hint
    assert "(at " not in str(error.value)


def test_import_inside_a_table_is_found() -> None:
    with pytest.raises(InvalidOption, match=r"line 3: import belongs to no table") as e:
        parse("[run]\nrounds = 1\nimport = ['mine']")
    assert "top of the file" in e.value.hint


def test_a_table_of_the_command_line_is_named_as_such() -> None:
    with pytest.raises(InvalidOption, match=r"^--set solvr.lr=1: unknown table"):
        parse("[run]\nrounds = 1", overrides=["solvr.lr=1"])


def test_the_file_that_was_meant_is_named(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text("")
    (tmp_path / "runs/seed-0").mkdir(parents=True)
    (tmp_path / "runs/seed-0/experiment.toml").write_text("")
    hints = {
        "exq.toml": "did you mean .*exp.toml",
        "exp": "did you mean .*exp.toml",
        "zzz.toml": "poise new",
        "runs": "this run is .*runs/seed-0/experiment.toml",
        "runs/seed-0": "this run is .*runs/seed-0/experiment.toml",
        "none/exp.toml": "there is no folder .*none",
    }
    for name, hint in hints.items():
        with pytest.raises(InvalidOption, match=hint):
            load(tmp_path / name)


MEANT = [
    ("learning_rate", ["lr", "momentum"], "lr"),
    ("num_clients", ["clients", "seed"], "clients"),
    ("M", ["absent", "m"], "m"),
    ("LR", ["lr", "steps"], "lr"),
    ("unifrom", ["uniform", "full"], "uniform"),
]


@pytest.mark.parametrize(("word", "known", "meant"), MEANT)
def test_names_of_other_tools_and_capitals_are_understood(
    word: str, known: list[str], meant: str
) -> None:
    assert suggest(word, known) == f"did you mean {meant!r}?"


def test_a_name_of_another_tool_is_not_suggested_where_it_does_not_exist() -> None:
    assert suggest("learning_rate", ["m", "steps"]) == "known: m, steps"


@pytest.mark.parametrize("value", ["1", "0.5", "1e-3", "true"])
def test_numbers_in_quotes_are_noticed(value: str) -> None:
    assert value in without_quotes(value)
    assert without_quotes("many") == without_quotes(3) == ""
