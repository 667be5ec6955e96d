"""Numbers as text, with as many digits as their confidence interval supports."""

from __future__ import annotations

import math

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


def with_interval(mean: float, half_width: float | None, unit: str = "") -> str:
    """``mean ± half_width``, both rounded to the second digit of the half-width.

    A half-width of 0 is left out.

    >>> with_interval(0.87654, 0.01234), with_interval(0.87654, None), with_interval(23.4567, 1.5)
    ('0.877 ± 0.012', '0.8765', '23.5 ± 1.5')
    >>> with_interval(1.2e6, 3.0e4, "bytes")
    '1.20 MB ± 30.0 kB'
    """
    if not half_width:
        return number(mean, unit)
    if unit == "bytes":
        return f"{number(mean, unit)} ± {number(half_width, unit)}"
    if half_width <= 1e-12 * abs(mean):
        return number(mean, unit)
    digits = 1 - math.floor(math.log10(half_width))
    if digits > 6 or half_width >= 1e9:
        return f"{mean:.4g} ± {half_width:.2g}"
    places = max(digits, 0)
    return f"{mean:,.{places}f} ± {half_width:,.{places}f}"


def score_text(score: Score) -> str:
    """A score as a table cell; for a target, how many runs reached it if not all did.

    >>> score_text(Score((3.0, None), "rounds")), score_text(Score((None,), "rounds"))
    ('1 of 2 runs', 'never')
    >>> score_text(Score((None,)))
    '—'
    """
    e = score.estimate
    if e is not None:
        return with_interval(e.mean, e.half_width, score.unit)
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
