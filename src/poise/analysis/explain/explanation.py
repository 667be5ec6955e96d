"""What the theory says of a composition, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poise import theory
from poise.analysis.explain.advice import advice
from poise.analysis.explain.bounds import bounds, conditions, room_of
from poise.analysis.explain.constants import Constants, constants
from poise.analysis.explain.fixed_point import SETTLED, at_the_optimum, known_decay, settle
from poise.analysis.explain.remarks import Remark, Seen, remarks, unknowns
from poise.analysis.explain.reported_losses import ReportedLosses, reported_losses
from poise.analysis.explain.scheme import Scheme, reads_updates, scheme_of, selects_everyone
from poise.config.run_options import RunOptions
from poise.core.algorithm_state import memory_of
from poise.core.capabilities import HasCoins, HasTitle
from poise.core.durations import FixedDurations
from poise.core.errors import IncompatibleParts, PoiseError, UpdatesUnknown
from poise.core.federations import FederationLike, TaskLike
from poise.core.protocols import (
    Aggregator,
    Attack,
    Channel,
    Clock,
    Oracle,
    Personal,
    Sampler,
    Server,
    Solver,
    Weighting,
)
from poise.core.traits import ClockTraits, SamplerTraits, SolverTraits, still_holds, traits_of
from poise.core.types import Floats, Setting
from poise.engine.plan import Parts
from poise.theory import Assumption, Terms
from poise.training import Composition, composed, fit
from poise.weightings import Proportional


@dataclass(frozen=True)
class Explanation:
    """Which objective a composition minimises, how noisy its weights are, what the bounds promise,
    what is wrong.

    ``objective`` is q~, (N,): the weights of the losses that are really minimised, local work
    included; ``mean`` is E[omega_i]. ``chi2`` is the distance of the objective from the importance
    asked for, with an interval where the weights were estimated. ``terms`` holds the bounds by
    name, at the end of training; ``terms_at(n)`` those after n aggregations.
    """

    name: str
    importance: Floats
    mean: Floats
    objective: Floats
    chi2: float
    chi2_interval: tuple[float, float] | None
    unbiased: bool | None
    scheme: Scheme | None = None
    progress: Floats = field(default_factory=lambda: np.ones(0))
    rounds: float = 0.0
    time: float = 0.0
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    window: float | None = None
    constants: Constants | None = None
    conditions: tuple[Assumption, ...] = ()
    terms: Mapping[str, Terms] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    terms_at: Callable[[float], Mapping[str, Terms]] = field(
        default=lambda rounds: {}, repr=False, compare=False
    )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, why, and the fix, in words; empty where nothing is."""
        return tuple(str(r) for r in self.remarks)

    @property
    def weight_range(self) -> tuple[float, float]:
        """``(pi, Pi)``: least and largest kappa_i = q~_i / p_i (A section 2.5.2)."""
        return theory.weight_range(self.objective, self.importance)

    def as_data(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        from poise.analysis.explain.wording import plain

        return plain(self)

    def __str__(self) -> str:
        from poise.analysis.explain.wording import lines

        return "\n".join(lines(self))


def explain(
    federation: FederationLike,
    task: TaskLike,
    solver: Solver | str,
    sampler: Sampler | str | None = None,
    clock: Clock | str | None = None,
    weighting: Weighting | str | None = None,
    server: Server | str | None = None,
    rounds: int | None = None,
    time: float | None = None,
    seed: int = 0,
    attacks: Iterable[Attack | str] = (),
    personal: Personal | str | None = None,
    estimate: bool = True,
    aggregator: Aggregator | str | None = None,
    channel: Channel | str | None = None,
) -> Explanation:
    """Look at a composition before spending an hour on it; the arguments are those of
    `poise.train`.

    Sampler, clock and weighting are looked at in closed form where there is one; otherwise that
    part alone is simulated, with a fixed number of operations, and the explanation says so.

    Args:
        federation: who owns what.
        task: what is learned.
        solver: what each client does.
        sampler: who works.
        clock: when it counts.
        weighting: how much each counts.
        server: how it is applied.
        rounds: number of aggregations.
        time: budget of simulated time.
        seed: of the run.
        attacks: what dishonest clients send instead; they are not looked at.
        personal: as in `poise.train`.
        estimate: estimate the constants of the problem, for bounds and advice.
        aggregator: how weighted updates become one direction.
        channel: what happens to an update on its way to the server.

    >>> from poise.tasks import quadratics
    >>> from poise.samplers import MD
    >>> from poise.solvers import SGD
    >>> fed = quadratics([[0.0], [4.0]], sizes=[1, 3])
    >>> found = explain(fed, fed.task, SGD(lr=0.1, steps=2), sampler=MD(1))
    >>> found.unbiased, found.chi2, found.warnings
    (True, 0.0, ())
    """
    chosen = {
        "solver": solver,
        "sampler": sampler,
        "clock": clock,
        "weighting": weighting,
        "aggregator": aggregator,
        "channel": channel,
        "server": server,
        "personal": personal,
    }
    options = RunOptions(rounds=rounds, time=time, seed=seed)
    composition = composed(federation, task, chosen, options, attacks=attacks)
    return explain_composition(composition, estimate=estimate)


def explain_composition(
    composition: Composition, name: str = "", estimate: bool = True
) -> Explanation:
    """Look at a composed run."""
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    setting = composition.setting(oracle)
    title = name or _title(composition.federation)
    try:
        fit(composition.parts, setting)
    except IncompatibleParts as error:
        return _refused(composition.parts, setting, title, error)
    parts = composition.parts
    looked = _looked(composition, oracle)
    table = {} if looked is None else {**looked.table(), "lowest": np.full(setting.clients, np.inf)}
    opaque = False
    try:
        scheme = scheme_of(parts, setting, table, composition.options)
    except UpdatesUnknown:
        opaque = True
        scheme = scheme_of(
            replace(parts, weighting=Proportional()), setting, table, composition.options
        )
    progress = progress_of(parts.solver, setting)
    found, notes = _constants(composition) if estimate else (None, ())
    if looked is not None and parts.reports and not opaque:
        later = settle(composition, oracle, setting, scheme=scheme, progress=progress, known=found)
        later = later or at_the_optimum(composition, oracle, setting, found)
        scheme, table = later or (scheme, table)
    objective = theory.with_local_work(scheme.mean, progress)
    seen = Seen(
        parts,
        setting,
        scheme=scheme,
        objective=objective,
        progress=progress,
        table=table,
        opaque=opaque,
    )
    known = not unknowns(seen)
    rounds, time = _length(composition, scheme)
    theta, wire = oracle.initial(composition.seed), composition.wire(oracle)
    arrivals = scheme.schedule.arrivals * rounds
    up = arrivals * wire.bytes_up(wire.template(theta), len(parts.reports))
    memory = memory_of(parts.solver)
    shared = {} if memory is None else memory.shared(theta[: oracle.layout.trainable])
    down = arrivals * wire.bytes_down(theta, shared)
    chi2, interval = scheme.distance(seen.p, progress) if known else (float("nan"), None)

    def terms_at(after: float) -> Mapping[str, Terms]:
        return {} if found is None or not known else bounds(seen, found, after)

    return Explanation(
        name=title,
        importance=seen.p,
        mean=scheme.mean,
        objective=objective,
        chi2=chi2,
        chi2_interval=interval,
        unbiased=_unbiased(seen),
        scheme=scheme,
        progress=progress,
        rounds=rounds,
        time=time,
        bytes_up=up,
        bytes_down=down,
        window=_window(parts, setting),
        constants=found,
        conditions=tuple(c for c in conditions(seen, found) if known or c.holds is False),
        terms=terms_at(rounds),
        remarks=remarks(seen),
        advice=advice(seen, found, rounds, composition.time) if known else (),
        notes=(*_said(parts, scheme, looked), *notes),
        terms_at=terms_at,
    )


def _title(federation: FederationLike) -> str:
    """What a federation is called in print."""
    return federation.title if isinstance(federation, HasTitle) else str(federation)


def _looked(composition: Composition, oracle: Oracle) -> ReportedLosses | None:
    """The first losses and updates of the clients, where a part decides by them."""
    parts = composition.parts
    norms = traits_of(parts.sampler, SamplerTraits).uses_norms or reads_updates(parts)
    if not parts.reports and not norms:
        return None
    return reported_losses(composition, oracle, oracle.initial(composition.seed))


def _constants(composition: Composition) -> tuple[Constants | None, tuple[str, ...]]:
    """The constants of the problem; a note where they cannot be had."""
    solver = composition.parts.solver
    decay, batch = known_decay(solver), solver.batch_size
    try:
        return constants(
            composition.federation, composition.task, decay, batch, composition.seed
        ), ()
    except (PoiseError, RuntimeError, ValueError) as error:
        return None, (f"the constants of the problem could not be estimated: {error}",)


def progress_of(solver: Solver, setting: Setting) -> Floats:
    """How many plain gradient steps each client's local work is worth, (N,)."""
    steps = np.asarray(solver.steps_for(np.asarray(setting.sizes)), dtype=np.float64)
    traits = traits_of(solver, SolverTraits)
    if traits.removes_drift:
        return np.ones(len(steps))
    pull = traits.pull * solver.rate(0)
    return theory.local_progress(steps, traits.momentum, 0.0 if traits.momentum else min(pull, 1.0))


def _unbiased(seen: Seen) -> bool | None:
    """Whether E[omega_i] = p_i and local work does not change it; within the interval where it was
    estimated.

    None where nobody knows.
    """
    if unknowns(seen):
        return None
    whole = abs(float(seen.scheme.mean.sum()) - 1) <= room_of(seen.scheme)
    return (
        whole and not seen.scheme.biased(seen.p) and not seen.scheme.biased(seen.p, seen.progress)
    )


def _window(parts: Parts, setting: Setting) -> float | None:
    """W, where the schedule of everyone repeats itself."""
    if parts.clock.waits:
        return 1.0
    clock, times = traits_of(parts.clock, ClockTraits), parts.clock.times(setting.clients)
    repeats = isinstance(times, FixedDurations) and selects_everyone(parts)
    if not repeats or clock.schedule is None:
        return None
    assert isinstance(times, FixedDurations)
    return theory.window(clock.schedule, times.mean(setting.clients), clock.window)


def _length(composition: Composition, scheme: Scheme) -> tuple[float, float]:
    """Aggregations and simulated time of the whole run."""
    schedule = scheme.schedule
    pace = schedule.time / max(schedule.aggregations, 1)
    rounds = float("inf") if composition.rounds is None else float(composition.rounds)
    if composition.time is not None and pace > 0:
        rounds = min(rounds, np.floor(composition.time / pace * (1 + 1e-9)))
    return rounds, rounds * pace


def _said(parts: Parts, scheme: Scheme, looked: ReportedLosses | None) -> tuple[str, ...]:
    """How what is not exact was found."""
    found = []
    if reads_updates(parts):
        name = type(parts.weighting).__name__
        found.append(

                f"{name}: its coefficients depend on the updates, of which the lengths of the first "
                "are known"

        )
    if scheme.method == SETTLED:
        found.append(f"E[ω]: {SETTLED}, for small steps")
    elif not scheme.exact:
        found.append(

                f"E[ω]: {scheme.method}, losses kept as they are "
                f"{scheme.where.removeprefix('with the losses ')}"

        )
    if looked is not None:
        asked = "all" if looked.whole else f"{len(looked.numbers)} of {looked.clients:,}"
        rest = "" if looked.whole else "; the others are taken to be like them"
        found.append(f"losses: one piece of work of {asked} clients{rest}")
    return tuple(found)


def _refused(parts: Parts, setting: Setting, title: str, error: IncompatibleParts) -> Explanation:
    """A composition that will not run: why, and what a sampler would minimise whose chances must be
    cut at 1.
    """
    p = np.asarray(setting.importance, dtype=np.float64)
    mean = _cut(parts.sampler, setting, p)
    known = bool(np.isfinite(mean).all())
    objective = theory.normalised(mean) if known else mean
    remark = Remark("this will not run", error.message, error.hint)
    return Explanation(
        name=title,
        importance=p,
        mean=mean,
        objective=objective,
        chi2=theory.chi_squared(p, objective) if known else float("nan"),
        chi2_interval=None,
        unbiased=False if known else None,
        remarks=(remark,),
    )


def _cut(sampler: Sampler, setting: Setting, importance: Floats) -> Floats:
    """E[omega_i] of a sampler whose coins do not fit this importance, with chances cut at 1; nan
    where unknown.
    """
    unknown = np.full(len(importance), np.nan)
    if not isinstance(sampler, HasCoins) or not still_holds(sampler, "coins"):
        return unknown
    try:
        sampler.fit(setting)
    except IncompatibleParts:
        pass
    else:
        return unknown
    try:
        coins = sampler.coins(importance)
    except PoiseError:
        return unknown
    return coins.chances * coins.weights
