"""What can be collected without the extras, and run without the data sets."""

import doctest
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "src"

collect_ignore = []
collect_ignore_glob = []
if not find_spec("flwr"):
    collect_ignore += ["src/poise/flower/replies.py", "src/poise/flower/strategies.py"]
if not (find_spec("fastapi") and find_spec("jinja2")):
    collect_ignore_glob += ["src/poise/apps/ui/*", "tests/ui/*"]

NEEDS_DATA = doctest.register_optionflag("NEEDS_DATA")
"""An example that reads a data set: run where ``POISE_DATA`` says where it is."""


def pytest_collect_file(file_path: Path) -> None:
    """Import the package of a module in ``src`` before pytest imports the module.

    To import a module, pytest imports its package and then runs the file of the module.
    If the package imports the module too, the file runs twice, and registers its parts
    twice. pytest skips modules that are imported already.
    """
    if file_path.suffix == ".py" and file_path.is_relative_to(SOURCE):
        import_module(".".join(file_path.parent.relative_to(SOURCE).parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples that need data where there is none."""
    if os.environ.get("POISE_DATA"):
        return
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            for example in item.dtest.examples:
                if example.options.get(NEEDS_DATA):
                    example.options[doctest.SKIP] = True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line: how many tests were skipped, and how many for each reason."""
    reports = terminalreporter.stats.get("skipped", [])
    files = sum(isinstance(report, pytest.CollectReport) for report in reports)
    parts = [f"skipped: {len(reports) - files} tests"]
    if files:
        parts[0] += f" and {files} whole files"
    for reason, count in Counter(map(_reason, reports)).most_common():
        parts.append(f"{count} x {reason}")
    terminalreporter.write_line("; ".join(parts))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a skipped test as one line."""
    reason = str(report.longrepr)
    if isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
    return " ".join(reason.removeprefix("Skipped: ").split())


def pytest_configure() -> None:
    """Sign with a key of the tests, not with the user's key."""
    if "POISE_KEYS" not in os.environ:
        os.environ["POISE_KEYS"] = tempfile.mkdtemp(prefix="poise-keys-")
    from poise.evidence.keys import signing_key

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it made a key
        signing_key()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked ``fresh_process`` in a process of its own.

    torch.export fails in a process whose symbols of sympy were made by other tests.
    """
    marked = pyfuncitem.get_closest_marker("fresh_process") is not None
    if not marked or "POISE_FRESH_PROCESS" in os.environ:
        return None
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*command, pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, "POISE_FRESH_PROCESS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True
