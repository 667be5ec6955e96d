"""Mutants are drawn where they should be, written as they should be, and judged by the tests."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import mutants


def changed(text: str) -> set[str]:
    """Every mutated text of a source text."""
    return {
        mutants.mutated(text, mutant) for mutant in mutants.mutants_of(text, "x.py")
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + b", "(a - b)"),
        ("a * b", "(a / b)"),
        ("a < b", "(a <= b)"),
        ("a >= b", "(a > b)"),
        ("a == b", "(a != b)"),
        ("a and b", "(a or b)"),
        ("not a", "(a)"),
        ("min(a)", "(max)(a)"),
        ("np.maximum(a, b)", "(np.minimum)(a, b)"),
        ("True", "(False)"),
        ("0", "(1)"),
        ("0.5", "(1.5)"),
        ("a += b", "a -= b"),
    ],
)
def test_each_kind_of_change(before: str, after: str) -> None:
    assert changed(before) == {after}


def test_a_chain_of_comparisons_changes_one_at_a_time() -> None:
    assert changed("a < b <= c") == {"(a <= b <= c)", "(a < b < c)"}


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring of 3 words."""',
        "x: Literal[1, True]",
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        "raise ValueError('not', 3)",
        "require(ok, f'{a + 1} is above 2', where=str(3))",
        "if TYPE_CHECKING:\n    x = 1",
        "message = 'a' + b",
        "a if b else c",
    ],
)
def test_messages_annotations_and_decorators_are_left_alone(text: str) -> None:
    assert changed(text) == set()


def test_default_values_and_conditions_of_require_are_changed() -> None:
    assert changed("def f(a=1): ...") == {"def f(a=(2)): ..."}
    assert changed("require(a > b, 'text')") == {"require((a >= b), 'text')"}


def test_columns_count_bytes_so_that_signs_before_a_place_do_no_harm() -> None:
    assert changed('x = "Δθ", a + b') == {'x = "Δθ", (a - b)'}


def test_places_are_the_same_for_the_same_seed() -> None:
    assert mutants.draw(ROOT, 20, seed=3) == mutants.draw(ROOT, 20, seed=3)
    assert mutants.draw(ROOT, 20, seed=3) != mutants.draw(ROOT, 20, seed=4)


def test_every_drawn_mutant_is_python() -> None:
    for mutant in mutants.draw(ROOT, 200, seed=1):
        ast.parse(
            mutants.mutated((ROOT / mutant.file).read_text(encoding="utf-8"), mutant)
        )


def test_a_target_without_files_is_an_error() -> None:
    with pytest.raises(mutants.NothingMatches, match="no_such_package"):
        mutants.targets(ROOT, "src/poise/no_such_package/*.py")


def test_every_equivalent_mutant_is_in_the_source() -> None:
    reasons = {mutant.reason for mutant in mutants.draw(ROOT, 10**6, seed=0)}
    missing = [
        key for key, reason in mutants.EQUIVALENT.items() if reason not in reasons
    ]
    assert not missing, "the source has changed: correct or remove these entries"


def test_likely_tests_mention_the_module() -> None:
    tests = mutants.related_tests(ROOT, "src/poise/weightings/time_based.py")
    assert "tests/unit/test_weightings.py" in tests
    assert len(tests) == mutants.RELATED_FILES


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("FAILED tests/a.py::b[1 - 2] - assert 0", ("killed", "tests/a.py::b[1")),
        (
            "FAILED tests/a.py::b - Failed: Timeout (>120.0s)",
            ("timed out", "tests/a.py::b"),
        ),
        ("ERROR tests/a.py", ("killed", "tests/a.py")),
        ("nothing to see", ("killed", "collection")),
    ],
)
def test_verdicts(output: str, expected: tuple[str, str]) -> None:
    assert mutants.verdict(output) == expected


def small_tree(root: Path) -> Path:
    """A checkout with one function and one test that notices a changed operator only."""
    for folder in (
        "src/poise",
        "tests/contracts",
        "tests/golden",
        "tests/unit",
        "tools",
    ):
        (root / folder).mkdir(parents=True)
    (root / "src/poise/__init__.py").touch()
    (root / "src/poise/double.py").write_text(
        "def double(a, spare=1):\n    return 2 * a\n"
    )
    test = "from poise.double import double\n\ndef test_double():\n    assert double(3) == 6\n"
    (root / "tests/unit/test_double.py").write_text(test)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return root


def test_a_small_tree_from_mutant_to_verdict(tmp_path: Path) -> None:
    root = small_tree(tmp_path / "tree")
    workshop = mutants.Workshop(root, tmp_path / "copy")
    text = (root / "src/poise/double.py").read_text()
    drawn = mutants.mutants_of(text, "src/poise/double.py")
    assert [mutant.after for mutant in drawn] == ["2", "2 / a", "3"]
    spare, operator = (
        workshop.try_out(mutant, 60, related_only=True) for mutant in drawn[:2]
    )
    assert (spare.outcome, operator.outcome) == ("survived", "killed")
    assert operator.by == "tests/unit/test_double.py::test_double"
    assert (workshop.root / "src/poise/double.py").read_text() == text


def test_results_can_be_read_back(tmp_path: Path) -> None:
    mutant = mutants.mutants_of("a + b", "x.py")[0]
    result = mutants.Result(mutant, "survived", "", 1.0)
    file = tmp_path / "results.jsonl"
    file.write_text(mutants.line(result), encoding="utf-8")
    assert mutants.load(file) == [result]
    assert "survived: x.py:1: a + b  →  a - b" in mutants.summary(
        [result], equivalent=0
    )
