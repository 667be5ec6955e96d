"""Explanations as JSON data, as table rows and as text."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from poise.analysis.explain.explanation import Explanation
from poise.core.types import Floats

Rows = list[tuple[str, str]]

SHOWN = 8
"""Maximum number of clients whose weights are listed one by one."""

HOLDS = {True: "holds", False: "broken", None: "unknown"}


def plain(explanation: Explanation) -> dict[str, Any]:
    """The explanation as plain values for ``--json``."""
    scheme = explanation.scheme
    pi, most = explanation.weight_range
    data: dict[str, Any] = {
        "name": explanation.name,
        "clients": len(explanation.importance),
        "unbiased": explanation.unbiased,
        "chi2": explanation.chi2,
        "chi2 interval": explanation.chi2_interval,
        "importance": explanation.importance,
        "mean weights": explanation.mean,
        "objective": explanation.objective,
        "pi": pi,
        "Pi": most,
        "local progress": explanation.progress,
        "sampler": None,
        "clock": None,
        "window": explanation.window,
        "rounds": explanation.rounds,
        "time": explanation.time,
        "bytes up": explanation.bytes_up,
        "bytes down": explanation.bytes_down,
        "conditions": {a.text: a.holds for a in explanation.conditions},
        "constants": None,
        "bounds": [t.as_data() for t in explanation.terms.values()],
        "warnings": [
            {"about": r.about, "reason": r.reason, "fix": r.fix}
            for r in explanation.remarks
        ],
        "advice": list(explanation.advice),
        "notes": list(explanation.notes),
    }
    if explanation.constants is not None:
        data["constants"] = explanation.constants.as_data()
    if scheme is not None and scheme.statistics is not None:
        statistics = scheme.statistics
        data["sampler"] = {
            "Sigma": statistics.sigma,
            "gamma": statistics.gamma,
            "alpha": statistics.alpha,
            "variance of the sum": statistics.sum_variance,
            "clients per round": statistics.expected_clients,
        }
    if scheme is not None:
        data["clock"] = {
            "staleness": {
                "largest": scheme.schedule.oldest,
                "mean": scheme.schedule.age,
            },
            "arrivals": scheme.schedule.arrivals,
            "d": scheme.balance,
            "shares": scheme.shares,
        }
        data["method"] = scheme.method
        data["half-widths"] = scheme.half_width
    return data


def facts(explanation: Explanation) -> Rows:
    """The main facts as (name, value)."""
    scheme = explanation.scheme
    rows: Rows = [
        ("objective", objective_sentence(explanation)),
        ("χ² to requested objective", _chi2(explanation)),
    ]
    if scheme is None:
        return rows
    pi, most = explanation.weight_range
    half = ""
    if scheme.half_width is not None:
        half = f" ± {scheme.half_width.max():.2g}"
    rows.append(
        ("E[ω]", f"{_values_or_range(explanation.mean)}{half} ({scheme.method})")
    )
    if explanation.unbiased is not None:
        rows.append(("q̃, true objective", _values_or_range(explanation.objective)))
        rows.append(("κ = q̃/p", f"π = {pi:.3g}, Π = {most:.3g}"))
    if (s := scheme.statistics) is not None:
        alpha = "pairwise"
        if s.alpha is not None:
            alpha = f"{s.alpha:.3g}"
        text = (
            f"Σ = {s.sigma:.4g}, γ = {s.gamma:.4g}, α = {alpha}, Var Σω = "
            f"{s.sum_variance:.3g}"
        )
        rows.append(("sampler", text))
        rows.append(("clients per round", f"{s.expected_clients:.4g}"))
    schedule = scheme.schedule
    window = _window(explanation.window)
    rows.append(
        (
            "window W, staleness",
            f"{window}; at most {schedule.oldest}, mean {schedule.age:.2g}",
        )
    )
    if (
        scheme.balance is not None
        and np.ptp(scheme.balance - explanation.importance) > 0
    ):
        rows.append(("d_i that keep the objective", _values_or_range(scheme.balance)))
    rows.append(
        (
            "aggregations, simulated time",
            f"{explanation.rounds:,.0f}; {explanation.time:,.4g}",
        )
    )
    rows.append(
        (
            "communication",
            f"{_bytes(explanation.bytes_up)} up, {_bytes(explanation.bytes_down)} down",
        )
    )
    return rows


def _window(window: float | None) -> str:
    if window is None:
        return "unknown"
    if isfinite(window):
        return f"{window:,.0f}"
    return "infinite"


def objective_sentence(explanation: Explanation) -> str:
    """One sentence about the objective."""
    if explanation.unbiased is None and explanation.scheme is None:
        return "unknown: the parts do not fit together"
    if explanation.unbiased is None:
        return (
            f"unknown: {explanation.remarks[0].about}: {explanation.remarks[0].reason}"
        )
    if explanation.unbiased:
        return "unbiased: training minimises the requested objective"
    if explanation.chi2 < 1e-12:
        return (
            "proportional to the requested objective, but the mean weights sum to "
            f"{explanation.mean.sum():.3g}"
        )
    return "biased: training minimises Σ q̃_i L_i instead of Σ p_i L_i"


def constant_rows(explanation: Explanation) -> Rows:
    """The constants and their methods, as (symbol, text)."""
    names = {
        "smoothness": "L",
        "convexity": "μ",
        "noise": "σ²",
        "gradient": "G²",
        "heterogeneity": "Γ",
        "distance": "|w⁰ − w*|²",
        "gap": "F(w⁰) − F*",
    }
    if explanation.constants is None:
        return []
    known = explanation.constants.by_name()
    return [(sign, str(known[name])) for name, sign in names.items()]


def bound_rows(explanation: Explanation) -> Rows:
    """The bounds with their terms, as (name, text)."""
    rows: Rows = []
    for terms in explanation.terms.values():
        text = ", ".join(f"{name} {value:.3g}" for name, value in terms.values.items())
        broken = [a.text for a in terms.assumptions if a.holds is False]
        if broken:
            text += f"; violated assumptions: {'; '.join(broken)}"
        rows.append((f"{terms.name} {terms.source}", f"{terms.total:.4g} = {text}"))
    return rows


def lines(explanation: Explanation) -> list[str]:
    """The whole explanation as lines of text."""
    text = [explanation.name, *(f"  {k}: {v}" for k, v in facts(explanation))]
    text += [f"  {HOLDS[a.holds]}: {a.text}" for a in explanation.conditions]
    text += [f"  {k} = {v}" for k, v in constant_rows(explanation)]
    text += [f"  {k}: {v}" for k, v in bound_rows(explanation)]
    text += [f"  warning: {w}" for w in explanation.warnings]
    text += [f"  advice: {a}" for a in explanation.advice]
    return text + [f"  note: {n}" for n in explanation.notes]


def _chi2(explanation: Explanation) -> str:
    if not isfinite(explanation.chi2):
        return "unknown"
    if explanation.chi2_interval is None:
        return f"{explanation.chi2:.4g}"
    low, high = explanation.chi2_interval
    return f"{explanation.chi2:.3g} [{low:.3g}, {high:.3g}] (95 %)"


def _values_or_range(v: Floats) -> str:
    """The values, or their range if there are many."""
    if len(v) <= SHOWN:
        return ", ".join(f"{x:.3g}" for x in v)
    if np.ptp(v) <= 1e-12 * abs(v).max():
        return f"{v[0]:.3g} for every client"
    return (
        f"{v.min():.3g} (client {int(v.argmin())}) to {v.max():.3g} (client "
        f"{int(v.argmax())})"
    )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
