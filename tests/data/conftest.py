"""What the tests of the data package share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from poise.data import listing


@pytest.fixture
def need() -> Callable[[str], None]:
    """Skip a test, by name, where a data set is not in the data folder."""
    present = {line.name for line in listing() if line.present}

    def check(name: str) -> None:
        if name not in present:
            pytest.skip(f"data set {name!r} is not in the data folder ($POISE_DATA)")

    return check
