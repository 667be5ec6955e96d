"""The explanation of a composition: objective, noise, bounds, warnings and advice."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np

from poise import theory
from poise.analysis.explain.advice import advice
from poise.analysis.explain.bounds import (
    RANGE,
    bounds,
    conditions,
    sum_tolerance,
    uncovered,
)
from poise.analysis.explain.constants import Constants, constants
from poise.analysis.explain.fixed_point import (
    FIXED_POINT,
    fixed_point,
    known_decay,
    weights_at_optimum,
)
from poise.analysis.explain.late_bounds import uncovered_schedule
from poise.analysis.explain.remarks import (
    ExplainContext,
    Remark,
    in_theory,
    remarks,
    unknowns,
)
from poise.analysis.explain.reported_losses import ReportedLosses, reported_losses
from poise.analysis.explain.scheme import (
    Scheme,
    reads_updates,
    scheme_of,
    selects_everyone,
    waits_for_all,
)
from poise.config.run_options import RunOptions
from poise.core import spill
from poise.core.algorithm_state import NamedVectors, memory_of
from poise.core.capabilities import HasCoins, HasTitle, SaysHow, samples_per_step
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
from poise.core.traits import (
    ClockTraits,
    SamplerTraits,
    SolverTraits,
    WeightingTraits,
    still_holds,
    traits_of,
)
from poise.core.types import Floats, Setting
from poise.core.vectors import Vector
from poise.engine.plan import Parts
from poise.theory import Assumption, Terms
from poise.training import Composition, check_batches, composed, fit, unmeasured
from poise.weightings import Proportional


@dataclass(frozen=True)
class Explanation:
    """The true objective of a composition, its weights' noise, bounds and warnings.

    ``objective`` is q~, (N,): the weights of the client losses that training really
    minimises, including the effect of local work. ``mean`` is E[omega_i]. ``chi2`` is
    the distance of the objective from the requested importance, with an interval if the
    weights were estimated. ``terms`` holds the bounds at the end of training by name;
    ``terms_at(n)`` those after n aggregations.
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
        """All warnings in words, each with its reason and fix; empty without any."""
        return tuple(str(r) for r in self.remarks)

    @property
    def weight_range(self) -> tuple[float, float]:
        """``(pi, Pi)``: least and largest kappa_i = q~_i/p_i [Mansour 2022, §2.5.2]."""
        return theory.weight_range(self.objective, self.importance)

    def as_data(self) -> dict[str, Any]:
        """The explanation as plain values for ``--json``."""
        from poise.analysis.explain.wording import plain

        return plain(self)

    def __str__(self) -> str:
        from poise.analysis.explain.wording import lines

        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        """The explanation in a notebook."""
        return f"<pre>{escape(str(self))}</pre>"


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
    """Predict a composition's behaviour before training; options as in `poise.train`.

    Sampler, clock and weighting are evaluated in closed form if there is one. Otherwise
    poise simulates that part alone, with a fixed number of operations, and the
    explanation says so.

    Args:
        federation: the clients and their data.
        task: model and loss.
        solver: local training of each client.
        sampler: choice of the clients of each round.
        clock: timing of the aggregations.
        weighting: weight of each update.
        server: server optimiser.
        rounds: number of aggregations.
        time: budget of simulated time.
        seed: seed of the run.
        attacks: dishonest clients; the explanation ignores them.
        personal: as in `poise.train`.
        estimate: estimate the constants of the problem, for bounds and advice.
        aggregator: combination of the weighted updates into one direction.
        channel: transfer of the updates to the server.

    >>> from poise.tasks import quadratics
    >>> from poise.samplers import MD
    >>> from poise.solvers import SGD
    >>> fed = quadratics([[0.0], [4.0]], sizes=[1, 3])
    >>> explanation = explain(fed, fed.task, SGD(lr=0.1, steps=2), sampler=MD(1))
    >>> explanation.unbiased, explanation.chi2, explanation.warnings
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
    """Explain a composed run."""
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    setting = composition.setting(oracle)
    title = name or _title(composition.federation)
    try:
        composition = composition.resolved()
        fit(composition.parts, setting)
        check_batches(composition, oracle)
    except IncompatibleParts as error:
        return _refused(composition.parts, setting, title, error)
    parts = composition.parts
    losses = _first_losses(composition, oracle)
    table: dict[str, Floats] = {}
    if losses is not None:
        table = {**losses.table(), "lowest": np.full(setting.clients, np.inf)}
    opaque = False
    try:
        scheme = scheme_of(parts, setting, table, composition.options)
    except UpdatesUnknown:
        opaque = True
        scheme = scheme_of(
            replace(parts, weighting=Proportional()),
            setting,
            table,
            composition.options,
        )
    progress = progress_of(parts.solver, setting)
    known_constants: Constants | None = None
    notes: tuple[str, ...] = ()
    if estimate:
        known_constants, notes = _constants(composition)
    per_step = traits_of(scheme.weighting, WeightingTraits).per_step
    if losses is not None and parts.reports and not opaque and not per_step:
        later = fixed_point(
            composition,
            oracle,
            setting,
            scheme=scheme,
            progress=progress,
            known=known_constants,
        )
        later = later or weights_at_optimum(
            composition, oracle, setting, known_constants
        )
        scheme, table = later or (scheme, table)
    objective = theory.with_local_work(scheme.mean, progress)
    context = ExplainContext(
        parts,
        setting,
        scheme=scheme,
        objective=objective,
        progress=progress,
        table=table,
        opaque=opaque,
    )
    known = not unknowns(context)
    rounds, time = _length(composition, scheme)
    theta = oracle.initial(composition.seed)
    wire = composition.wire(oracle)
    arrivals = scheme.schedule.arrivals * rounds
    up = arrivals * wire.bytes_up(wire.template(theta), len(parts.reports))
    memory = memory_of(parts.solver)
    shared: NamedVectors = {}
    if memory is not None:
        shared = memory.shared(theta[: oracle.layout.trainable])
    down = arrivals * wire.bytes_down(theta, shared)
    chi2 = float("nan")
    interval = None
    advised: tuple[str, ...] = ()
    if known:
        chi2, interval = scheme.distance(context.p, progress)
        advised = advice(context, known_constants, rounds, composition.time)

    def terms_at(after: float) -> Mapping[str, Terms]:
        if known_constants is None or not known:
            return {}
        return bounds(context, known_constants, after)

    return Explanation(
        name=title,
        importance=context.p,
        mean=scheme.mean,
        objective=objective,
        chi2=chi2,
        chi2_interval=interval,
        unbiased=_unbiased(context),
        scheme=scheme,
        progress=progress,
        rounds=rounds,
        time=time,
        bytes_up=up,
        bytes_down=down,
        window=_window(parts, setting),
        constants=known_constants,
        conditions=tuple(
            c for c in conditions(context, known_constants) if known or c.holds is False
        ),
        terms=terms_at(rounds),
        remarks=(*remarks(context), *_unmeasured(composition, oracle)),
        advice=advised,
        notes=(
            *_assumed(composition),
            *_method_notes(parts, scheme, losses),
            *notes,
            *_uncovered(context),
            *_uncovered_schedule(context),
            *_range_notes(terms_at(rounds)),
            *_kernel(oracle),
            *_memory(math.ceil(scheme.schedule.arrivals), theta),
        ),
        terms_at=terms_at,
    )


def _uncovered(context: ExplainContext) -> tuple[str, ...]:
    """Why the bounds for full participation are not evaluated, if parts stand against it."""
    together = selects_everyone(context.parts) and waits_for_all(context.parts.clock)
    reasons = uncovered(context)
    if not together or not reasons or not in_theory(context.parts):
        return ()
    return (
        "bounds of [Mansour 2022], [Exp-α 2023], [Buttaci 2024]: not evaluated, their "
        f"proofs do not cover {', '.join(reasons)}",
    )


def _uncovered_schedule(context: ExplainContext) -> tuple[str, ...]:
    """Why the bound for clocks that do not wait is not evaluated."""
    reason = uncovered_schedule(context)
    if not reason:
        return ()
    return (
        f"bound of [Fraboni 2023, ch. 4]: not evaluated, it does not cover {reason}",
    )


def _range_notes(terms: Mapping[str, Terms]) -> tuple[str, ...]:
    """The range of weights that bounds assume, where nothing guarantees it."""
    texts = {
        assumption.text
        for bound in terms.values()
        for assumption in bound.assumptions
        if assumption.text.startswith(RANGE) and assumption.holds is None
    }
    return tuple(
        f"bounds with weights: they assume that {text}; a run whose weights vary more "
        "may exceed them"
        for text in sorted(texts)
    )


def _assumed(composition: Composition) -> tuple[str, ...]:
    """The value that the partition took and nobody gave."""
    if composition.assumed:
        return (f"data: {composition.assumed}",)
    return ()


def _kernel(oracle: Oracle) -> tuple[str, ...]:
    """How the task computes gradients, if it had a choice."""
    if isinstance(oracle, SaysHow) and oracle.computation:
        return (oracle.computation,)
    return ()


def _memory(arrivals: int, theta: Vector) -> tuple[str, ...]:
    """Where the updates of an aggregation are kept, if they are too large for memory."""
    if not spill.spills((arrivals, len(theta)), theta):
        return ()
    size = arrivals * len(theta) * theta.element_size() / 1e9
    return (
        f"memory: the updates of an aggregation take {size:.2g} GB; they are kept in a "
        f"temporary file in {tempfile.gettempdir()}, which TMPDIR changes",
    )


def _title(federation: FederationLike) -> str:
    """The title of a federation."""
    if isinstance(federation, HasTitle):
        return federation.title
    return str(federation)


def _first_losses(composition: Composition, oracle: Oracle) -> ReportedLosses | None:
    """Losses and updates of the clients at the initial model, if a part needs them."""
    parts = composition.parts
    norms = traits_of(parts.sampler, SamplerTraits).uses_norms or reads_updates(parts)
    if not parts.reports and not norms:
        return None
    return reported_losses(composition, oracle, oracle.initial(composition.seed))


def _constants(composition: Composition) -> tuple[Constants | None, tuple[str, ...]]:
    """The constants of the problem, or a note why they are unknown."""
    solver = composition.parts.solver
    decay = known_decay(solver)
    batch = samples_per_step(solver)
    try:
        return constants(
            composition.federation, composition.task, decay, batch, composition.seed
        ), ()
    except (PoiseError, RuntimeError, ValueError) as error:
        return None, (
            f"poise could not estimate the constants of the problem: {error}",
        )


def progress_of(solver: Solver, setting: Setting) -> Floats:
    """The number of plain gradient steps that equal each client's local work, (N,)."""
    steps = np.asarray(solver.steps_for(np.asarray(setting.sizes)), dtype=np.float64)
    traits = traits_of(solver, SolverTraits)
    if traits.removes_drift:
        return np.ones(len(steps))
    pull = 0.0
    if not traits.momentum:
        pull = min(traits.pull * solver.rate(0), 1.0)
    return theory.local_progress(steps, traits.momentum, pull)


def _unbiased(context: ExplainContext) -> bool | None:
    """Whether E[omega_i] = p_i, also after local work, within an estimate's interval.

    None if unknown.
    """
    if unknowns(context):
        return None
    scheme = context.scheme
    if traits_of(scheme.weighting, WeightingTraits).per_step:
        return not scheme.biased(context.p, context.progress)
    whole = abs(float(scheme.mean.sum()) - 1) <= sum_tolerance(scheme)
    return (
        whole
        and not scheme.biased(context.p)
        and not scheme.biased(context.p, context.progress)
    )


def _window(parts: Parts, setting: Setting) -> float | None:
    """W, if the schedule of all clients is periodic; otherwise None."""
    if parts.clock.waits:
        return 1.0
    clock = traits_of(parts.clock, ClockTraits)
    times = parts.clock.times(setting.clients)
    repeats = isinstance(times, FixedDurations) and selects_everyone(parts)
    if not repeats or clock.schedule is None:
        return None
    assert isinstance(times, FixedDurations)
    return theory.window(clock.schedule, times.mean(setting.clients), clock.window)


def _length(composition: Composition, scheme: Scheme) -> tuple[float, float]:
    """Aggregations and simulated time of the whole run."""
    schedule = scheme.schedule
    pace = schedule.time / max(schedule.aggregations, 1)
    rounds = float("inf")
    if composition.rounds is not None:
        rounds = float(composition.rounds)
    if composition.time is not None and pace > 0:
        rounds = min(rounds, np.floor(composition.time / pace * (1 + 1e-9)))
    return rounds, rounds * pace


def _method_notes(
    parts: Parts, scheme: Scheme, losses: ReportedLosses | None
) -> tuple[str, ...]:
    """How poise estimated the values that are not exact."""
    notes = []
    if reads_updates(parts):
        name = type(parts.weighting).__name__
        notes.append(
            f"{name}: its weights depend on the updates; the explanation knows only the lengths "
            "of the first updates"
        )
    if scheme.method == FIXED_POINT:
        notes.append(f"E[ω]: {FIXED_POINT}, for small steps")
    elif not scheme.exact:
        notes.append(f"E[ω]: {scheme.method}, with constant losses {scheme.where}")
    if losses is not None:
        count = "all"
        others = ""
        if not losses.whole:
            count = f"{len(losses.numbers)} of {losses.clients:,}"
            others = "; the other clients are assumed to be like these"
        notes.append(f"losses: from one local training of {count} clients{others}")
    return tuple(notes)


def _unmeasured(composition: Composition, oracle: Oracle) -> tuple[Remark, ...]:
    """The warning about metrics that need test data; empty if all are measured."""
    lost = unmeasured(composition, oracle)
    if not lost:
        return ()
    return (Remark(f"{lost.listed} not measured", lost.reason, lost.hint),)


def _refused(
    parts: Parts, setting: Setting, title: str, error: IncompatibleParts
) -> Explanation:
    """The explanation of a composition that cannot run.

    For a sampler whose probabilities exceed 1, the objective is that of probabilities
    cut at 1.
    """
    p = np.asarray(setting.importance, dtype=np.float64)
    mean = _mean_of_cut_coins(parts.sampler, setting, p)
    objective = mean
    chi2 = float("nan")
    unbiased = None
    if np.isfinite(mean).all():
        objective = theory.normalised(mean)
        chi2 = theory.chi_squared(p, objective)
        unbiased = False
    remark = Remark("this composition cannot run", error.message, error.hint)
    return Explanation(
        name=title,
        importance=p,
        mean=mean,
        objective=objective,
        chi2=chi2,
        chi2_interval=None,
        unbiased=unbiased,
        remarks=(remark,),
    )


def _mean_of_cut_coins(
    sampler: Sampler, setting: Setting, importance: Floats
) -> Floats:
    """E[omega_i] of a sampler that does not fit, coins cut at 1; nan if unknown."""
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
