"""An explanation as plain values, and in words."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from poise.analysis.explain.explanation import Explanation
from poise.core.types import Floats

Rows = list[tuple[str, str]]

SHOWN = 8
"""Clients whose weights are spelt out in words."""

HOLDS = {True: "holds", False: "broken", None: "unknown"}


def plain(found: Explanation) -> dict[str, Any]:
    """What ``--json`` prints."""
    scheme, statistics = found.scheme, None if found.scheme is None else found.scheme.statistics
    pi, most = found.weight_range
    data: dict[str, Any] = {
        "name": found.name,
        "clients": len(found.importance),
        "unbiased": found.unbiased,
        "chi2": found.chi2,
        "chi2 interval": found.chi2_interval,
        "importance": found.importance,
        "mean weights": found.mean,
        "objective": found.objective,
        "pi": pi,
        "Pi": most,
        "local progress": found.progress,
        "sampler": None,
        "clock": None,
        "window": found.window,
        "rounds": found.rounds,
        "time": found.time,
        "bytes up": found.bytes_up,
        "bytes down": found.bytes_down,
        "conditions": {a.text: a.holds for a in found.conditions},
        "constants": None if found.constants is None else found.constants.as_data(),
        "bounds": [t.as_data() for t in found.terms.values()],
        "warnings": [{"about": r.about, "reason": r.reason, "fix": r.fix} for r in found.remarks],
        "advice": list(found.advice),
        "notes": list(found.notes),
    }
    if statistics is not None:
        data["sampler"] = {
            "Sigma": statistics.sigma,
            "gamma": statistics.gamma,
            "alpha": statistics.alpha,
            "variance of the sum": statistics.sum_variance,
            "clients per round": statistics.expected_clients,
        }
    if scheme is not None:
        data["clock"] = {
            "staleness": {"largest": scheme.schedule.oldest, "mean": scheme.schedule.age},
            "arrivals": scheme.schedule.arrivals,
            "d": scheme.balance,
            "shares": scheme.shares,
        }
        data["method"], data["half-widths"] = scheme.method, scheme.half_width
    return data


def facts(found: Explanation) -> Rows:
    """The figures, one line each."""
    scheme = found.scheme
    rows: Rows = [("objective", verdict(found)), ("χ² to what was asked for", _chi2(found))]
    if scheme is None:
        return rows
    pi, most = found.weight_range
    half = "" if scheme.half_width is None else f" ± {scheme.half_width.max():.2g}"
    rows.append(("E[ω]", f"{_some(found.mean)}{half} ({scheme.method})"))
    if found.unbiased is not None:
        rows.append(("q̃, what is minimised", _some(found.objective)))
        rows.append(("κ = q̃/p", f"π = {pi:.3g}, Π = {most:.3g}"))
    if (s := scheme.statistics) is not None:
        alpha = "pairwise" if s.alpha is None else f"{s.alpha:.3g}"
        rows.append(
            (
                "sampler",
                f"Σ = {s.sigma:.4g}, γ = {s.gamma:.4g}, α = {alpha}, Var Σω = {s.sum_variance:.3g}",
            )
        )
        rows.append(("clients per round", f"{s.expected_clients:.4g}"))
    window = (
        "unknown"
        if found.window is None
        else "endless"
        if not isfinite(found.window)
        else f"{found.window:,.0f}"
    )
    rows.append(
        (
            "window W, staleness",
            f"{window}; at most {scheme.schedule.oldest}, mean {scheme.schedule.age:.2g}",
        )
    )
    if scheme.balance is not None and np.ptp(scheme.balance - found.importance) > 0:
        rows.append(("d_i that keep the objective", _some(scheme.balance)))
    rows.append(("aggregations, simulated time", f"{found.rounds:,.0f}; {found.time:,.4g}"))
    rows.append(("communication", f"{_bytes(found.bytes_up)} up, {_bytes(found.bytes_down)} down"))
    return rows


def verdict(found: Explanation) -> str:
    """One sentence about the objective."""
    if found.unbiased is None and found.scheme is None:
        return "not known: the parts do not fit"
    if found.unbiased is None:
        return f"not known: {found.remarks[0].about}: {found.remarks[0].reason}"
    if found.unbiased:
        return "unbiased: it minimises what was asked for"
    if found.chi2 < 1e-12:
        return (
            "in proportion to what was asked for, but the mean weights sum to "
            f"{found.mean.sum():.3g}"
        )
    return "biased: it minimises Σ q̃_i L_i instead of Σ p_i L_i"


def constants_in_words(found: Explanation) -> Rows:
    """The constants with their methods."""
    names = {
        "smoothness": "L",
        "convexity": "μ",
        "noise": "σ²",
        "gradient": "G²",
        "heterogeneity": "Γ",
        "distance": "|w⁰ − w*|²",
        "gap": "F(w⁰) − F*",
    }
    if found.constants is None:
        return []
    known = found.constants.by_name()
    return [(sign, str(known[name])) for name, sign in names.items()]


def bounds_in_words(found: Explanation) -> Rows:
    """The bounds, term by term."""
    rows: Rows = []
    for terms in found.terms.values():
        parts = ", ".join(f"{k} {v:.3g}" for k, v in terms.values.items())
        broken = [a.text for a in terms.assumptions if a.holds is False]
        but = f"; does not hold here: {'; '.join(broken)}" if broken else ""
        rows.append((f"{terms.name} ({terms.source})", f"{terms.total:.4g} = {parts}{but}"))
    return rows


def lines(found: Explanation) -> list[str]:
    """All of it, for people."""
    text = [found.name, *(f"  {k}: {v}" for k, v in facts(found))]
    text += [
        f"  {'holds' if a.holds else 'unknown' if a.holds is None else 'broken'}: {a.text}"
        for a in found.conditions
    ]
    text += [f"  {k} = {v}" for k, v in constants_in_words(found)]
    text += [f"  {k}: {v}" for k, v in bounds_in_words(found)]
    text += [f"  warning: {w}" for w in found.warnings]
    text += [f"  advice: {a}" for a in found.advice]
    return text + [f"  note: {n}" for n in found.notes]


def _chi2(found: Explanation) -> str:
    if not isfinite(found.chi2):
        return "not known"
    if found.chi2_interval is None:
        return f"{found.chi2:.4g}"
    return f"{found.chi2:.3g} [{found.chi2_interval[0]:.3g}, {found.chi2_interval[1]:.3g}] (95 %)"


def _some(v: Floats) -> str:
    """A few values, or their range."""
    if len(v) <= SHOWN:
        return ", ".join(f"{x:.3g}" for x in v)
    if np.ptp(v) <= 1e-12 * abs(v).max():
        return f"{v[0]:.3g} for everyone"
    return f"{v.min():.3g} (client {int(v.argmin())}) to {v.max():.3g} (client {int(v.argmax())})"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
