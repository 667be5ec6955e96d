"""Parameters of tests: `make test` runs chosen cases, `make test-all` runs every case."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thorough_except(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return ``cases`` as parameters, each marked `thorough` unless it is in ``quick``.

    A case of several arguments is a tuple, as for `pytest.mark.parametrize`.
    """
    every = list(cases)
    missing = [case for case in quick if case not in every]
    assert not missing, f"no cases of this test: {missing}"
    return [case if case in quick else _thorough(case) for case in every]


def _thorough(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.thorough)
