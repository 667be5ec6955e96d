"""The ranges of options: the last value inside is accepted, the first one outside is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from poise.aggregators import TrimmedMean
from poise.attacks import FreeRider, Mimic, Scaled, StaleReplay
from poise.channels import TopK
from poise.clocks import Buffered, FixedWindow, Synchronous
from poise.core.errors import InvalidOption
from poise.samplers import (
    MD,
    Binomial,
    Budgeted,
    ClusteredBySimilarity,
    ClusteredBySize,
    Optimal,
    Poisson,
    PowerOfChoice,
    Target,
    Uniform,
)
from poise.servers import Adagrad, Adam, Add, Momentum, Noisy, Yogi
from poise.solvers import SGD, FedDyn, FedFor, Perturbed, Prox
from poise.weightings import (
    Anneal,
    Clipped,
    Discount,
    Exp,
    Proportional,
    SoftMax,
    SoftMin,
    Switch,
)

TINY = 1e-12
WORK: dict[str, Any] = {"lr": 0.1, "steps": 1}

ABOVE_ZERO: dict[str, Callable[[float], Any]] = {
    "SGD.lr": lambda v: SGD(v, steps=1),
    "SGD.clip": lambda v: SGD(**WORK, clip=v),
    "FedDyn.alpha": lambda v: FedDyn(v, **WORK),
    "Add.lr": lambda v: Add(lr=v),
    "Momentum.lr": lambda v: Momentum(lr=v),
    "Adam.lr": lambda v: Adam(lr=v),
    "Yogi.tau": lambda v: Yogi(tau=v),
    "Adagrad.tau": lambda v: Adagrad(tau=v),
    "Clipped.norm": lambda v: Clipped(norm=v),
    "Discount.a": lambda v: Discount(Proportional(), a=v),
    "Exp.alpha": lambda v: Exp(v),
    "SoftMax.temperature": lambda v: SoftMax(v),
    "SoftMin.temperature": lambda v: SoftMin(v),
    "FixedWindow.dt": lambda v: FixedWindow(v),
    "Synchronous.deadline": lambda v: Synchronous(deadline=v),
}

ZERO_OR_MORE: dict[str, Callable[[float], Any]] = {
    "SGD.weight_decay": lambda v: SGD(**WORK, weight_decay=v),
    "Prox.mu": lambda v: Prox(v, **WORK),
    "Perturbed.mu": lambda v: Perturbed(0.5, mu=v, **WORK),
    "FedFor.strength": lambda v: FedFor(v, **WORK),
    "Budgeted.limit": lambda v: Budgeted(limit=v),
    "Noisy.sigma": lambda v: Noisy(v),
    "Discount.b": lambda v: Discount(Proportional(), b=v),
    "FreeRider.sigma": lambda v: FreeRider((0,), sigma=v),
    "FreeRider.gamma": lambda v: FreeRider((0,), gamma=v),
    "FreeRider.scale": lambda v: FreeRider((0,), scale=v),
    "Mimic.noise": lambda v: Mimic((0,), noise=v),
    "Scaled.fraction": lambda v: Scaled((0,), fraction=v),
}

AT_LEAST_ONE: dict[str, Callable[[int], Any]] = {
    "SGD.steps": lambda v: SGD(0.1, steps=v),
    "SGD.epochs": lambda v: SGD(0.1, epochs=v),
    "SGD.batch_size": lambda v: SGD(**WORK, batch_size=v),
    "Binomial.m": lambda v: Binomial(v),
    "ClusteredBySimilarity.m": lambda v: ClusteredBySimilarity(v),
    "ClusteredBySize.m": lambda v: ClusteredBySize(v),
    "MD.m": lambda v: MD(v),
    "Optimal.m": lambda v: Optimal(v),
    "Poisson.m": lambda v: Poisson(v),
    "PowerOfChoice.m": lambda v: PowerOfChoice(v, d=1),
    "Target.m": lambda v: Target(v, groups=(0, 1)),
    "Uniform.m": lambda v: Uniform(v),
    "Buffered.c": lambda v: Buffered(v),
    "Synchronous.enough": lambda v: Synchronous(enough=v),
    "Anneal.over": lambda v: Anneal(Proportional(), Proportional(), over=v),
}

UP_TO_ONE: dict[str, Callable[[float], Any]] = {
    "SGD.decay": lambda v: SGD(**WORK, decay=v),
    "Perturbed.beta": lambda v: Perturbed(v, **WORK),
    "TopK.share": lambda v: TopK(v),
}

BELOW_ONE: dict[str, Callable[[float], Any]] = {
    "SGD.momentum": lambda v: SGD(**WORK, momentum=v),
    "Momentum.beta": lambda v: Momentum(beta=v),
    "Adam.beta1": lambda v: Adam(beta1=v),
    "Adam.beta2": lambda v: Adam(beta2=v),
}


def refuse(make: Callable[[Any], Any], *values: float) -> None:
    for value in values:
        with pytest.raises(InvalidOption):
            make(value)


@pytest.mark.parametrize("make", ABOVE_ZERO.values(), ids=ABOVE_ZERO)
def test_options_above_zero(make: Callable[[float], Any]) -> None:
    make(TINY)
    refuse(make, 0.0, -TINY)


@pytest.mark.parametrize("make", ZERO_OR_MORE.values(), ids=ZERO_OR_MORE)
def test_options_of_zero_or_more(make: Callable[[float], Any]) -> None:
    make(0.0)
    refuse(make, -TINY)


@pytest.mark.parametrize("make", AT_LEAST_ONE.values(), ids=AT_LEAST_ONE)
def test_options_of_at_least_one(make: Callable[[int], Any]) -> None:
    make(1)
    refuse(make, 0)


@pytest.mark.parametrize("make", UP_TO_ONE.values(), ids=UP_TO_ONE)
def test_options_above_zero_up_to_one(make: Callable[[float], Any]) -> None:
    make(TINY)
    make(1.0)
    refuse(make, 0.0, 1.0 + TINY)


@pytest.mark.parametrize("make", BELOW_ONE.values(), ids=BELOW_ONE)
def test_options_from_zero_and_below_one(make: Callable[[float], Any]) -> None:
    make(0.0)
    make(1.0 - TINY)
    refuse(make, -TINY, 1.0)


@pytest.mark.parametrize(
    "name",
    [
        *("SGD.lr", "FedDyn.alpha", "Add.lr", "Momentum.lr", "Adam.lr", "Yogi.tau"),
        *("Discount.a", "Exp.alpha", "SoftMax.temperature", "FixedWindow.dt"),
        *("Synchronous.deadline", "SGD.weight_decay", "Prox.mu", "Perturbed.mu"),
        *("FedFor.strength", "Noisy.sigma", "Discount.b"),
    ],
)
def test_options_that_must_be_finite(name: str) -> None:
    refuse((ABOVE_ZERO | ZERO_OR_MORE)[name], inf)


def test_trimming_leaves_something_over() -> None:
    TrimmedMean(0.0)
    TrimmedMean(0.5 - TINY)
    refuse(TrimmedMean, -TINY, 0.5)


def test_as_many_candidates_as_chosen_clients_are_enough() -> None:
    PowerOfChoice(3, d=3)
    refuse(lambda d: PowerOfChoice(3, d=d), 2)


def test_groups_are_whole_numbers() -> None:
    Target(1, groups=(0, 3))
    refuse(lambda group: Target(1, groups=(0, group)), 0.5, 1.0, True)


def test_a_stage_lasts_until_a_round_or_an_accuracy() -> None:
    for until in (1, 0.5, 100):
        Switch([(until, Proportional()), (None, SoftMax(1.0))])
    refuse(
        lambda u: Switch([(u, Proportional()), (None, SoftMax(1.0))]), 0, 0.0, 1.5, -1
    )


@pytest.mark.parametrize(
    ("part", "documented"),
    [
        (FreeRider((0,)), {"gamma": 1.0, "scale": 1.0, "loss": 1.0}),
        (Mimic((0,)), {"noise": 0.5, "scale": 1.0, "loss": 1.0}),
        (Scaled((0,)), {"fraction": 0.1}),
        (StaleReplay((0,)), {"scale": 1.0, "loss": 1.0}),
        (Momentum(), {"lr": 1.0, "beta": 0.9, "nesterov": False}),
        (Noisy(1.0), {"seed": 0}),
        (TopK(0.5), {"error_feedback": True}),
        (Discount(Proportional()), {"a": 0.5, "b": 4.0}),
        (SGD(**WORK), {"momentum": 0.0, "weight_decay": 0.0, "decay": 1.0}),
        (MD(1), {"independent_draws": False}),
        (ClusteredBySimilarity(1), {"independent_draws": False, "ahead": False}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_defaults_are_part_of_the_interface(
    part: Any, documented: dict[str, Any]
) -> None:
    assert {name: getattr(part, name) for name in documented} == documented
