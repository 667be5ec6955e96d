"""Fixtures of the tests of users' code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from own_code.support import forgotten_modules


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with forgotten_modules():
        yield
