"""Closed forms and bounds of the papers: named terms with their assumptions."""

from __future__ import annotations

import importlib
from typing import Any

from poise.theory import free_riders
from poise.theory.accuracy import fedprox_rounds, least_rounds, perturbed_rounds
from poise.theory.after_time import (
    asynchronous_terms,
    converging_rates,
    criterion_terms,
    fedavg_terms,
    sampled_terms,
)
from poise.theory.asynchronous import (
    aggregations,
    asynchronous_bound,
    best_window,
    fedfix_terms,
    participation,
    staleness,
    surrogate_gap,
    window,
)
from poise.theory.drift import (
    client_drift,
    local_deviation,
    neighbour_drift,
    perturbed_drift,
)
from poise.theory.objectives import (
    chi_squared,
    local_progress,
    normalised,
    total_variation,
    with_local_work,
)
from poise.theory.perturbed import (
    best_steps_nonconvex,
    perturbed_bound,
    perturbed_contraction,
    perturbed_stationary,
    unavoidable_perturbed_error,
)
from poise.theory.progress import (
    Progress,
    fedprox_round,
    perturbed_round,
    skew_step,
    varying_step,
)
from poise.theory.proximal import (
    best_steps,
    fedprox_bound,
    fedprox_contraction,
    fedprox_stationary,
    unavoidable_error,
)
from poise.theory.sampling import (
    clustered_gradient_variance,
    md_gradient_variance,
    sampling_bound,
    uniform_beats_md,
    variance_ratio,
)
from poise.theory.skew import (
    bounded_weights,
    largest_range,
    least_temperature,
    limit_speed,
    skew_bound,
    weight_range,
    weighting_skew,
)
from poise.theory.terms import Assumption, Problem, Terms
from poise.theory.varying import speed_and_error, varying_bound

__all__ = [
    "Assumption",
    "Problem",
    "Progress",
    "Terms",
    "aggregations",
    "asynchronous_bound",
    "asynchronous_terms",
    "best_steps",
    "best_steps_nonconvex",
    "best_window",
    "bounded_weights",
    "chi_squared",
    "client_drift",
    "clustered_gradient_variance",
    "constants",
    "converging_rates",
    "criterion_terms",
    "fedavg_terms",
    "fedfix_terms",
    "fedprox_bound",
    "fedprox_contraction",
    "fedprox_round",
    "fedprox_rounds",
    "fedprox_stationary",
    "free_riders",
    "largest_range",
    "least_rounds",
    "least_temperature",
    "limit_speed",
    "local_deviation",
    "local_progress",
    "md_gradient_variance",
    "neighbour_drift",
    "normalised",
    "participation",
    "perturbed_bound",
    "perturbed_contraction",
    "perturbed_drift",
    "perturbed_round",
    "perturbed_rounds",
    "perturbed_stationary",
    "sampled_terms",
    "sampling_bound",
    "skew_bound",
    "skew_step",
    "speed_and_error",
    "staleness",
    "surrogate_gap",
    "total_variation",
    "unavoidable_error",
    "unavoidable_perturbed_error",
    "uniform_beats_md",
    "variance_ratio",
    "varying_bound",
    "varying_step",
    "weight_range",
    "weighting_skew",
    "window",
    "with_local_work",
]


def __getattr__(name: str) -> Any:
    if name == "constants":
        # Estimates need a federation and a task, which this package must not import.
        return importlib.import_module("poise.analysis.explain.constants").constants
    raise AttributeError(f"module 'poise.theory' has no attribute {name!r}")
