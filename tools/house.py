"""Count the habits that make `src` hard to read, beside three code bases that read well.

Run `make house` for the table, or `python tools/house.py --json` for one JSON document.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THROW_AWAY = frozenset(
    {"found", "seen", "some", "one", "made", "asked", "there", "what", "told"}
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
LONG_FILE = 350
MANY_PARAMETERS = 7
MANY_ARGUMENTS = 6

# Measured on 2026-11-17 for the record in house.md, section 2. A missing row was not measured.
PEERS: dict[str, dict[str, float]] = {
    "fedjax": {
        "lines over 88 columns, per 1,000": 7,
        "conditional expressions, per 1,000": 1.6,
        "packed a, b = x, y, per 1,000": 0.6,
        "calls with six or more positional arguments": 4,
        "bare Any parameters": 4,
        "getattr / hasattr": 4,
        "# fmt: skip": 0,
        "functions with more than 7 parameters": 4,
    },
    "pfl-research": {
        "lines over 88 columns, per 1,000": 3,
        "conditional expressions, per 1,000": 2.7,
        "packed a, b = x, y, per 1,000": 0.7,
        "calls with six or more positional arguments": 8,
        "bare Any parameters": 0,
        "getattr / hasattr": 17,
        "# fmt: skip": 0,
        "functions with more than 7 parameters": 3,
    },
    "optax": {
        "lines over 88 columns, per 1,000": 3,
        "conditional expressions, per 1,000": 3.0,
        "packed a, b = x, y, per 1,000": 0.4,
        "calls with six or more positional arguments": 15,
        "bare Any parameters": 61,
        "getattr / hasattr": 19,
        "# fmt: skip": 0,
        "functions with more than 7 parameters": 25,
    },
}


@dataclass
class Counts:
    """The raw counts of a set of files."""

    lines: int = 0
    over_88: int = 0
    over_100: int = 0
    conditionals: int = 0
    nested_conditionals: int = 0
    packed: int = 0
    long_calls: int = 0
    bare_any: int = 0
    attribute_guesses: int = 0
    format_skips: int = 0
    semicolons: int = 0
    throw_away_names: int = 0
    long_files: list[str] = field(default_factory=list)
    long_signatures: list[tuple[int, str]] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)

    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names with more than one definition, and the files that define them."""
        return {
            name: files
            for name, files in sorted(self.classes.items())
            if len(files) > 1
        }

    def worst_signatures(self) -> list[tuple[int, str]]:
        """Functions with too many parameters, longest first."""
        return sorted(self.long_signatures, key=lambda entry: (-entry[0], entry[1]))


def measure(files: Iterable[Path], root: Path) -> Counts:
    """Count every habit in the given files; names are reported relative to `root`."""
    counts = Counts()
    for file in sorted(files):
        count_text(
            counts, file.read_text(encoding="utf-8"), str(file.relative_to(root))
        )
    return counts


def count_text(counts: Counts, text: str, name: str) -> None:
    """Add the counts of one file.

    >>> counts = Counts()
    >>> count_text(counts, "a, b = 1, 2; c = a if b else 0", "example.py")
    >>> counts.packed, counts.semicolons, counts.conditionals
    (1, 1, 1)
    """
    lines = text.splitlines()
    counts.lines += len(lines)
    counts.over_88 += sum(len(line) > 88 for line in lines)
    counts.over_100 += sum(len(line) > 100 for line in lines)
    counts.format_skips += text.count("# fmt: skip")
    counts.semicolons += semicolons(text)
    if len(lines) > LONG_FILE:
        counts.long_files.append(f"{name} ({len(lines)})")
    count_syntax(counts, ast.parse(text), name)


def semicolons(text: str) -> int:
    """The statements that share a line with the statement before them.

    >>> semicolons("a = 1; b = 'x;y'  # one; comment")
    1
    """
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.OP and token.string == ";" for token in tokens)


def count_syntax(counts: Counts, tree: ast.Module, name: str) -> None:
    """Add the counts that need a syntax tree."""
    counts.nested_conditionals += nested_conditionals(tree)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                count_function(counts, node, name)
            case ast.Call():
                count_call(counts, node)
            case ast.ClassDef():
                counts.classes.setdefault(node.name, []).append(name)
            case ast.IfExp():
                counts.conditionals += 1
            case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
                counts.packed += 1
            case ast.Name(id=variable, ctx=ast.Store()) if variable in THROW_AWAY:
                counts.throw_away_names += 1


def nested_conditionals(tree: ast.Module) -> int:
    """The conditional expressions that stand anywhere inside another one.

    >>> nested_conditionals(ast.parse("a if b else f(c if d else e)"))
    1
    """
    outer = [node for node in ast.walk(tree) if isinstance(node, ast.IfExp)]
    inner = {
        id(node)
        for conditional in outer
        for node in ast.walk(conditional)
        if isinstance(node, ast.IfExp) and node is not conditional
    }
    return len(inner)


def count_function(counts: Counts, function: Function, name: str) -> None:
    """Add the parameters of one function, without `self` and `cls`."""
    arguments = function.args
    every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    parameters = [argument for argument in every if argument.arg not in ("self", "cls")]
    counts.bare_any += sum(is_any(parameter.annotation) for parameter in parameters)
    if len(parameters) > MANY_PARAMETERS:
        counts.long_signatures.append((len(parameters), f"{name}:{function.name}"))


def is_any(annotation: ast.expr | None) -> bool:
    """Whether an annotation is the plain name `Any`."""
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def count_call(counts: Counts, call: ast.Call) -> None:
    """Add one call: its positional arguments, and whether it guesses at an attribute."""
    counts.long_calls += len(call.args) >= MANY_ARGUMENTS
    if isinstance(call.func, ast.Name):
        counts.attribute_guesses += call.func.id in ("getattr", "hasattr")


def rows(counts: Counts) -> dict[str, float]:
    """The table's figures by the name of their row."""

    def per_thousand(count: int) -> float:
        return round(1000 * count / max(counts.lines, 1), 1)

    return {
        "lines over 88 columns, per 1,000": per_thousand(counts.over_88),
        "lines over 100 columns": counts.over_100,
        "conditional expressions, per 1,000": per_thousand(counts.conditionals),
        "conditional expressions inside another": counts.nested_conditionals,
        "packed a, b = x, y, per 1,000": per_thousand(counts.packed),
        "calls with six or more positional arguments": counts.long_calls,
        "bare Any parameters": counts.bare_any,
        "getattr / hasattr": counts.attribute_guesses,
        "# fmt: skip": counts.format_skips,
        "functions with more than 7 parameters": len(counts.long_signatures),
        "statements that share a line by ;": counts.semicolons,
        "files over 350 lines": len(counts.long_files),
        "throw-away names assigned": counts.throw_away_names,
        "class names defined more than once": len(counts.repeated_classes()),
    }


def table(figures: dict[str, float]) -> str:
    """The figures of this tree beside those of the peers.

    >>> print(table({"# fmt: skip": 3}).splitlines()[-1].split())
    ['#', 'fmt:', 'skip', '3', '0', '0', '0']
    """
    lines = [f"{'':44}{'this tree':>12}" + "".join(f"{peer:>14}" for peer in PEERS)]
    for name, figure in figures.items():
        known = [PEERS[peer].get(name, "-") for peer in PEERS]
        lines.append(
            f"{name:44}{figure:>12}" + "".join(f"{value:>14}" for value in known)
        )
    return "\n".join(lines)


def details(counts: Counts) -> str:
    """The names behind the figures: functions, files and classes."""
    worst = [f"{name} ({many})" for many, name in counts.worst_signatures()[:10]]
    classes = [
        f"{name} ({len(files)})" for name, files in counts.repeated_classes().items()
    ]
    sections = {
        "most parameters": worst,
        "files over 350 lines": counts.long_files,
        "class names defined more than once": classes,
    }
    return "\n".join(
        f"{title}: {', '.join(names) or 'none'}" for title, names in sections.items()
    )


def document(counts: Counts) -> dict[str, object]:
    """Everything that `--json` prints."""
    raw = asdict(counts)
    raw["classes"] = counts.repeated_classes()
    raw["long_signatures"] = counts.worst_signatures()
    return {"rows": rows(counts), "peers": PEERS, "counts": raw}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or the JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="the checkout to measure"
    )
    options = parser.parse_args(arguments)
    counts = measure((options.root / "src").rglob("*.py"), options.root)
    if options.json:
        print(json.dumps(document(counts), indent=2))
        return
    print(
        f"{counts.lines:,} lines in src\n\n{table(rows(counts))}\n\n{details(counts)}"
    )


if __name__ == "__main__":
    main()
