"""Verdicts on the claims of a paper, from the scores of the runs of a reproduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from poise.apps.experiments.run_scores import score
from poise.results import Run


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, whether it holds, and the measured values."""

    text: str
    holds: bool
    measured: str


def judge(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> ClaimVerdict:
    """Whether a claim about two arms, left and right, holds.

    - ``at_most = r``: mean(left) <= r * mean(right).
    - ``relation = "above"`` or ``"below"``: the paired difference over seeds has that
      sign; with ``significant = true``, its 95 % interval excludes 0; with
      ``every_seed = true``, every single seed has that sign.
    - ``within = r``: the means differ by at most the share r.
    - ``apart_at_most = x``: the means differ by at most x.
    - ``above_by = x``: the left mean is x or more above the right one.
    - ``no_difference = true``: the 95 % interval of the paired difference contains 0.
    - ``in_band = true``: the left mean lies between the lowest and the highest run of
      the right.
    - ``between = [a, b]``: the left mean alone lies in this interval.
    - ``right_cell = c``: the right arm is measured in the cell c.
    - ``than_cell = c``: compares left - right in ``cell`` with left - right in c;
      "below" means that the first difference is smaller.
    - ``recovers = r`` with ``headroom_cell = c``: left - right is at least the share r
      of the headroom, which is right in c minus right in ``cell``.
    """
    if "between" in claim:
        return _judge_between(claim, _values(claim, runs, cell="cell", side="left"))
    if "recovers" in claim:
        return _judge_recovered(claim, runs)
    left, right = _sides(claim, runs)
    mean, half = paired(left - right)
    ratio = left.mean() / right.mean() if right.mean() else float("nan")
    ratio_is_meaningful = right.mean() and "than_cell" not in claim
    shown_ratio = f"ratio {ratio:.2f}, " if ratio_is_meaningful else ""
    measured = (
        f"{left.mean():.4g} against {right.mean():.4g}, {shown_ratio}"
        f"difference {mean:+.4g} ± {half:.2g}"
    )
    if "at_most" in claim:
        holds = ratio <= claim["at_most"]
    elif "within" in claim:
        holds = abs(ratio - 1) <= claim["within"]
    elif claim.get("in_band"):
        holds = right.min() <= left.mean() <= right.max()
        measured = f"{left.mean():.4g} in {right.min():.4g} … {right.max():.4g}"
    elif "apart_at_most" in claim:
        holds = abs(mean) <= claim["apart_at_most"]
    elif "above_by" in claim:
        holds = mean >= claim["above_by"]
    elif claim.get("no_difference"):
        holds = abs(mean) <= half
    else:
        sign = 1 if claim.get("relation") == "above" else -1
        threshold = half if claim.get("significant") else 0.0
        holds = sign * mean > threshold
        if claim.get("every_seed"):
            holds = bool((sign * left > sign * right).all())
    return ClaimVerdict(str(claim["text"]), bool(holds), measured)


def _sides(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> tuple[np.ndarray, np.ndarray]:
    """The two compared sides, one value per seed: two arms, or their differences in two cells."""
    left = _values(claim, runs, cell="cell", side="left")
    right_cell = "right_cell" if "right_cell" in claim else "cell"
    right = _values(claim, runs, cell=right_cell, side="right")
    if "than_cell" not in claim:
        return left, right
    other_left = _values(claim, runs, cell="than_cell", side="left")
    other_right = _values(claim, runs, cell="than_cell", side="right")
    return left - right, other_left - other_right


def _values(
    claim: Mapping[str, Any],
    runs: Mapping[tuple[str, str], Sequence[Run]],
    *,
    cell: str,
    side: str,
) -> np.ndarray:
    """The scores of one side in the cell that a key of the claim names, one per seed."""
    chosen = runs[claim.get(cell, ""), claim[side]]
    return np.array([score(run, claim["score"]) for run in chosen])


def _judge_between(claim: Mapping[str, Any], values: np.ndarray) -> ClaimVerdict:
    mean, half = paired(values)
    low, high = claim["between"]
    return ClaimVerdict(
        str(claim["text"]), low <= mean <= high, f"{mean:.4g} ± {half:.2g}"
    )


def _judge_recovered(
    claim: Mapping[str, Any], runs: Mapping[tuple[str, str], Sequence[Run]]
) -> ClaimVerdict:
    """Whether the left arm recovers a share of what the right arm lost in its cell.

    Without headroom (the right arm loses nothing), the claim does not hold.
    """
    left = _values(claim, runs, cell="cell", side="left")
    right = _values(claim, runs, cell="cell", side="right")
    best = _values(claim, runs, cell="headroom_cell", side="right")
    headroom, half = paired(best - right)
    gain, gain_half = paired(left - right)
    measured = f"gain {gain:+.4g} ± {gain_half:.2g} of a headroom of {headroom:+.4g} ± {half:.2g}"
    if headroom <= 0:
        return ClaimVerdict(str(claim["text"]), False, measured)
    share = gain / headroom
    return ClaimVerdict(
        str(claim["text"]),
        share >= claim["recovers"],
        f"recovers {share:.0%}: {measured}",
    )


def paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of the 95 % interval (Student) of paired differences.

    >>> mean, half = paired(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    n = len(differences)
    if n < 2:
        return float(differences.mean()), float("inf")
    half = stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    return float(differences.mean()), float(half)
