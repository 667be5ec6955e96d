"""What can be collected without the extras, and run without the data sets."""

import doctest
import os
from importlib.util import find_spec

import pytest

collect_ignore = [] if find_spec("flwr") else ["src/poise/flower/replies.py", "src/poise/flower/strategies.py"]
collect_ignore_glob = [] if find_spec("fastapi") and find_spec("jinja2") else ["src/poise/apps/ui/*", "tests/ui/*"]

NEEDS_DATA = doctest.register_optionflag("NEEDS_DATA")
"""An example that reads a data set: run where ``POISE_DATA`` says where it is."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples that need data where there is none."""
    if os.environ.get("POISE_DATA"):
        return
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            for example in item.dtest.examples:
                if example.options.get(NEEDS_DATA):
                    example.options[doctest.SKIP] = True
