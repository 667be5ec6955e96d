"""Columns as a data frame of pandas or of polars, which are installed as extras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from poise.core.errors import InvalidOption

if TYPE_CHECKING:
    import pandas
    import polars

Columns = Mapping[str, Any]
"""Arrays or lists of one length by name."""


def pandas_frame(columns: Columns) -> pandas.DataFrame:
    """Return columns as a data frame of pandas."""
    try:
        import pandas
    except ImportError as error:
        raise InvalidOption(
            "pandas is not installed", "pip install 'poise[pandas]'"
        ) from error
    return pandas.DataFrame(dict(columns))


def polars_frame(columns: Columns) -> polars.DataFrame:
    """Return columns as a data frame of polars."""
    try:
        import polars
    except ImportError as error:
        raise InvalidOption(
            "polars is not installed", "pip install 'poise[polars]'"
        ) from error
    return polars.DataFrame(dict(columns))
