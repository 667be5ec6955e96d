"""Numbers as text, with as many digits as their confidence interval supports."""

from __future__ import annotations

import math
from collections.abc import Iterable

from poise.analysis.reports.rows import Score

_PREFIXES = ("B", "kB", "MB", "GB", "TB", "PB")


def number(value: float, unit: str = "", digits: int = 4) -> str:
    """A number with a few significant digits, or bytes with three digits and a prefix.

    >>> number(0.87654321), number(1234567.0, "bytes"), number(float("nan"))
    ('0.8765', '1.23 MB', 'not a number')
    >>> number(12.0), number(1234567.0)
    ('12', '1,234,567')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        if value > 0:
            return "infinite"
        return "-infinite"
    if unit == "bytes":
        return _bytes(value)
    if value == round(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    if 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


MOST_PLACES = 6
"""Maximum number of decimal places that `places_apart` asks for."""


def with_interval(
    mean: float, half_width: float | None, unit: str = "", places: int = 0
) -> str:
    """``mean ± half_width``, both rounded to the second digit of the half-width.

    Args:
        mean: the mean.
        half_width: half the width of its interval; None without an interval.
        unit: ``"bytes"``, or any other.
        places: the mean has at least that many decimal places (see `places_apart`).

    >>> with_interval(0.87654, 0.01234), with_interval(0.87654, None), with_interval(23.4567, 1.5)
    ('0.877 ± 0.012', '0.8765', '23.5 ± 1.5')
    >>> with_interval(1.2e6, 3.0e4, "bytes"), with_interval(2e6, 0.0, "bytes")
    ('1.20 MB ± 30.0 kB', '2.00 MB ± 0')
    >>> with_interval(0.29875, 1.234, places=3), with_interval(0.3, None, places=3)
    ('0.299 ± 1.2', '0.300')
    """
    text = _at_least(mean, places, number(mean, unit), unit=unit)
    if half_width is None:
        return text
    if half_width <= 1e-12 * abs(mean) or half_width == 0:
        return f"{text} ± 0"
    if unit == "bytes" or not math.isfinite(half_width):
        return f"{text} ± {number(half_width, unit)}"
    digits = 1 - math.floor(math.log10(half_width))
    if digits > MOST_PLACES or half_width >= 1e9:
        return f"{mean:.4g} ± {half_width:.2g}"
    shown = max(digits, 0)
    text = _at_least(mean, places, f"{mean:,.{shown}f}", unit=unit)
    return f"{text} ± {half_width:,.{shown}f}"


def _at_least(mean: float, places: int, text: str, *, unit: str) -> str:
    """The text of a number, with more decimal places if it has too few."""
    decimals = len(text.partition(".")[2])
    if decimals >= places or unit == "bytes" or not math.isfinite(mean):
        return text
    return f"{mean:,.{places}f}"


def places_apart(means: Iterable[float]) -> int:
    """The decimal places, at most six, with which different means look different.

    >>> places_apart([0.3, 0.2978, 0.28]), places_apart([0.5, 0.5]), places_apart([3.0, 7.0])
    (3, 0, 0)
    """
    different = {round(mean, MOST_PLACES) for mean in means if math.isfinite(mean)}
    for places in range(MOST_PLACES):
        if len({f"{mean:.{places}f}" for mean in different}) == len(different):
            return places
    return MOST_PLACES


def score_text(score: Score, places: int = 0) -> str:
    """A score as a table cell; for a target, how many runs reached it if not all did.

    Its mean has at least ``places`` decimal places.

    >>> score_text(Score((3.0, None), "rounds")), score_text(Score((None,), "rounds"))
    ('1 of 2 runs', 'never')
    >>> score_text(Score((None,)))
    '—'
    """
    e = score.estimate
    if e is not None:
        return with_interval(e.mean, e.half_width, score.unit, places)
    if not score.known:
        if score.unit == "rounds":
            return "never"
        return "—"
    return f"{len(score.known)} of {len(score.values)} runs"


def _bytes(value: float) -> str:
    sign = ""
    if value < 0:
        sign = "-"
    size = abs(value)
    power = 0
    while size >= 999.5 and power < len(_PREFIXES) - 1:
        size /= 1000
        power += 1
    decimals = 0
    if power > 0 and size < 9.995:
        decimals = 2
    elif power > 0 and size < 99.95:
        decimals = 1
    return f"{sign}{size:.{decimals}f} {_PREFIXES[power]}"
