"""Mutation testing: change one operator, comparison or constant at a time, and see a test fail.

`make mutants` draws places in the parts, the engine, the sensitivity and the proofs with a fixed
seed. Each mutant lives in a private copy of the tree. The tests most likely to notice run first,
then the quick suite. A mutant that no test notices survives: write a test for it, or list it in
`EQUIVALENT` with the reason.

Results go to a JSON lines file as they come, so that `--resume` goes on after a stop.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TARGETS = (
    "aggregators/*.py",
    "attacks/*.py",
    "channels/*.py",
    "clocks/*.py",
    "personal/*.py",
    "samplers/*.py",
    "servers/*.py",
    "solvers/*.py",
    "weightings/*.py",
    "engine/*.py",
    "core/sensitivity.py",
    "core/equation.py",
    "unlearning/proof.py",
    "unlearning/privacy_accounting.py",
    "unlearning/noise.py",
    "unlearning/ledger_sensitivity.py",
    "unlearning/exact.py",
    "unlearning/fed_accum.py",
    "privacy/*.py",
)
"""The mutated files, relative to src/poise. Change these when packages move."""

QUICK = (
    "unit",
    "contracts",
    "reductions",
    "fixed_points",
    "theory",
    "engine",
    "golden",
)
"""The directories of the quick suite."""

RELATED = (*QUICK, "attacks", "auditing", "unlearning", "explaining", "ledger")
"""The directories where tests of a mutated file are looked for."""

FIRST = ("tests/unit/test_by_hand.py", "tests/unit/test_option_bounds.py")
"""Tests of many parts that take no time."""

RELATED_FILES = 6
SECONDS_PER_TEST = 120
MARKERS = "not slow and not long"

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "engine/wire.py",
        'self.encode(zeros, no_state, keys(0, "template", 0)).payload',
        "1",
    ): "a template tells names, shapes and number types; its values and their seed are not used",
    (
        "clocks/trace.py",
        'entries = _by_client(enumerate(self.entries, start=1), "row")',
        "2",
    ): "the number of a row is for errors, and these rows were checked when the trace was made",
    (
        "privacy/budget.py",
        "factor = 1 - solver.rate(0) * (traits.weight_decay + self.strong_convexity)",
        "1",
    ): "the lines above refuse solvers whose rate is not the same in every round",
    (
        "samplers/target.py",
        "isinstance(g, int) and not isinstance(g, bool) for g in self.groups",
        "isinstance(g, int) or not isinstance(g, bool)",
    ): "the check of an option's type comes first and refuses all but whole numbers",
    (
        "unlearning/ledger_sensitivity.py",
        'ends = np.searchsorted(contributions["round"], np.arange(run.rounds + 1))',
        "2",
    ): "one more end, which the loop over the rounds does not read",
    (
        "unlearning/privacy_accounting.py",
        'np.bincount(of_client["round"], of_client["base"], minlength=1)',
        "2",
    ): "one more weight of 0, and the next line leaves out weights of 0",
}
"""Mutants that no test can notice: (file, part of the line, code after the change), reason."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
RENAMED = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
"""How pytest ends; it is interrupted by a file that cannot be imported."""


class NothingMatches(Exception):
    """A pattern of `TARGETS` matches no file."""


class BrokenTests(Exception):
    """Tests fail, or cannot run, without any mutant."""


@dataclass(frozen=True)
class Mutant:
    """One change: the file relative to the root, the place, and the code before and after."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str
    source: str

    @property
    def reason(self) -> str | None:
        """Why no test can notice this mutant, or None."""
        for (file, source, after), reason in EQUIVALENT.items():
            if (
                self.file.endswith(file)
                and source in self.source
                and self.after == after
            ):
                return reason
        return None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  →  {self.after}"


@dataclass(frozen=True)
class Result:
    """The outcome of a mutant, and the test that decided it.

    ``killed``: a test failed. ``timed out``: a test ran into its own time limit, which counts as
    killed. ``survived``: all tests passed. ``undecided``: the tests did not end within `--limit`,
    which a busy machine can cause, so it counts as nothing.
    """

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


def targets(root: Path, only: str | None = None) -> list[Path]:
    """The files to mutate; raises `NothingMatches` for a pattern without a file."""
    patterns = TARGETS
    base = root / "src" / "poise"
    if only is not None:
        patterns, base = (only,), root
    files: set[Path] = set()
    for pattern in patterns:
        matches = {file for file in base.glob(pattern) if file.name != "__init__.py"}
        if (base / pattern).is_dir():
            matches = set((base / pattern).rglob("*.py"))
        if not matches:
            raise NothingMatches(
                f"{pattern} matches no file under {base}: correct TARGETS"
            )
        files |= matches
    return sorted(files)


def mutants_of(text: str, file: str) -> list[Mutant]:
    """Every mutant of a source text, in the order of their places.

    >>> [mutant.after for mutant in mutants_of("y = a + 1 if not b < 2 else max(a, 0)", "x.py")]
    ['a - 1', '2', 'b < 2', 'b <= 2', '3', 'min', '1']
    """
    tree = ast.parse(text)
    mutants = [_mutant(text, file, old, new) for old, new in changes(tree)]
    return sorted(
        mutants, key=lambda mutant: (mutant.line, mutant.column, mutant.after)
    )


def _mutant(text: str, file: str, old: ast.AST, new: ast.AST) -> Mutant:
    before = ast.get_source_segment(text, old) or ast.unparse(old)
    return Mutant(
        file=file,
        line=old.lineno,
        column=old.col_offset,
        end_line=old.end_lineno,
        end_column=old.end_col_offset,
        before=" ".join(before.split()),
        after=ast.unparse(new),
        source=text.splitlines()[old.lineno - 1].strip(),
    )


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The nodes below `node` that can be changed, each with its replacement."""
    yield from replacements(node)
    for child in visible_children(node):
        yield from changes(child)


def visible_children(node: ast.AST) -> Iterator[ast.AST]:
    """The children that count: no annotations, decorators, imports for types or messages."""
    hidden: list[object] = []
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            hidden = [*node.decorator_list, node.returns]
        case ast.ClassDef():
            hidden = [*node.decorator_list, *node.bases]
        case ast.arg() | ast.AnnAssign():
            hidden = [node.annotation]
        case ast.Call(func=ast.Name(id="require")):
            hidden = [*node.args[1:], *node.keywords]
        case ast.Raise() | ast.JoinedStr():
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
    for child in ast.iter_child_nodes(node):
        if not any(child is entry for entry in hidden):
            yield child


def replacements(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The changes of one node itself."""
    match node:
        case ast.BinOp() if is_text(node.left) or is_text(node.right):
            return
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in SWAPPED:
            changed = deepcopy(node)
            changed.op = SWAPPED[type(node.op)]()
            yield node, changed
        case ast.Compare():
            yield from _comparisons(node)
        case ast.UnaryOp(op=ast.Not()):
            yield node, node.operand
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name) as function) if name in RENAMED:
            yield function, ast.Name(RENAMED[name])
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in RENAMED:
            yield function, ast.Attribute(function.value, RENAMED[name])


def _comparisons(node: ast.Compare) -> Iterator[tuple[ast.AST, ast.AST]]:
    for position, operator in enumerate(node.ops):
        if type(operator) in SWAPPED:
            changed = deepcopy(node)
            changed.ops[position] = SWAPPED[type(operator)]()
            yield node, changed


def is_text(node: ast.AST) -> bool:
    """Whether an operand is a string, so that + joins text."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr)


def mutated(text: str, mutant: Mutant) -> str:
    """The source text with one place changed.

    >>> text = "y = 2 * (a + 1)"
    >>> [mutated(text, mutant) for mutant in mutants_of(text, "x.py")][0]
    'y = (2 / (a + 1))'
    """
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1])) + mutant.column
    end = sum(map(len, lines[: mutant.end_line - 1])) + mutant.end_column
    after = mutant.after
    if ast.unparse(ast.parse(after)) == after and _is_expression(after):
        after = f"({after})"
    whole = text.encode()
    return (whole[:start] + after.encode() + whole[end:]).decode()


def _is_expression(code: str) -> bool:
    return isinstance(ast.parse(code).body[0], ast.Expr)


def draw(root: Path, places: int, seed: int, only: str | None = None) -> list[Mutant]:
    """Mutants drawn without replacement, the same ones for the same seed and source."""
    every = [
        mutant
        for file in targets(root, only)
        for mutant in mutants_of(
            file.read_text(encoding="utf-8"), str(file.relative_to(root))
        )
    ]
    return random.Random(seed).sample(every, min(places, len(every)))


def names_in(text: str) -> set[str]:
    """The classes and functions of a module, and the names of its parts in files.

    >>> sorted(names_in('@part("server", "yogi")' + chr(10) + "class Yogi: ..."))
    ['Yogi', 'yogi']
    """
    kinds = (ast.ClassDef, ast.FunctionDef)
    defined = {node.name for node in ast.parse(text).body if isinstance(node, kinds)}
    return defined | set(
        re.findall(r'^@part\("\w+", "([\w-]+)"', text, flags=re.MULTILINE)
    )


def related_tests(root: Path, file: str) -> list[str]:
    """The tests named after the module or its package, and those that mention it most.

    They come in the order of `RELATED`, which begins with the quickest.
    """
    path = root / file
    package = path.parent.name
    names = names_in(path.read_text(encoding="utf-8"))
    words = re.compile(rf"\b({'|'.join([package, *sorted(names)])})\b")
    scores: dict[str, tuple[int, int]] = {}
    for directory in RELATED:
        for test in sorted((root / "tests" / directory).glob("test_*.py")):
            named = int(package in test.stem or path.stem in test.stem)
            mentions = len(words.findall(test.read_text(encoding="utf-8")))
            if named or mentions:
                scores[str(test.relative_to(root))] = (-named, -mentions)
    best = sorted(scores, key=lambda name: scores[name])[:RELATED_FILES]
    return [name for name in scores if name in best]


def stages(root: Path, file: str, related_only: bool) -> list[list[str]]:
    """What pytest runs for a mutant of this file: likely tests first, then the quick suite.

    1. The tests whose names mention a class or a part of the module.
    2. The files that mention the module most, the contracts and the golden runs.
    3. The module's doctests, in a process of their own: pytest imports the module a second time
       for them, and the classes of the second import are strangers to the tests.
    4. The quick suite.
    """
    names = names_in((root / file).read_text(encoding="utf-8"))
    likely = [*related_tests(root, file), "tests/contracts", "tests/golden"]
    quickest = [name for name in FIRST if (root / name).exists()]
    planned = [
        [*likely, "-k", " or ".join(sorted(names))],
        [*quickest, *likely],
        [file],
    ]
    if related_only:
        return planned
    return [*planned, [f"tests/{directory}" for directory in QUICK]]


class Workshop:
    """A private copy of the tree, in which one mutant at a time is tested."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = place
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ("src", "tests", "tools"):
            shutil.copytree(root / name, place / name, ignore=ignore)
        for path in root.iterdir():
            if not (place / path.name).exists() and not path.name.startswith("."):
                (place / path.name).symlink_to(path)

    def try_out(self, mutant: Mutant, limit: float, related_only: bool) -> Result:
        """Run the tests on one mutant, and put the file back."""
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        planned = stages(self.root, mutant.file, related_only)
        self._write(path, mutated(original, mutant))
        start = time.monotonic()
        try:
            outcome, by = self._run(planned, start + limit)
        finally:
            self._write(path, original)
        return Result(mutant, outcome, by, round(time.monotonic() - start, 1))

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def _run(self, planned: list[list[str]], deadline: float) -> tuple[str, str]:
        for tests in planned:
            try:
                passed, output = self.pytest(tests, deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                return "undecided", "the limit per mutant"
            if not passed:
                return verdict(output)
        return "survived", ""

    def pytest(
        self, tests: Sequence[str], limit: float | None = None
    ) -> tuple[bool, str]:
        """Run tests up to the first failure; says whether all passed, and what pytest printed."""
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
            *("-m", MARKERS, "--tb=no", "-rfE", f"--timeout={SECONDS_PER_TEST}"),
            *tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        done = subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        if done.returncode not in (PASSED, FAILED, INTERRUPTED, NO_TESTS):
            raise BrokenTests(
                f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.returncode in (PASSED, NO_TESTS), done.stdout


def verdict(output: str) -> tuple[str, str]:
    """The outcome and the first failed test in what pytest printed.

    >>> verdict("FAILED tests/unit/test_x.py::test_y - assert 1 == 2")
    ('killed', 'tests/unit/test_x.py::test_y')
    """
    match = re.search(
        r"^(?:FAILED|ERROR) (.*?)(?: - (.*))?$", output, flags=re.MULTILINE
    )
    if match is None:
        return "killed", "collection"
    outcome = "killed"
    if (match.group(2) or "").startswith("Failed: Timeout"):
        outcome = "timed out"
    return outcome, match.group(1)


def line(result: Result) -> str:
    """One line of the results file."""
    return json.dumps(asdict(result))


def load(results: Path) -> list[Result]:
    """The results of an earlier run."""
    if not results.exists():
        return []
    entries = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return [
        Result(**{**entry, "mutant": Mutant(**entry["mutant"])}) for entry in entries
    ]


def run(
    mutants: Sequence[Mutant],
    earlier: Sequence[Result],
    options: argparse.Namespace,
) -> list[Result]:
    """Try out every mutant on `--jobs` private copies; returns the earlier results with the new.

    Each new result is written as it comes.
    """
    stop = time.monotonic() + 60 * options.minutes
    workshops: queue.Queue[Workshop] = queue.Queue()
    with tempfile.TemporaryDirectory() as folder, options.results.open("a") as log:
        for job in range(options.jobs):
            workshops.put(Workshop(ROOT, Path(folder, str(job))))

        def one_mutant(mutant: Mutant) -> Result | None:
            if time.monotonic() > stop:
                return None
            workshop = workshops.get()
            try:
                return workshop.try_out(mutant, options.limit, options.related)
            finally:
                workshops.put(workshop)

        results = [*earlier]
        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(one_mutant, mutants):
                if result is None:
                    continue
                results.append(result)
                print(line(result), file=log, flush=True)
                print(
                    f"{result.outcome:9} {result.seconds:6.1f} s  {result.mutant}",
                    flush=True,
                )
        check_killers(workshops.get(), results)
    return results


def check_killers(workshop: Workshop, results: Sequence[Result]) -> None:
    """Raise `BrokenTests` where a test that killed a mutant fails without it, too."""
    killers = {node_of(result.by) for result in results if ".py" in result.by}
    files = {name for name in killers if "::" not in name}  # could not be imported
    doctests = {name for name in killers - files if name.startswith("src/")}
    tests = killers - files - doctests
    for names, more in ((files, ["--collect-only"]), (doctests, []), (tests, [])):
        if not names:
            continue
        passed, output = workshop.pytest([*sorted(names), *more])
        if not passed:
            raise BrokenTests(f"these tests fail without a mutant, too:\n{output}")


def node_of(name: str) -> str:
    """The name of a test as pytest takes it; without its parameters where these are cut off.

    >>> node_of("a.py::b[1]"), node_of("a.py::b[1")
    ('a.py::b[1]', 'a.py::b')
    """
    if name.endswith("]"):
        return name
    return name.split("[")[0]


def summary(results: Sequence[Result], equivalent: int) -> str:
    """The counts, and every survivor with its place."""
    outcomes = Counter(result.outcome for result in results)
    killed = outcomes["killed"] + outcomes["timed out"]
    lines = [
        f"{len(results)} mutants: {killed} killed ({outcomes['timed out']} by a time limit), "
        f"{outcomes['survived']} survived, {outcomes['undecided']} undecided; "
        f"{equivalent} more are known to be equivalent"
    ]
    survivors = [result.mutant for result in results if result.outcome == "survived"]
    return "\n".join([*lines, *(f"survived: {mutant}" for mutant in survivors)])


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--places", type=int, default=100, help="how many mutants to draw"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", help="mutate this file, folder or pattern, from the root"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800, help="seconds per mutant")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="start no mutant after these"
    )
    parser.add_argument(
        "--related", action="store_true", help="leave the quick suite out"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "mutants.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the results so far")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants, try them out, print the summary; 1 where a mutant survived."""
    options = parsed(arguments)
    drawn = draw(ROOT, options.places, options.seed, options.only)
    if not options.resume:
        options.results.unlink(missing_ok=True)
    unknown = [mutant for mutant in drawn if mutant.reason is None]
    decided = [
        result for result in load(options.results) if result.outcome != "undecided"
    ]
    earlier = [result for result in decided if result.mutant in unknown]
    tried = {result.mutant for result in earlier}
    results = run(
        [mutant for mutant in unknown if mutant not in tried], earlier, options
    )
    print(summary(results, equivalent=len(drawn) - len(unknown)))
    return int(any(result.outcome == "survived" for result in results))


if __name__ == "__main__":
    sys.exit(main())
