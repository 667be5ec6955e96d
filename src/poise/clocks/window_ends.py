"""`WindowEnds`: when the windows of a fixed time policy end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, isfinite, log

from poise.core.durations import SAME
from poise.core.errors import require


@dataclass(frozen=True)
class WindowEnds:
    """Runs of windows of the same length, one after the other; the last run goes on.

    With ``growth``, a geometric part comes before it: window n has length
    ``first * growth**n`` until ``lengths[-1]`` is reached.

    Windows of one length end at multiples of it, without a sum that rounds.
    """

    lengths: tuple[float, ...]
    counts: tuple[int, ...]  # windows of each length but the last
    first: float = 0.0
    growth: float = 1.0
    growing: int = 0  # number of geometric windows

    @property
    def constant(self) -> float | None:
        """The length, if all windows have the same; otherwise None."""
        if len(self.lengths) == 1 and not self.growing:
            return self.lengths[0]
        return None

    def end(self, index: int) -> float:
        """The time when window ``index``, counted from 0, ends."""
        left = index + 1
        before = min(left, self.growing)
        now = 0.0
        if before:
            now = self.first * (self.growth**before - 1) / (self.growth - 1)
            left -= before
        for length, count in zip(self.lengths, (*self.counts, left), strict=True):
            windows = min(count, left)
            now += windows * length
            left -= windows
        return now


def listed(lengths: Sequence[float]) -> WindowEnds:
    """Windows of these lengths, in order; the last length goes on.

    >>> ends = listed([0.5, 0.5, 2.0])
    >>> [ends.end(n) for n in range(4)]
    [0.5, 1.0, 3.0, 5.0]
    """
    runs = [(length, len(list(same))) for length, same in groupby(lengths)]
    return WindowEnds(
        tuple(float(length) for length, _ in runs),
        counts=tuple(count for _, count in runs[:-1]),
    )


def growing(first: float, growth: float, longest: float) -> WindowEnds:
    """Window n has length ``first * growth**n``, at most ``longest``.

    >>> ends = growing(1.0, 2.0, longest=3.0)
    >>> [ends.end(n) for n in range(4)]
    [1.0, 3.0, 6.0, 9.0]
    """
    # the first n with first * growth**n >= longest, up to rounding
    steps = log(longest / first) / log(growth) * (1 - SAME)
    windows = int(steps) + 1 if steps > 0 else 0
    return WindowEnds((longest,), (), first=first, growth=growth, growing=windows)


def window_ends(
    dt: float | Sequence[float], growth: float, longest: float | None
) -> WindowEnds:
    """Check the lengths of a `FixedWindow`, and return when its windows end."""
    lengths = list(dt) if isinstance(dt, Sequence) else [dt]
    require(len(lengths) > 0, "FixedWindow: dt is empty", "give one length", where="dt")
    for length in lengths:
        require(
            0 < length < inf,
            f"FixedWindow: dt must be above 0, not {length}",
            where="dt",
        )
    require(
        1 <= growth < inf,
        f"FixedWindow: growth must be 1 or more, not {growth}",
        "for windows that shrink give a list, such as dt=[0.5, 0.2]",
        where="growth",
    )
    if growth == 1:
        require(
            longest is None,
            "FixedWindow: longest is for windows that grow",
            "give growth, or leave out longest",
            where="longest",
        )
        return listed(lengths)
    require(
        len(lengths) == 1,
        "FixedWindow: growth is for one dt, not for a list",
        "leave out growth, or give the first length only",
        where="growth",
    )
    require(
        longest is not None and isfinite(longest) and longest >= lengths[0],
        f"FixedWindow: windows that grow need longest, of at least dt = {lengths[0]:g}",
        "give longest, for example the time of the slowest client",
        where="longest",
    )
    assert longest is not None
    return growing(float(lengths[0]), growth=growth, longest=float(longest))
