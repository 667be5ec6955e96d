"""The contract of weightings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from poise.core.protocols import Weighting
from poise.core.rng import generator
from poise.core.round_updates import RoundUpdates
from poise.core.traits import WeightingTraits, traits_of
from poise.core.types import LOSS_REPORTS, Floats, Setting
from poise.core.weights import weigh
from poise.testing.clauses import fits, holds, quietly, setting_of


def check_weighting(
    weighting: Weighting, setting: Setting | None = None, *, seed: int = 0
) -> None:
    """Check the contract of weightings.

    Clauses: one coefficient per row, finite and not negative for losses of any size;
    permuting the rows permutes the coefficients; the arguments are not modified;
    reports that are not needed are ignored; an empty cohort and a single client raise
    no error. Declared traits are true (``proportional``: the base weights, shortened as
    declared; coefficients that are declared not to read updates do not; ``continuous``,
    ``larger_losses_count_more``).
    """
    where = setting or setting_of()
    fits(weighting, where)
    holds(
        frozenset(weighting.needs) <= LOSS_REPORTS | {"balance", "adjacency"},
        weighting,
        "needs known reports only",
        weighting.needs,
    )
    rng = generator(seed, "weighting")
    for round, scale in enumerate((1.0, 1e-6, 1e4)):
        table = _cohort(where, rng, round, scale)
        _well_formed(weighting, table)
        _equivariant(weighting, table, rng)
        _ignores_what_it_does_not_need(weighting, table)
        _traits_hold(weighting, table)
    table = _cohort(where, rng, 0, 1.0)
    for rows in (np.array([], dtype=np.int64), np.array([0])):
        _well_formed(weighting, _rows(table, rows))


def _cohort(
    setting: Setting, rng: np.random.Generator, round: int, scale: float
) -> dict[str, Any]:
    m = min(5, setting.clients)
    clients = rng.choice(setting.clients, m, replace=False)
    stack = scale * rng.standard_normal((m, 7))
    stack[m - 1] = 0.0  # a client may send nothing new
    return {
        "stack": stack,
        "base": setting.importance[clients] * setting.clients / m,
        "loss_before": scale * rng.random(m),
        "loss_after": scale * rng.random(m),
        "samples": setting.sizes[clients],
        "clients": clients,
        "versions": np.maximum(round - rng.integers(0, 3, m), 0),
        "round": round,
        "importance": setting.importance[clients],
        "participations": rng.integers(1, 4, m),
        "balance": 1 + 3 * rng.random(m),
        "identical_weights": np.full(m, 0.5),
        "adjacency": rng.random(m) / m,
        "norms": np.linalg.norm(stack, axis=1),
    }


def _rows(table: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {k: v[rows] if isinstance(v, np.ndarray) else v for k, v in table.items()}


def _coefficients(weighting: Weighting, table: dict[str, Any], clause: str) -> Floats:
    given = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in table.items()}
    base = given.pop("base")
    given["stack"] = torch.from_numpy(given["stack"])
    updates = RoundUpdates.of_columns(base, **given)
    coefficients = quietly(lambda: weigh(weighting, updates), weighting, clause)
    holds(
        np.array_equal(base, table["base"]),
        weighting,
        "the base weights are not modified",
    )
    for name, value in given.items():
        holds(
            np.array_equal(value, table[name]),
            weighting,
            "the reports are not modified",
            name,
        )
    return np.asarray(coefficients)


def _well_formed(weighting: Weighting, table: dict[str, Any]) -> None:
    m = len(table["base"])
    coefficients = _coefficients(weighting, table, f"a cohort of {m}")
    holds(
        coefficients.shape == (m,),
        weighting,
        "one coefficient per row",
        coefficients.shape,
    )
    holds(
        coefficients.dtype == np.float64,
        weighting,
        "coefficients are float64",
        coefficients.dtype,
    )
    holds(
        np.isfinite(coefficients).all(),
        weighting,
        "coefficients are finite",
        coefficients,
    )
    holds(
        (coefficients >= 0).all(),
        weighting,
        "coefficients are not negative",
        coefficients,
    )
    again = _coefficients(weighting, table, "replay")
    holds(
        np.array_equal(coefficients, again),
        weighting,
        "same reports, same coefficients",
    )


def _equivariant(
    weighting: Weighting, table: dict[str, Any], rng: np.random.Generator
) -> None:
    order = rng.permutation(len(table["base"]))
    coefficients = _coefficients(weighting, table, "a cohort")
    permuted = _coefficients(weighting, _rows(table, order), "a permuted cohort")
    holds(
        np.allclose(permuted, coefficients[order], rtol=1e-12),
        weighting,
        "permuting rows permutes coefficients",
    )


def _ignores_what_it_does_not_need(weighting: Weighting, table: dict[str, Any]) -> None:
    least = {**table, **dict.fromkeys(LOSS_REPORTS - weighting.needs)}
    same = np.array_equal(
        _coefficients(weighting, least, "no more than it needs"),
        _coefficients(weighting, table, "all"),
    )
    holds(same, weighting, "reports that it does not need are ignored")


def _traits_hold(weighting: Weighting, table: dict[str, Any]) -> None:
    """Check the declared traits that coefficients can show."""
    traits = traits_of(weighting, WeightingTraits)
    coefficients = _coefficients(weighting, table, "a cohort")
    if traits.proportional:
        most = traits.shortens_to
        if most is None:
            most = np.inf
        with np.errstate(divide="ignore"):  # an update of length 0 is not shortened
            wanted = table["base"] * np.minimum(1.0, most / table["norms"])
        same = np.allclose(coefficients, wanted, rtol=1e-12)
        holds(
            same,
            weighting,
            "declared proportional: the base weights, shortened as declared",
            coefficients,
        )
    if not traits.reads_updates:
        other = _coefficients(
            weighting, {**table, "norms": 10 * table["norms"]}, "longer updates"
        )
        holds(
            np.array_equal(coefficients, other),
            weighting,
            "declared not to read updates: their length does not count",
        )
    if traits.continuous:
        nudged = _coefficients(
            weighting,
            {**table, "loss_before": table["loss_before"] * (1 + 1e-12)},
            "a nudge",
        )
        near = np.allclose(nudged, coefficients, rtol=1e-5, atol=1e-9)
        holds(
            near,
            weighting,
            "declared continuous: a small change of the losses changes little",
            nudged - coefficients,
        )
    if traits.larger_losses_count_more:
        row = int(np.argmin(table["loss_before"]))
        losses = table["loss_before"].copy()
        losses[row] *= 2
        raised = _coefficients(
            weighting, {**table, "loss_before": losses}, "a larger loss"
        )
        holds(
            raised[row] >= coefficients[row] * (1 - 1e-12),
            weighting,
            "declared that larger losses count more",
            row,
        )
