"""The golden cases: every part of every slot, in small runs.

A case is a problem (`golden.problems`), the options of `poise.train`, and what happens to the run:
it is trained in one go, or stopped or killed half way and resumed, or followed by unlearning
requests. A case with ``like`` must end in the same bits as another case; ``golden.json`` does not
store its results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from poise import solvers
from poise.aggregators import LatestContribution, Median, TrimmedMean, WeightedSum
from poise.attacks import FreeRider, Mimic, Scaled, StaleReplay
from poise.backends import Local
from poise.channels import Plain, TopK
from poise.clocks import (
    Asynchronous,
    Buffered,
    Exponential,
    FixedWindow,
    Replay,
    Synchronous,
    Trace,
)
from poise.core.parts import is_part
from poise.personal import BatchNorm, Layers
from poise.samplers import (
    MD,
    Binomial,
    Budgeted,
    ClusteredBySimilarity,
    ClusteredBySize,
    Covering,
    Full,
    Optimal,
    Poisson,
    PowerOfChoice,
    Target,
    Uniform,
)
from poise.servers import Adagrad, Adam, Add, Momentum, Noisy, Yogi
from poise.solvers import (
    SGD,
    FedDyn,
    FedFor,
    Perturbed,
    Prox,
    Scaffold,
    Sums,
    optimizers,
    schedules,
)
from poise.unlearning import Budget
from poise.weightings import (
    Adjacency,
    Anneal,
    Clipped,
    Discount,
    Exp,
    Identical,
    Max,
    Min,
    PerStep,
    Proportional,
    SoftMax,
    SoftMin,
    Switch,
    TimeBased,
)

HERE = Path(__file__).parent
ONE, TWO = Local(workers=1), Local(workers=2)
SOLVER = SGD(lr=0.3, steps=4, batch_size=8)
EXACT = SGD(lr=0.2, steps=2)  # for tasks without batches
TAU8 = (1.0, 1.3, 0.7, 2.1, 0.4, 1.0, 3.2, 0.9)
TAU6 = (1.0, 1.3, 0.7, 2.1, 0.4, 1.0)
TRACE = [(i, 0.4 * i + 1.5 * k, 0.3 + 0.2 * i) for i in range(8) for k in range(5)]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is run, and how.

    Args:
        problem: a name in `golden.problems.PROBLEMS`.
        options: of `poise.train`.
        like: a case that must end in the same bits.
        how: ``whole``, or what happens after ``after`` rounds: ``stopped``, ``killed``, or ``torn``
            (killed, with a damaged newest model); the run is then resumed.
        after: rounds before the interruption.
        workers: of the process that resumes the run.
        forget: the options of calls of `poise.unlearn`, one after the other.
        audited: also store the results of `poise.audit`.
    """

    problem: str
    options: Mapping[str, Any]
    like: str = ""
    how: str = "whole"
    after: int = 0
    workers: int = 1
    forget: tuple[Mapping[str, Any], ...] = ()
    audited: bool = False


def on(
    problem: str,
    solver: Any = SOLVER,
    audited: bool = False,
    forget: Any = (),
    **options: Any,
) -> Case:
    """A case trained in one go: five rounds and one worker, unless the options say otherwise."""
    given = {"solver": solver, "backend": ONE, "metrics": ("client_loss",), **options}
    if "time" not in options:
        given.setdefault("rounds", 5)
    return Case(problem, given, audited=audited, forget=tuple(forget))


ALL_OPTIONS: dict[str, Any] = {
    "momentum": 0.9,
    "weight_decay": 0.01,
    "clip": 1.5,
    "decay": 0.9,
}

SOLVERS = {
    "sgd-everyone": on(
        "digits",
        sampler=Full(),
        clock=Synchronous(),
        weighting=Proportional(),
        server=Add(),
        metrics=("client_loss", "client_accuracy", "train_loss", "train_accuracy"),
    ),
    "sgd": on("digits", sampler=Uniform(5)),
    "sgd-epochs": on("digits", SGD(lr=0.1, epochs=2, batch_size=7), sampler=Uniform(5)),
    "sgd-whole-batches": on("digits", SGD(lr=0.1, steps=2), sampler=Uniform(5)),
    "sgd-all-options": on(
        "digits", SGD(lr=0.1, steps=4, batch_size=8, **ALL_OPTIONS), sampler=Uniform(5)
    ),
    "sgd-quadratics": on(
        "quadratics", SGD(lr=0.1, steps=4, **ALL_OPTIONS), sampler=Uniform(3)
    ),
    "prox": on(
        "digits", Prox(mu=0.5, lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "prox-quadratics": on(
        "quadratics", Prox(mu=0.5, lr=0.1, epochs=3), sampler=Uniform(3)
    ),
    "fedfor": on(
        "digits",
        FedFor(strength=0.3, lr=0.1, steps=3, batch_size=8),
        sampler=Uniform(5),
    ),
    "fedfor-quadratics": on("quadratics", FedFor(strength=0.3, lr=0.1, steps=3)),
    "perturbed": on(
        "digits",
        Perturbed(beta=0.7, mu=0.1, lr=0.1, steps=3, batch_size=8),
        sampler=Uniform(5),
    ),
    "perturbed-adjacency": on(
        "digits",
        Perturbed(beta=0.6, lr=0.1, steps=3, batch_size=8),
        weighting=Adjacency(),
    ),
    "perturbed-quadratics": on(
        "quadratics", Perturbed(beta=0.7, lr=0.1, steps=3), sampler=Uniform(3)
    ),
    "scaffold": on(
        "digits", Scaffold(lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "scaffold-slow-server": on(
        "digits", Scaffold(lr=0.1, epochs=1, batch_size=8), server=Add(lr=0.7)
    ),
    "scaffold-quadratics": on(
        "quadratics", Scaffold(lr=0.1, steps=3), sampler=Uniform(3)
    ),
    "local-adam": on(
        "digits",
        solvers.Adam(lr=0.01, steps=3, batch_size=8, weight_decay=0.1, keep_state=True),
        sampler=Uniform(5),
    ),
    "local-adamw": on(
        "digits", solvers.AdamW(lr=0.01, epochs=1, batch_size=8, accumulate=2)
    ),
    "local-rmsprop": on(
        "quadratics", solvers.RMSprop(lr=0.01, steps=3, schedule=schedules.Step(2))
    ),
    "local-adagrad": on(
        "digits", solvers.Adagrad(lr=0.1, steps=3, schedule=schedules.Cosine(9))
    ),
    "local-prox-adam": on(
        "digits",
        Prox(0.1, lr=0.01, steps=3, optimizer="adam", schedule=schedules.Constant()),
    ),
    "local-fedfor-rmsprop": on(
        "digits",
        FedFor(
            0.1, lr=0.01, steps=3, optimizer="rmsprop", schedule=schedules.Linear(9)
        ),
    ),
    "local-perturbed-adagrad": on(
        "digits",
        Perturbed(
            0.7, lr=0.1, steps=3, optimizer="adagrad", schedule=schedules.WarmUp(3)
        ),
    ),
    "local-nesterov": on(
        "digits",
        SGD(lr=0.1, steps=3, optimizer=optimizers.Momentum(0.9, nesterov=True)),
    ),
    "feddyn": on(
        "digits", FedDyn(alpha=0.1, lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "feddyn-quadratics": on(
        "quadratics", FedDyn(alpha=0.3, lr=0.1, steps=3), sampler=Uniform(3)
    ),
}

SAMPLERS = {
    "uniform-keep": on("digits", sampler=Uniform(3, absent="keep")),
    "covering": on("digits", sampler=Covering(3)),
    "md": on("digits", sampler=MD(4)),
    "md-independent": on("digits", sampler=MD(6, independent_draws=True)),
    "binomial": on("digits", sampler=Binomial(3)),
    "binomial-nobody": on("quadratics", EXACT, sampler=Binomial(1), rounds=12),
    "budgeted": on("digits", sampler=Budgeted(MD(4), limit=1.0), rounds=10),
    "poisson": on("digits-equal", sampler=Poisson(3)),
    "optimal": on("digits", sampler=Optimal(3)),
    "power-of-choice": on("digits", sampler=PowerOfChoice(m=2, d=5)),
    "clustered-by-size": on("digits", sampler=ClusteredBySize(4)),
    "clustered-by-size-independent": on(
        "digits-weighed", sampler=ClusteredBySize(4, independent_draws=True)
    ),
    "clustered-by-angle": on("digits", sampler=ClusteredBySimilarity(3)),
    "clustered-by-distance-ahead": on(
        "digits", sampler=ClusteredBySimilarity(3, measure="L2", ahead=True)
    ),
    "clustered-by-l1": on(
        "digits", sampler=ClusteredBySimilarity(4, measure="L1", independent_draws=True)
    ),
    "clustered-quadratics": on(
        "quadratics", EXACT, sampler=ClusteredBySimilarity(2), rounds=8
    ),
    "target-class": on("digits", sampler=Target(3, "class")),
    "target-groups": on(
        "digits", sampler=Target(2, (0, 0, 1, 1, 2, 2, 0, 1), independent_draws=True)
    ),
}

CLOCKS = {
    "synchronous-scenario": on("digits", clock=Synchronous("F80")),
    "synchronous-exponential": on(
        "digits", sampler=Uniform(4), clock=Synchronous(Exponential(TAU8))
    ),
    "synchronous-trace": on(
        "digits", sampler=Uniform(4), clock=Synchronous(Trace(TRACE)), rounds=9
    ),
    "synchronous-deadline": on("digits", clock=Synchronous(TAU8, deadline=1.2)),
    "synchronous-enough": on(
        "digits", sampler=Uniform(5), clock=Synchronous(TAU8, enough=3)
    ),
    "synchronous-both": on(
        "digits", clock=Synchronous(Exponential("F80"), deadline=0.8, enough=5)
    ),
    "synchronous-time": on(
        "digits",
        sampler=Uniform(3),
        clock=Synchronous(TAU8),
        time=9.0,
        evaluate_every=2,
    ),
    "asynchronous": on(
        "digits", clock=Asynchronous("F80"), rounds=14, evaluate_every=3
    ),
    "asynchronous-exponential": on(
        "quadratics", EXACT, clock=Asynchronous(Exponential(TAU6)), rounds=20
    ),
    "asynchronous-time": on(
        "quadratics", EXACT, clock=Asynchronous(TAU6), time=4.0, rounds=50
    ),
    "asynchronous-sampled": on(
        "digits", sampler=MD(3), clock=Asynchronous(TAU8), rounds=12
    ),
    "fixed-window": on("digits", clock=FixedWindow(0.5, TAU8), rounds=8),
    "growing-windows": on(
        "digits",
        clock=FixedWindow(0.3, TAU8, growth=1.2, longest=1.0),
        weighting=TimeBased("elapsed"),
        rounds=8,
    ),
    "turns": on("digits", clock=FixedWindow(0.5, TAU8, stagger=True), rounds=8),
    "fixed-window-exponential": on(
        "digits", clock=FixedWindow(0.5, Exponential(TAU8)), rounds=8
    ),
    "fixed-window-time": on("digits", clock=FixedWindow(0.7, "F80"), time=4.2),
    "fixed-window-trace": on(
        "digits", clock=FixedWindow(0.6, Trace(str(HERE / "trace.csv"))), rounds=20
    ),
    "buffered": on("digits", clock=Buffered(3, TAU8), rounds=8),
    "buffered-exponential": on(
        "digits", sampler=Uniform(5), clock=Buffered(2, Exponential(TAU8)), rounds=8
    ),
    "buffered-clustered": on(
        "digits", sampler=ClusteredBySimilarity(4), clock=Buffered(2, TAU8), rounds=8
    ),
    "replay": on("digits", clock=Replay(str(HERE / "schedule.csv")), rounds=20),
}

WEIGHTINGS = {
    "adjacency": on("digits", sampler=Uniform(5), weighting=Adjacency()),
    "max": on("digits", sampler=Uniform(6), weighting=Max(k=2)),
    "max-share": on("digits", weighting=Max(k=0.4, floor="running_min")),
    "min": on("digits", sampler=Uniform(6), weighting=Min(k=3, floor=0.1)),
    "soft-max": on("digits", sampler=Uniform(6), weighting=SoftMax(0.2)),
    "soft-max-effective": on("digits", weighting=SoftMax(0.01, effective=0.5)),
    "soft-max-floors": on(
        "digits", weighting=SoftMax(0.5, floor=tuple(0.1 * k for k in range(8)))
    ),
    "soft-max-running": on(
        "digits", sampler=MD(6), weighting=SoftMax(0.5, floor="running_min")
    ),
    "soft-min": on("digits", sampler=Uniform(6), weighting=SoftMin(0.2, floor=0.05)),
    "exp": on("digits", sampler=Uniform(6), weighting=Exp(0.2)),
    "exp-unscaled": on("digits", weighting=Exp(0.3, scale="none")),
    "switch-rounds": on(
        "digits",
        sampler=Uniform(6),
        weighting=Switch([(2, SoftMin(0.2)), (4, Exp(0.2)), (None, Proportional())]),
    ),
    "switch-accuracy": on(
        "digits",
        weighting=Switch([(0.3, SoftMax(0.5)), (0.6, Max(2)), (None, Min(3))]),
        rounds=8,
    ),
    "switch-nested": on(
        "digits",
        sampler=Uniform(6),
        rounds=8,
        weighting=Switch(
            [
                (
                    6,
                    Switch(
                        [
                            (2, Anneal(Max(2), SoftMin(0.4), 3)),
                            (None, Clipped(0.3, Exp(0.2))),
                        ]
                    ),
                ),
                (None, Discount(SoftMax(0.3, floor="running_min"))),
            ]
        ),
    ),
    "anneal": on(
        "digits", sampler=Uniform(6), weighting=Anneal(SoftMax(0.2), Proportional(), 3)
    ),
    "anneal-nested": on(
        "digits",
        weighting=Anneal(Clipped(0.2, SoftMax(1.0)), Anneal(Exp(0.2), Min(2), 2), 4),
        rounds=6,
    ),
    "clipped": on("digits", sampler=Uniform(6), weighting=Clipped(0.2)),
    "clipped-soft-max": on("digits", weighting=Clipped(0.25, of=SoftMax(1.0))),
    "clipped-nothing": on("quadratics", EXACT, weighting=Clipped(float("inf"))),
    "identical-asynchronous": on(
        "digits", clock=Asynchronous(TAU8), weighting=Identical(), rounds=12
    ),
    "identical-buffered": on(
        "digits", clock=Buffered(3, TAU8), weighting=Identical(), rounds=6
    ),
    "identical-window": on(
        "quadratics",
        EXACT,
        clock=FixedWindow(0.5, TAU6),
        weighting=Identical(),
        rounds=9,
    ),
    "time-based-asynchronous": on(
        "digits",
        clock=Asynchronous(Exponential(TAU8)),
        weighting=TimeBased(),
        rounds=12,
    ),
    "time-based-window": on(
        "quadratics",
        EXACT,
        clock=FixedWindow(0.5, TAU6),
        weighting=TimeBased(),
        rounds=9,
    ),
    "time-based-buffered": on(
        "quadratics", EXACT, clock=Buffered(2, TAU6), weighting=TimeBased(), rounds=9
    ),
    "time-based-deadline": on(
        "quadratics",
        EXACT,
        clock=Synchronous(Exponential(TAU6), deadline=2.0),
        weighting=TimeBased(),
    ),
    "time-based-estimated": on(
        "digits",
        sampler=Uniform(5),
        clock=Buffered(2, Exponential(TAU8)),
        weighting=TimeBased("estimated"),
        rounds=9,
    ),
    "time-based-estimated-twice": on(
        "digits",
        sampler=MD(6, independent_draws=True),
        weighting=TimeBased("estimated"),
    ),
    "discount": on(
        "digits",
        clock=FixedWindow(0.5, TAU8),
        weighting=Discount(SoftMax(0.5)),
        rounds=9,
    ),
    "discount-hinge": on(
        "digits",
        clock=Asynchronous(TAU8),
        weighting=Discount(Proportional(), "hinge", a=2.0, b=1.0),
        rounds=14,
    ),
    "discount-of-time-based": on(
        "quadratics", EXACT, clock=Buffered(2, TAU6), weighting=Discount(TimeBased())
    ),
}

SERVERS = {
    "add": on("digits", sampler=Uniform(5), server=Add(lr=0.4)),
    "momentum": on("digits", sampler=Uniform(5), server=Momentum(lr=0.5, beta=0.8)),
    "momentum-nesterov": on(
        "digits", sampler=Uniform(5), server=Momentum(lr=0.5, nesterov=True)
    ),
    "adam": on("digits", sampler=Uniform(5), server=Adam(lr=0.02)),
    "yogi": on("digits", sampler=Uniform(5), server=Yogi(lr=0.02, beta1=0.8, tau=1e-2)),
    "adagrad": on("digits", sampler=Uniform(5), server=Adagrad(lr=0.05, beta1=0.2)),
    "noisy": on(
        "digits", sampler=Uniform(5), server=Noisy(1e-3), weighting=Clipped(0.3)
    ),
    "noisy-momentum": on(
        "quadratics", EXACT, server=Noisy(0.01, of=Momentum(lr=0.5), seed=3)
    ),
    "noisy-adam": on(
        "digits", clock=Buffered(3, TAU8), server=Noisy(1e-3, of=Adam(lr=0.02)), seed=4
    ),
}

ATTACKS = {
    "free-rider": on("digits-logistic", audited=True, attacks=[FreeRider((2, 5))]),
    "free-rider-disguised": on(
        "digits-logistic", audited=True, attacks=[FreeRider((2, 5), "disguised")]
    ),
    "free-rider-mean": on(
        "digits",
        sampler=Uniform(5),
        weighting=SoftMax(0.5),
        audited=True,
        attacks=[
            FreeRider(
                (0, 3),
                "disguised",
                sigma="estimate-mean",
                gamma=0.5,
                scale=3.0,
                loss=2.0,
            )
        ],
    ),
    "free-rider-number": on(
        "digits",
        attacks=[FreeRider((2,), "disguised", sigma=0.1, gamma=0.0)],
        audited=True,
    ),
    "free-rider-declared": on(
        "digits-riders", attacks=[FreeRider((6, 7), "disguised")], audited=True
    ),
    "stale-replay": on(
        "digits",
        sampler=Uniform(5),
        attacks=[StaleReplay((1, 4), scale=1.5)],
        audited=True,
    ),
    "mimic": on(
        "digits", sampler=Uniform(5), attacks=[Mimic((1, 4), noise=0.7)], audited=True
    ),
    "scaled": on("digits", attacks=[Scaled((0, 4), fraction=0.2)], audited=True),
    "several-attacks": on(
        "digits-logistic",
        weighting=Exp(0.2),
        audited=True,
        rounds=8,
        attacks=[
            FreeRider((1,)),
            Mimic((2,)),
            Scaled((3,)),
            StaleReplay((4,)),
            FreeRider((5,), "disguised"),
        ],
    ),
    "attack-asynchronous": on(
        "digits",
        clock=FixedWindow(0.5, TAU8),
        attacks=[Mimic((4,)), FreeRider((2,), "disguised")],
        rounds=9,
        audited=True,
    ),
    "attack-quadratics": on(
        "quadratics",
        EXACT,
        attacks=[StaleReplay((1,)), Scaled((2,), 0.5)],
        audited=True,
    ),
    "audit-warn": on(
        "digits-logistic",
        SGD(lr=0.1, steps=4, batch_size=8),
        rounds=14,
        audit="warn",
        audited=True,
        attacks=[FreeRider((2,), "disguised"), FreeRider((5,))],
    ),
    "audit-quarantine": on(
        "digits-logistic",
        SGD(lr=0.1, steps=4, batch_size=8),
        rounds=14,
        audit="quarantine",
        audited=True,
        attacks=[FreeRider((2,), "disguised"), FreeRider((5,))],
    ),
    "audit-quarantine-sampled": on(
        "digits-logistic",
        SGD(lr=0.1, steps=4, batch_size=8),
        rounds=12,
        audit="quarantine",
        audited=True,
        sampler=Uniform(7),
        weighting=SoftMax(1.0),
        server=Momentum(lr=0.5),
        attacks=[FreeRider((2, 5))],
    ),
    "audit-quarantine-window": on(
        "digits-logistic",
        SGD(lr=0.1, steps=4, batch_size=8),
        rounds=14,
        audit="quarantine",
        audited=True,
        clock=FixedWindow(0.5, "F80"),
        attacks=[FreeRider((5, 9))],
    ),
}

PATHS = {
    "rows": on("rows", sampler=Uniform(5)),
    "rows-all-options": on(
        "rows", SGD(lr=0.1, steps=4, batch_size=8, **ALL_OPTIONS), weighting=Exp(0.2)
    ),
    "rows-prox": on(
        "rows", Prox(mu=0.5, lr=0.1, epochs=1, batch_size=8), sampler=Uniform(5)
    ),
    "rows-fedfor": on(
        "rows", FedFor(strength=0.3, lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "rows-perturbed": on(
        "rows", Perturbed(beta=0.7, lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "rows-scaffold": on(
        "rows", Scaffold(lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "rows-feddyn": on(
        "rows", FedDyn(alpha=0.1, lr=0.1, steps=3, batch_size=8), sampler=Uniform(5)
    ),
    "rows-window": on(
        "rows", clock=FixedWindow(0.5, TAU8), weighting=SoftMax(0.5), rounds=6
    ),
    "two-layers": on("digits-two-layers", sampler=Uniform(5), weighting=SoftMax(0.5)),
    "double": on("digits-double", sampler=Uniform(5)),
    "double-scaffold": on(
        "digits-double",
        Scaffold(lr=0.1, steps=3, batch_size=8),
        server=Momentum(lr=0.5),
    ),
    "numbers": on(
        "numbers", SGD(lr=0.05, steps=3, batch_size=4), weighting=SoftMax(1.0)
    ),
    "own-module": on("own-module", sampler=Uniform(5), rounds=3),
    "own-loss": on("own-loss", sampler=Uniform(5), weighting=Exp(0.2), rounds=3),
    "cnn-small": on("cnn-small", SGD(lr=0.05, steps=2, batch_size=4), rounds=2),
    "cnn-norm": on(
        "cnn", SGD(lr=0.05, steps=2, batch_size=4), sampler=Uniform(3), rounds=3
    ),
    "resnet": on("resnet", SGD(lr=0.05, steps=1, batch_size=3), rounds=2),
    "lstm": on(
        "text", SGD(lr=0.5, steps=3, batch_size=4), sampler=Uniform(3), rounds=4
    ),
    "lstm-scaffold": on(
        "text",
        Scaffold(lr=0.5, steps=2, batch_size=4),
        weighting=SoftMax(0.3),
        rounds=3,
    ),
    "norm": on("norm", sampler=Uniform(5)),
    "norm-momentum": on(
        "norm",
        SGD(lr=0.1, steps=3, batch_size=8, momentum=0.9),
        server=Momentum(lr=0.5),
    ),
    "personal": on(
        "norm",
        sampler=Uniform(5),
        personal="batchnorm",
        metrics=("client_loss", "client_test_accuracy", "own_accuracy"),
    ),
    "personal-window": on(
        "norm", personal="batchnorm", clock=FixedWindow(0.5, TAU8), rounds=7
    ),
    "personal-scaffold": on(
        "norm",
        Scaffold(lr=0.1, steps=3, batch_size=8),
        sampler=Uniform(5),
        personal="batchnorm",
    ),
    "personal-cnn": on(
        "cnn", SGD(lr=0.05, steps=2, batch_size=4), personal="batchnorm", rounds=3
    ),
    "personal-layers": on(
        "norm", sampler=Uniform(5), personal=Layers("4.*"), metrics=("own_accuracy",)
    ),
    "personal-top-k": on(
        "norm", sampler=Uniform(5), personal=BatchNorm(), channel=TopK(0.1)
    ),
    "weighted-sum": on(
        "digits", sampler=MD(4), aggregator=WeightedSum(), channel=Plain()
    ),
    "per-step": on(
        "digits",
        sampler=MD(4),
        solver=SGD(lr=0.1, epochs=1, batch_size=8),
        weighting=PerStep(),
    ),
    "latest": on(
        "norm",
        aggregator=LatestContribution(),
        clock=FixedWindow(0.5, TAU8),
        rounds=8,
    ),
    "median": on("digits", sampler=MD(5), aggregator=Median()),
    "median-norm": on("norm", aggregator=Median(), server=Momentum(lr=0.5)),
    "trimmed-mean": on("digits", aggregator=TrimmedMean(0.2), weighting=Exp(0.5)),
    "trimmed-mean-window": on(
        "quadratics",
        EXACT,
        aggregator=TrimmedMean(0.1),
        clock=FixedWindow(0.5, TAU6),
        rounds=9,
    ),
    "top-k": on("digits", sampler=Uniform(5), channel=TopK(0.05)),
    "top-k-forgets": on(
        "digits", sampler=Uniform(5), channel=TopK(0.2, error_feedback=False)
    ),
    "top-k-asynchronous": on(
        "digits", channel=TopK(0.1), clock=Asynchronous(TAU8), rounds=10
    ),
    "top-k-scaffold": on(
        "digits",
        Scaffold(lr=0.1, steps=3, batch_size=8),
        sampler=Uniform(5),
        channel=TopK(0.1),
    ),
    "top-k-rows": on(
        "norm",
        channel=TopK(0.02),
        aggregator=Median(),
        attacks=[FreeRider((2,), "disguised")],
    ),
    "scaffold-window": on(
        "digits",
        Scaffold(lr=0.1, steps=3, batch_size=8),
        clock=FixedWindow(0.5, TAU8),
        rounds=8,
    ),
    "scaffold-buffered": on(
        "quadratics", Scaffold(lr=0.1, steps=3), clock=Buffered(2, TAU6), rounds=9
    ),
    "feddyn-asynchronous": on(
        "digits",
        FedDyn(alpha=0.2, lr=0.05, steps=3, batch_size=8),
        clock=Asynchronous(TAU8),
        rounds=10,
    ),
    "fedfor-buffered": on(
        "digits",
        FedFor(strength=0.3, lr=0.1, steps=3, batch_size=8),
        clock=Buffered(3, TAU8),
        rounds=6,
    ),
}

DATA = (
    {
        name: on(name, sampler=Uniform(4), rounds=3)
        for name in (
            "digits-own-tests",
            "digits-without",
            "shards",
            "one-class",
            "by-class",
            "imbalanced",
            "by-key",
            "flipped",
            "signed",
            "domains",
            "own-domain",
        )
    }
    | {
        name: on(name, sampler=sampler, rounds=3, metrics=())
        for name, sampler in (
            ("crowd-iid", Uniform(6)),
            ("crowd-dirichlet", MD(6)),
            ("crowd-one-class", Binomial(6)),
            ("crowd-imbalanced", ClusteredBySize(6)),
        )
    }
    | {
        "crowd-window": on(
            "crowd-dirichlet",
            sampler=Uniform(6),
            clock=FixedWindow(0.5, "F80"),
            weighting=SoftMax(0.5),
            rounds=6,
            metrics=(),
        ),
    }
)

KEEPING = {
    "keep-all": on("digits", sampler=Uniform(5), keep="all"),
    "keep-unlearnable": on(
        "quadratics", EXACT, sampler=Uniform(2), keep="unlearnable", rounds=9
    ),
    "keep-unlearnable-budget": on(
        "digits",
        sampler=Uniform(3),
        keep="unlearnable",
        rounds=8,
        unlearning=Budget(
            epsilon=20.0, delta=0.05, sigma=0.05, participation="optimistic"
        ),
    ),
    "keep-unlearnable-convex": on(
        "quadratics",
        EXACT,
        sampler=Uniform(2),
        keep="unlearnable",
        rounds=9,
        unlearning=Budget(sigma=0.2, strong_convexity=0.5),
    ),
    "keep-updates": on(
        "digits", sampler=Uniform(5), clock=Buffered(2, TAU8), keep_updates=True
    ),
    "start": on("quadratics", EXACT, start=np.array([1.0, -2.0, 0.5, 3.0])),
    "seed": on("digits", sampler=Uniform(5), seed=7),
    "drop": on("quadratics-steep", EXACT, bad_updates="drop"),
    "drop-asynchronous": on(
        "quadratics-steep",
        EXACT,
        bad_updates="drop",
        clock=FixedWindow(0.5, TAU6),
        weighting=SoftMax(1.0),
        rounds=9,
    ),
}

SHORT = {"min_rounds": 3, "max_rounds": 4}
CONVEX: dict[str, Any] = {"solver": EXACT, "rounds": 8}
SUMS: dict[str, Any] = {"solver": Sums(), "rounds": 1, "keep_updates": True}

FORGETTING = {
    "unlearn-sifu": on(
        "quadratics",
        **CONVEX,
        sampler=Uniform(2),
        keep="all",
        forget=[{"clients": [1], "sigma": 0.1, **SHORT}],
    ),
    "unlearn-sifu-thrice": on(
        "digits-logistic",
        SGD(lr=0.05, steps=2),
        rounds=8,
        sampler=Uniform(3),
        keep="all",
        forget=[
            {"clients": c, "sigma": 0.003, "heuristic": True, **SHORT}
            for c in ([1, 4], [7], [0])
        ],
    ),
    "unlearn-sifu-kept": on(
        "quadratics",
        **CONVEX,
        sampler=Uniform(2),
        keep="unlearnable",
        unlearning=Budget(sigma=0.3),
        forget=[
            {"clients": [2], "sigma": 0.3, **SHORT},
            {"clients": [0], "sigma": 0.3, **SHORT},
        ],
    ),
    "unlearn-sifu-convex": on(
        "quadratics",
        **CONVEX,
        keep="all",
        forget=[
            {
                "clients": [3],
                "sigma": 0.6,
                "strong_convexity": 0.5,
                "calibration": "classical",
                "epsilon": 0.9,
                "participation": "optimistic",
                "heuristic": True,
                "target": 0.0,
                **SHORT,
            }
        ],
    ),
    "unlearn-scratch": on(
        "digits-logistic",
        sampler=Uniform(5),
        forget=[{"clients": [2, 3], "method": "scratch", **SHORT}],
    ),
    "unlearn-fine-tune": on(
        "digits-logistic",
        sampler=Uniform(5),
        server=Momentum(lr=0.5),
        forget=[
            {
                "clients": [2, 3],
                "method": "fine-tune",
                "measure_forgotten": True,
                **SHORT,
            }
        ],
    ),
    "unlearn-last": on(
        "quadratics",
        **CONVEX,
        forget=[
            {"clients": [1], "method": "last", **SHORT},
            {"clients": [5], "method": "last", **SHORT},
        ],
    ),
    "unlearn-dp": on(
        "quadratics",
        **CONVEX,
        weighting=Clipped(0.4),
        server=Noisy(0.3),
        forget=[{"clients": [1], "method": "dp", "target": 0.0, **SHORT}],
    ),
    "unlearn-dp-sampled": on(
        "quadratics",
        **CONVEX,
        weighting=Clipped(0.4),
        server=Noisy(0.3, of=Add(0.5)),
        sampler=Poisson(3),
        forget=[{"clients": [0], "method": "dp", "target": 0.0, **SHORT}],
    ),
    "unlearn-fed-accum": on(
        "digits",
        sampler=Uniform(5),
        keep_updates=True,
        forget=[
            {
                "clients": [1],
                "method": "fed-accum",
                "target": 0.99,
                "held_out": True,
                **SHORT,
            }
        ],
    ),
    "unlearn-fed-accum-twice": on(
        "quadratics",
        **CONVEX,
        sampler=Uniform(3),
        server=Momentum(lr=0.5),
        keep_updates=True,
        forget=[
            {"clients": c, "method": "fed-accum", "target": 0.0, **SHORT}
            for c in ([1], [0, 4])
        ],
    ),
    "unlearn-exact": on(
        "ridge",
        **SUMS,
        forget=[{"clients": c, "method": "exact"} for c in ([1], [0, 4])],
    ),
    "unlearn-exact-numbers": on(
        "ridge-numbers", **SUMS, forget=[{"clients": [2], "method": "exact"}]
    ),
}

WHOLE: dict[str, Case] = {
    **SOLVERS,
    **SAMPLERS,
    **CLOCKS,
    **WEIGHTINGS,
    **SERVERS,
    **ATTACKS,
    **PATHS,
    **DATA,
    **KEEPING,
    **FORGETTING,
}

KILLED = (
    "sgd",
    "scaffold",
    "feddyn-quadratics",
    "perturbed",
    "clustered-by-distance-ahead",
    "power-of-choice",
    "fixed-window-exponential",
    "buffered",
    "replay",
    "soft-max-running",
    "time-based-estimated",
    "noisy-adam",
    "attack-asynchronous",
    "audit-quarantine",
    "rows-feddyn",
    "personal-window",
    "keep-unlearnable-budget",
    "keep-updates",
    "drop-asynchronous",
    "crowd-window",
)

WORKERS = (
    "sgd-everyone",
    "sgd-all-options",
    "scaffold",
    "perturbed",
    "md-independent",
    "clustered-by-distance-ahead",
    "buffered-exponential",
    "switch-nested",
    "noisy-adam",
    "several-attacks",
    "audit-quarantine",
    "rows-all-options",
    "rows-scaffold",
    "cnn-small",
    "cnn-norm",
    "lstm",
    "norm",
    "personal",
    "personal-window",
    "two-layers",
    "double",
    "own-module",
    "crowd-iid",
    "domains",
    "unlearn-fed-accum",
)


def _half(case: Case) -> int:
    """Half of the rounds; two where the budget is one of time."""
    return max(1, case.options.get("rounds", 4) // 2)


def _twins() -> Iterator[tuple[str, Case]]:
    """The same runs interrupted and taken up again, and with more workers."""
    for name, case in WHOLE.items():
        if not case.forget:
            yield (
                f"{name}+stopped",
                dataclasses.replace(case, like=name, how="stopped", after=_half(case)),
            )
    for k, name in enumerate(KILLED):
        how = "torn" if k % 2 else "killed"
        case, workers = WHOLE[name], 1 + k % 3 % 2
        yield (
            f"{name}+{how}",
            dataclasses.replace(
                case, like=name, how=how, after=_half(case), workers=workers
            ),
        )
    for name in WORKERS:
        case = WHOLE[name]
        yield (
            f"{name}+two-workers",
            dataclasses.replace(
                case, like=name, options={**case.options, "backend": TWO}
            ),
        )


CASES: dict[str, Case] = {**WHOLE, **dict(_twins())}


def parts_in(value: Any) -> Iterator[tuple[str, str]]:
    """The slot and name of every part in some options, however deep."""
    if is_part(value):
        yield value.slot, value.name
        for field in dataclasses.fields(value):
            yield from parts_in(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from parts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from parts_in(each)
