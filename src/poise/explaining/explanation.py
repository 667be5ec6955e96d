"""What the theory says of a composition, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poise import theory
from poise.composition import Composition
from poise.core.errors import IncompatibleParts, PoiseError
from poise.core.plan import Parts
from poise.core.types import Floats, Setting
from poise.explaining.advice import advice
from poise.explaining.bounding import bounds, conditions, room_of
from poise.explaining.constants import Constants, constants
from poise.explaining.probe import Probe, probe
from poise.explaining.remarks import Remark, Seen, remarks
from poise.explaining.scheme import Scheme, name_of, scheme_of
from poise.explaining.settling import SETTLED, at_the_optimum, known_decay, settle
from poise.theory import Assumption, Terms
from poise.training import composed

CORRECTED = ("scaffold", "feddyn")
"""Solvers whose memory takes the drift of unequal local work out of the fixed point."""


@dataclass(frozen=True)
class Explanation:
    """Which objective a composition minimises, how noisy its weights are, what the bounds promise, what is wrong.

    ``objective`` is q~, (N,): the weights of the losses that are really minimised, local work included; ``mean`` is
    E[omega_i]. ``chi2`` is the distance of the objective from the importance asked for, with an interval where the
    weights were estimated. ``terms`` holds the bounds by name, at the end of training; ``terms_at(n)`` those after n
    aggregations.
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
    terms_at: Callable[[float], Mapping[str, Terms]] = field(default=lambda rounds: {}, repr=False, compare=False)

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
        from poise.explaining.words import plain

        return plain(self)

    def __str__(self) -> str:
        from poise.explaining.words import lines

        return "\n".join(lines(self))


def explain(
    federation: Any, task: Any, solver: Any, sampler: Any = None, clock: Any = None, weighting: Any = None,
    server: Any = None, rounds: int | None = None, time: float | None = None, seed: int = 0,
    attacks: Iterable[Any] = (), personal: Any = None, estimate: bool = True,
) -> Explanation:  # fmt: skip
    """Look at a composition before spending an hour on it; the arguments are those of `poise.train`.

    Sampler, clock and weighting are looked at in closed form where there is one; otherwise that part alone is
    simulated, with a fixed number of operations, and the explanation says so.

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

    >>> from poise.tasks import quadratics
    >>> from poise.samplers import MD
    >>> from poise.solvers import SGD
    >>> fed = quadratics([[0.0], [4.0]], sizes=[1, 3])
    >>> found = explain(fed, fed.task, SGD(lr=0.1, steps=2), sampler=MD(1))
    >>> found.unbiased, found.chi2, found.warnings
    (True, 0.0, ())
    """
    composition = composed(
        federation, task, solver, sampler, clock, weighting, server, rounds, time, seed, attacks=attacks,
        personal=personal,
    )  # fmt: skip
    return explain_composition(composition, estimate=estimate)


def explain_composition(composition: Composition, name: str = "", estimate: bool = True) -> Explanation:
    """Look at a composed run."""
    oracle = composition.task.bind(composition.federation, composition.backend.device)
    setting = composition.setting(oracle)
    title = name or getattr(composition.federation, "title", None) or str(composition.federation)
    try:
        composition.parts.fit(setting)
    except IncompatibleParts as error:
        return _refused(composition.parts, setting, title, error)
    parts = composition.parts
    looked = _looked(composition, oracle)
    table = {} if looked is None else {**looked.table(), "lowest": np.full(setting.clients, np.inf)}
    scheme = scheme_of(parts, setting, table, composition.seed, composition.rounds, composition.time)
    progress = progress_of(parts.solver, setting)
    found, notes = _constants(composition) if estimate else (None, ())
    if looked is not None and parts.reports:
        later = settle(composition, oracle, setting, scheme, progress, found)
        later = later or at_the_optimum(composition, oracle, setting, found)
        scheme, table = later or (scheme, table)
    objective = theory.with_local_work(scheme.mean, progress)
    seen = Seen(parts, setting, scheme, objective, progress, table)
    rounds, time = _length(composition, scheme)
    size = oracle.initial(composition.seed)
    arrivals = scheme.schedule.arrivals * rounds
    up = arrivals * (size.element_size() * len(size) + 8 * len(parts.reports))
    chi2, interval = scheme.distance(seen.p, progress)

    def terms_at(after: float) -> Mapping[str, Terms]:
        return {} if found is None else bounds(seen, found, after)

    return Explanation(
        title, seen.p, scheme.mean, objective, chi2, interval, _unbiased(seen), scheme, progress, rounds, time, up,
        arrivals * size.element_size() * len(size) * (2 if parts.perturbs else 1), _window(parts, setting), found,
        conditions(seen, found), terms_at(rounds), remarks(seen), advice(seen, found, rounds, composition.time),
        (*_said(scheme, looked), *notes), terms_at,
    )  # fmt: skip


def _looked(composition: Composition, oracle: Any) -> Probe | None:
    """The first losses of the clients, where a part decides by them."""
    parts = composition.parts
    reports = parts.reports
    if not reports and name_of(parts.sampler) != "optimal":
        return None
    return probe(
        oracle, composition.federation, parts.solver, oracle.initial(composition.seed), composition.seed, reports
    )


def _constants(composition: Composition) -> tuple[Constants | None, tuple[str, ...]]:
    """The constants of the problem; a note where they cannot be had."""
    solver = composition.parts.solver
    decay, batch = known_decay(solver), solver.batch_size
    try:
        return constants(composition.federation, composition.task, decay, batch, composition.seed), ()
    except (PoiseError, RuntimeError, ValueError) as error:
        return None, (f"the constants of the problem could not be estimated: {error}",)


def progress_of(solver: Any, setting: Setting) -> Floats:
    """How many plain gradient steps each client's local work is worth, (N,)."""
    steps = np.asarray(solver.steps_for(np.asarray(setting.sizes)), dtype=np.float64)
    if name_of(solver) in CORRECTED:
        return np.ones(len(steps))
    momentum, pull = float(getattr(solver, "momentum", 0.0)), float(getattr(solver, "mu", 0.0)) * solver.rate(0)
    return theory.local_progress(steps, momentum, 0.0 if momentum else min(pull, 1.0))


def _unbiased(seen: Seen) -> bool:
    """Whether E[omega_i] = p_i and local work does not change it; within the interval where it was estimated."""
    whole = abs(float(seen.scheme.mean.sum()) - 1) <= room_of(seen.scheme)
    return whole and not seen.scheme.biased(seen.p) and not seen.scheme.biased(seen.p, seen.progress)


def _window(parts: Parts, setting: Setting) -> float | None:
    """W, where the schedule of everyone repeats itself."""
    clock: Any = parts.clock
    scheme = name_of(clock)
    if clock.waits:
        return 1.0
    times = clock.times(setting.clients)
    fixed = type(times).__name__ == "FixedDurations" and getattr(parts.sampler, "everyone", False)
    if not fixed or scheme not in ("asynchronous", "fixed-window"):
        return None
    return theory.window(scheme, times.mean(setting.clients), getattr(clock, "dt", None))  # type: ignore[arg-type]


def _length(composition: Composition, scheme: Scheme) -> tuple[float, float]:
    """Aggregations and simulated time of the whole run."""
    schedule = scheme.schedule
    pace = schedule.time / max(schedule.aggregations, 1)
    rounds = float("inf") if composition.rounds is None else float(composition.rounds)
    if composition.time is not None and pace > 0:
        rounds = min(rounds, np.floor(composition.time / pace * (1 + 1e-9)))
    return rounds, rounds * pace


def _said(scheme: Scheme, looked: Probe | None) -> tuple[str, ...]:
    """How what is not exact was found."""
    found = []
    if scheme.method == SETTLED:
        found.append(f"E[ω]: {SETTLED}, for small steps")
    elif not scheme.exact:
        found.append(f"E[ω]: {scheme.method}, losses kept as they are {scheme.where.removeprefix('with the losses ')}")
    if looked is not None:
        asked = "all" if looked.whole else f"{len(looked.numbers)} of {looked.clients:,}"
        rest = "" if looked.whole else "; the others are taken to be like them"
        found.append(f"losses: one piece of work of {asked} clients{rest}")
    return tuple(found)


def _refused(parts: Parts, setting: Setting, title: str, error: IncompatibleParts) -> Explanation:
    """A composition that will not run: why, and, for Poisson sampling, what it would minimise with chances cut at 1."""
    p = np.asarray(setting.importance, dtype=np.float64)
    mean = np.full(len(p), np.nan)
    if name_of(parts.sampler) == "poisson":
        mean = np.minimum(parts.sampler.m * p, 1.0) / parts.sampler.m  # type: ignore[attr-defined]
    known = bool(np.isfinite(mean).all())
    objective = theory.normalised(mean) if known else mean
    remark = Remark("this will not run", error.message, error.hint)
    return Explanation(
        title, p, mean, objective, theory.chi_squared(p, objective) if known else float("nan"), None,
        False if known else None, remarks=(remark,),
    )  # fmt: skip
