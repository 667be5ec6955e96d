"""Simulation of the schedule and the weights of a composition, without training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from poise import engine
from poise.config.run_options import RunOptions
from poise.core.history import History
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats, Ints, Setting, Step
from poise.core.weights import weigh
from poise.engine.plan import Parts, Plan, simulated
from poise.engine.state import State

MOST_ARRIVALS = 40_000
LEAST = 2_000  # aggregations, if the budget of arrivals allows
LATE_ROUND = 10**9
REACHED = {"accuracy": 1.0}  # by the end of training
BATCHES = 20  # batch means: successive aggregations are dependent
T_BATCHES = 2.093  # Student's 97.5 % quantile with 19 degrees of freedom


@dataclass(frozen=True)
class Schedule:
    """Totals over simulated aggregations; sums by client in batches, for intervals."""

    aggregations: int
    time: float  # simulated, at the last of them
    coefficients: Floats  # (batches, N) sums
    bases: Floats  # (batches, N) sums of the sampler's weights
    counts: Floats  # (N,) aggregations with each client
    arrivals: float  # per aggregation
    oldest: int
    age: float  # mean staleness
    sums: Floats  # (aggregations,) sum of the coefficients
    squares: Floats  # (N,) sum of squared coefficients
    # (batches,) aggregations in each
    lengths: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def mean(self) -> Floats:
        """E[omega_i], (N,)."""
        return np.asarray(self.coefficients.sum(axis=0) / self.aggregations)

    @property
    def half_width(self) -> Floats:
        """Half-widths of the 95 % intervals of the mean, (N,)."""
        each = self.coefficients / self.lengths[:, None]
        return np.asarray(T_BATCHES * each.std(axis=0, ddof=1) / np.sqrt(len(each)))

    def ratio(self, like: Floats | None = None) -> tuple[Floats, Floats]:
        """E[coefficient]/E[base weight] of each client, and its half-width.

        ``like``, (N,), is the group of each client; clients of a group have equal
        losses and are counted together.
        """
        if like is None:
            groups = np.arange(self.bases.shape[1])
        else:
            groups = like.astype(np.int64)
        coefficients = _sum_by_group(self.coefficients, groups)
        bases = _sum_by_group(self.bases, groups)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = coefficients.sum(axis=0) / bases.sum(axis=0)
            spread = (coefficients - ratio * bases).std(axis=0, ddof=1) / bases.mean(
                axis=0
            )
        half = T_BATCHES * spread / np.sqrt(len(bases))
        return ratio[groups], half[groups]

    @property
    def variance(self) -> Floats:
        """Var omega_i of the coefficients, (N,)."""
        return np.maximum(self.squares / self.aggregations - self.mean**2, 0.0)


def _sum_by_group(table: Floats, groups: Ints) -> Floats:
    """Sums over the columns of each group, row by row."""
    return np.stack([np.bincount(groups, row) for row in table]).astype(np.float64)


def simulate(
    parts: Parts,
    setting: Setting,
    table: dict[str, Floats],
    options: RunOptions,
    budget: int = MOST_ARRIVALS,
    late: bool = True,
) -> Schedule:
    """Simulate sampling, clock and weighting with the constant losses of ``table``.

    ``options`` gives seed, rounds and time. ``late`` selects the weights at the end of
    training (the last stage of a `Switch`), otherwise those at its beginning.
    """
    without_training = replace(parts, solver=_NoSolver())  # type: ignore[arg-type]
    plan = Plan(
        without_training, setting, seed=options.seed, rounds=None, time=options.time
    )
    past = History(
        last_loss=_by_client(table, "before"), last_norm=_by_client(table, "norms")
    )
    if late:
        past.reached.update(REACHED)
    state = State(0, torch.zeros(1), {})
    pace = simulated(plan)
    participations = np.zeros(setting.clients)
    steps: list[Step] = []
    weights: list[Floats] = []
    ages: list[Ints] = []
    total = 0
    most = max(options.rounds or 0, LEAST)
    while total < budget and len(steps) < most:
        step, state = engine.schedule(state, plan, pace, past)
        if step.time == np.inf:
            break
        np.add.at(participations, np.unique(step.clients), 1)
        weights.append(
            _weighed(
                parts,
                setting,
                step=step,
                table=table,
                participations=participations,
                late=late,
                index=state.index,
            )
        )
        steps.append(step)
        ages.append(step.index - step.versions)
        total += max(len(step.assignments), 1)
        state = replace(state, index=state.index + 1, models={})
    return _counted(setting, steps, weights, ages)


def _weighed(
    parts: Parts,
    setting: Setting,
    step: Step,
    table: dict[str, Floats],
    participations: Floats,
    late: bool,
    index: int,
) -> Floats:
    """The coefficients of one step."""
    who = step.clients
    shift = 0
    reached: dict[str, float] = {}
    if late:  # with the same staleness
        shift = LATE_ROUND - index
        reached = REACHED
    updates = RoundUpdates.of_columns(
        **parts.base_columns(step, setting),
        **_norms(table, who),
        loss_before=_rows(table, "before", who),
        loss_after=_rows(table, "after", who),
        samples=setting.sizes[who],
        clients=who,
        versions=step.versions + shift,
        round=index + shift,
        lowest_loss=_rows(table, "lowest", who),
        reached=reached,
        participations=participations[who] * (index + shift + 1) / (index + 1),
        steps=parts.solver.steps_for(np.asarray(setting.sizes))[who],
        rates=np.array([parts.solver.rate(v) for v in step.versions.tolist()]),
    )
    return weigh(parts.weighting, updates)


def _by_client(table: dict[str, Floats], name: str) -> dict[int, float]:
    """A column of the table by client; empty if the table does not have it."""
    if name in table:
        return dict(enumerate(table[name].tolist()))
    return {}


def _norms(table: dict[str, Floats], who: Ints) -> dict[str, Floats]:
    if "norms" in table:
        return {"norms": table["norms"][who]}
    return {}


def _rows(table: dict[str, Floats], name: str, who: Ints) -> Floats | None:
    if name in table:
        return table[name][who]
    return None


def _counted(
    setting: Setting, steps: list[Step], weights: list[Floats], ages: list[Ints]
) -> Schedule:
    n = setting.clients
    parts = min(BATCHES, max(len(steps), 1))
    sums = np.zeros((parts, n))
    bases = np.zeros((parts, n))
    counts = np.zeros(n)
    squares = np.zeros(n)
    lengths = np.zeros(parts)
    for k, (step, omega) in enumerate(zip(steps, weights, strict=True)):
        batch = k * parts // len(steps)
        lengths[batch] += 1
        if len(np.unique(step.clients)) < len(step.clients):
            whole = np.zeros(n)
        else:
            whole = None
        np.add.at(sums[batch], step.clients, omega)
        np.add.at(bases[batch], step.clients, step.weights)
        counts[np.unique(step.clients)] += 1
        if whole is None:
            squares[step.clients] += omega**2
        else:
            np.add.at(whole, step.clients, omega)
            squares += whole**2
    old = np.zeros(0)
    time = 0.0
    if steps:
        old = np.concatenate(ages)
        time = float(steps[-1].time)
    return Schedule(
        aggregations=len(steps),
        time=time,
        coefficients=sums,
        bases=bases,
        counts=counts,
        arrivals=float(len(old)) / max(len(steps), 1),
        oldest=int(old.max(initial=0)),
        age=float(old.sum()) / max(len(old), 1),
        sums=np.array([w.sum() for w in weights]),
        squares=squares,
        lengths=lengths,
    )


class _NoSolver:
    """A placeholder: the simulation never trains."""
