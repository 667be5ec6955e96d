"""Every registered part passes the suite of its slot. A part without an example here fails by
name."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn

import poise
from poise import testing
from poise.core.parts import SLOTS, parts_of

N = 8  # clients of the suites' setting
TAU = tuple(1.0 + 0.25 * k for k in range(N))

# class name -> function that makes examples; looked up only for parts that are registered
EXAMPLES: dict[str, dict[str, Callable[[], list[Any]]]] = {
    "solver": {
        "SGD": lambda: [
            poise.solvers.SGD(lr=0.1, steps=3),
            poise.solvers.SGD(lr=0.1, epochs=2, batch_size=3),
            poise.solvers.SGD(lr=0.05, steps=4, batch_size=2, momentum=0.9),
            poise.solvers.SGD(lr=0.1, steps=2, weight_decay=0.3, clip=0.5, decay=0.99),
        ],
        "Prox": lambda: [
            poise.solvers.Prox(mu=0.5, lr=0.1, steps=3, batch_size=2),
            poise.solvers.Prox(mu=0.0, lr=0.1, epochs=1),
            poise.solvers.Prox(mu=0.1, lr=0.01, steps=3, optimizer="adam"),
        ],
        "FedFor": lambda: [
            poise.solvers.FedFor(strength=0.1, lr=0.1, steps=3, batch_size=2)
        ],
        "Perturbed": lambda: [
            poise.solvers.Perturbed(beta=0.7, lr=0.1, steps=3, batch_size=2)
        ],
        "Scaffold": lambda: [poise.solvers.Scaffold(lr=0.1, steps=3, batch_size=2)],
        "FedDyn": lambda: [
            poise.solvers.FedDyn(alpha=0.1, lr=0.1, steps=3, batch_size=2)
        ],
        "Sums": lambda: [poise.solvers.Sums()],
        "Adam": lambda: [
            poise.solvers.Adam(lr=0.01, steps=3),
            poise.solvers.Adam(lr=0.01, epochs=2, batch_size=3, weight_decay=0.3),
            poise.solvers.Adam(
                lr=0.01, steps=2, batch_size=2, accumulate=2, keep_state=True
            ),
        ],
        "AdamW": lambda: [
            poise.solvers.AdamW(lr=0.01, steps=3, schedule={"name": "step", "every": 9})
        ],
        "RMSprop": lambda: [
            poise.solvers.RMSprop(lr=0.01, steps=3),
            poise.solvers.RMSprop(lr=0.001, steps=3, momentum=0.5, centered=True),
        ],
        "Adagrad": lambda: [poise.solvers.Adagrad(lr=0.1, epochs=2, batch_size=3)],
    },
    "optimizer": {
        "Adam": lambda: [poise.solvers.optimizers.Adam(beta1=0.8)],
        "Adagrad": lambda: [poise.solvers.optimizers.Adagrad(eps=1e-6)],
        "Momentum": lambda: [poise.solvers.optimizers.Momentum(0.8, nesterov=True)],
        "RMSprop": lambda: [poise.solvers.optimizers.RMSprop(centered=True)],
    },
    "schedule": {
        "Constant": lambda: [poise.solvers.schedules.Constant()],
        "Cosine": lambda: [poise.solvers.schedules.Cosine(9, end=0.1)],
        "Linear": lambda: [poise.solvers.schedules.Linear(9, start=0.5)],
        "Step": lambda: [poise.solvers.schedules.Step(3)],
        "WarmUp": lambda: [
            poise.solvers.schedules.WarmUp(3, poise.solvers.schedules.Step(3))
        ],
        "Function": lambda: [],  # a file cannot hold a function
    },
    "sampler": {
        "Full": lambda: [poise.samplers.Full()],
        "Uniform": lambda: [
            *(poise.samplers.Uniform(m=m) for m in (1, 3, N)),
            poise.samplers.Uniform(m=3, absent="keep"),
        ],
        "Covering": lambda: [poise.samplers.Covering(m=m) for m in (1, 3, N)],
        "MD": lambda: [
            *(poise.samplers.MD(m=m) for m in (1, 4)),
            poise.samplers.MD(m=4, independent_draws=True),
        ],
        "Binomial": lambda: [poise.samplers.Binomial(m=3)],
        "Budgeted": lambda: [
            poise.samplers.Budgeted(limit=1.0),
            poise.samplers.Budgeted(poise.samplers.Poisson(m=3), limit=0.5),
            poise.samplers.Budgeted(
                poise.samplers.MD(m=4, independent_draws=True), limit=0.5
            ),
        ],
        "Poisson": lambda: [poise.samplers.Poisson(m=3)],
        "Optimal": lambda: [poise.samplers.Optimal(m=3)],
        "PowerOfChoice": lambda: [poise.samplers.PowerOfChoice(m=2, d=5)],
        "ClusteredBySize": lambda: [
            poise.samplers.ClusteredBySize(m=m) for m in (2, 4)
        ],
        "ClusteredBySimilarity": lambda: [
            poise.samplers.ClusteredBySimilarity(m=3),
            poise.samplers.ClusteredBySimilarity(m=5, measure="L2", ahead=True),
        ],
        "Target": lambda: [poise.samplers.Target(m=2, groups=(0, 0, 0, 0, 1, 1, 1, 1))],
    },
    "clock": {
        "Synchronous": lambda: [
            poise.clocks.Synchronous(d) for d in (None, "F80", TAU)
        ],
        "Asynchronous": lambda: [poise.clocks.Asynchronous(d) for d in ("F80", TAU)],
        "FixedWindow": lambda: [
            *(poise.clocks.FixedWindow(dt=0.7, durations=d) for d in ("F80", TAU)),
            poise.clocks.FixedWindow(dt=0.7, durations=TAU, stagger=True),
            poise.clocks.FixedWindow(dt=[0.3, 0.7, 0.2], durations=TAU),
            poise.clocks.FixedWindow(dt=0.4, durations=TAU, growth=1.1, longest=1.0),
        ],
        "Buffered": lambda: [
            poise.clocks.Buffered(c=3, durations=d) for d in ("F80", TAU)
        ],
        "Replay": lambda: [],  # needs a file: tests/unit/test_schedules.py
    },
    "weighting": {
        "Proportional": lambda: [poise.weightings.Proportional()],
        "Max": lambda: [poise.weightings.Max(k=2)],
        "Min": lambda: [poise.weightings.Min(k=2)],
        "SoftMax": lambda: [poise.weightings.SoftMax(temperature=1.0)],
        "SoftMin": lambda: [poise.weightings.SoftMin(temperature=1.0)],
        "Exp": lambda: [
            poise.weightings.Exp(alpha=0.2),
            poise.weightings.Exp(alpha=0.2, scale="none"),
        ],
        "Switch": lambda: [
            poise.weightings.Switch(
                [
                    (1, poise.weightings.SoftMin(0.2)),
                    (None, poise.weightings.Proportional()),
                ]
            ),
            poise.weightings.Switch(
                [
                    (0.5, poise.weightings.Exp(0.2)),
                    (float("inf"), poise.weightings.Max()),
                ]
            ),
        ],
        "Anneal": lambda: [
            poise.weightings.Anneal(
                poise.weightings.SoftMax(0.5), poise.weightings.Proportional(), 4
            )
        ],
        "Adjacency": lambda: [poise.weightings.Adjacency()],
        "Clipped": lambda: [
            poise.weightings.Clipped(norm=0.3),
            poise.weightings.Clipped(norm=0.1, of=poise.weightings.SoftMax(1.0)),
        ],
        "PerStep": lambda: [
            poise.weightings.PerStep(),
            poise.weightings.PerStep(poise.weightings.SoftMax(1.0), path=0.5),
        ],
        "Identical": lambda: [poise.weightings.Identical()],
        "TimeBased": lambda: [
            poise.weightings.TimeBased(),
            poise.weightings.TimeBased(times="estimated"),
            poise.weightings.TimeBased(times="elapsed"),
        ],
        "Discount": lambda: [
            poise.weightings.Discount(poise.weightings.SoftMax(1.0)),
            poise.weightings.Discount(
                poise.weightings.Proportional(), kind="hinge", b=1
            ),
        ],
    },
    "aggregator": {
        "LatestContribution": lambda: [poise.aggregators.LatestContribution()],
        "Median": lambda: [poise.aggregators.Median()],
        "TrimmedMean": lambda: [
            poise.aggregators.TrimmedMean(s) for s in (0.0, 0.1, 0.25, 0.499)
        ],
        "WeightedSum": lambda: [poise.aggregators.WeightedSum()],
    },
    "channel": {
        "Plain": lambda: [poise.channels.Plain()],
        "TopK": lambda: [
            *(poise.channels.TopK(share) for share in (0.01, 0.3, 0.8, 1.0)),
            poise.channels.TopK(0.2, error_feedback=False),
        ],
    },
    "server": {
        "Add": lambda: [poise.servers.Add(), poise.servers.Add(lr=0.3)],
        "Momentum": lambda: [
            poise.servers.Momentum(lr=0.5, beta=0.9),
            poise.servers.Momentum(lr=0.5, beta=0.9, nesterov=True),
        ],
        "Noisy": lambda: [
            poise.servers.Noisy(sigma=1e-4),
            poise.servers.Noisy(sigma=1e-4, of=poise.servers.Momentum(lr=0.5), seed=3),
        ],
        "Adam": lambda: [poise.servers.Adam(lr=0.01)],
        "Yogi": lambda: [poise.servers.Yogi(lr=0.01)],
        "Adagrad": lambda: [poise.servers.Adagrad(lr=0.1)],
    },
    "personal": {
        "BatchNorm": lambda: [poise.personal.BatchNorm()],
        "Layers": lambda: [
            poise.personal.Layers("head"),
            poise.personal.Layers("*.bias", "norm.running_*"),
        ],
    },
    "attack": {
        "FreeRider": lambda: [
            *(
                poise.attacks.FreeRider(clients=(1, 4), kind=kind)
                for kind in ("plain", "disguised")
            ),
            poise.attacks.FreeRider(
                clients=(0,),
                kind="disguised",
                sigma="estimate-mean",
                gamma=0.5,
                scale=3.0,
            ),
            poise.attacks.FreeRider(
                clients=(2,), kind="disguised", sigma=0.1, gamma=0.0
            ),
        ],
        "StaleReplay": lambda: [poise.attacks.StaleReplay(clients=(1, 4))],
        "Mimic": lambda: [
            poise.attacks.Mimic(clients=(1, 4)),
            poise.attacks.Mimic(clients=(3,), noise=2.0),
        ],
        "Scaled": lambda: [poise.attacks.Scaled(clients=(0, 4), fraction=0.2)],
    },
    "backend": {
        "Local": lambda: [poise.backends.Local(workers=w) for w in (1, 2)],
        "Flower": lambda: [],  # needs nodes: tests/backends/test_flower_nodes.py
        "Ray": lambda: [poise.backends.Ray(workers=2)],
    },
    "durations": {
        "Exponential": lambda: [poise.clocks.Exponential(d) for d in ("F80", TAU)],
        "Trace": lambda: [poise.clocks.Trace([(i, 0.5 * i, 1.0) for i in range(N)])],
    },
}

MODULES = (
    "aggregators",
    "attacks",
    "backends",
    "channels",
    "clocks",
    "personal",
    "samplers",
    "servers",
    "solvers",
    "weightings",
)
DRAWS_WITHOUT_REPLACEMENT = {"Uniform", "Binomial", "Optimal"}
NOT_SYMMETRIC = {
    "ClusteredBySimilarity",
    "Target",
    "PowerOfChoice",
}  # groups and ties by index; estimated


def registered(*slots: str) -> list[Any]:
    """One case per registered part of these slots."""
    for module in MODULES:
        importlib.import_module(f"poise.{module}")
    return [
        pytest.param(cls, id=f"{slot}-{name}")
        for slot in slots or SLOTS
        for name, cls in parts_of(slot).items()
        if cls.__module__.startswith("poise.")
    ]


def examples(cls: Any) -> list[Any]:
    """The examples of a part, or a failure that says where to add one."""
    make = EXAMPLES[cls.slot].get(cls.__name__)
    if make is None:
        pytest.fail(
            f"{cls.slot} {cls.__name__} has no example: add one to EXAMPLES in {__name__}"
        )
    return make()


@pytest.mark.parametrize("cls", registered())
def test_part_contract(cls: Any) -> None:
    for part in examples(cls):
        testing.check_part(part)


@pytest.mark.parametrize("cls", registered("sampler"))
def test_sampler_contract(cls: Any) -> None:
    for sampler in examples(cls):
        testing.check_sampler(
            sampler,
            replacement=cls.__name__ not in DRAWS_WITHOUT_REPLACEMENT,
            symmetric=cls.__name__ not in NOT_SYMMETRIC,
        )


@pytest.mark.parametrize("cls", registered("clock"))
def test_clock_contract(cls: Any) -> None:
    for clock in examples(cls):
        testing.check_clock(clock)


@pytest.mark.parametrize("cls", registered("weighting"))
def test_weighting_contract(cls: Any) -> None:
    for weighting in examples(cls):
        testing.check_weighting(weighting)


@pytest.mark.parametrize("cls", registered("aggregator"))
def test_aggregator_contract(cls: Any) -> None:
    for aggregator in examples(cls):
        testing.check_aggregator(aggregator)


@pytest.mark.parametrize("cls", registered("channel"))
def test_channel_contract(cls: Any) -> None:
    for channel in examples(cls):
        testing.check_channel(channel)


@pytest.mark.parametrize("cls", registered("server"))
def test_server_contract(cls: Any) -> None:
    for server in examples(cls):
        testing.check_server(server, rests=cls.__name__ != "Noisy")


@pytest.mark.parametrize("cls", registered("personal"))
def test_personal_contract(cls: Any) -> None:
    layers = {
        "body": nn.Linear(4, 3),
        "norm": nn.BatchNorm1d(3),
        "head": nn.Linear(3, 2),
    }
    for personal in examples(cls):
        testing.check_personal(personal, nn.Sequential(OrderedDict(layers)))


@pytest.mark.parametrize("cls", registered("solver"))
def test_solver_contract(cls: Any) -> None:
    for solver in examples(cls):
        testing.check_solver(solver)


@pytest.mark.parametrize("cls", registered("attack"))
def test_attack_contract(cls: Any) -> None:
    for attack in examples(cls):
        testing.check_attack(attack)


@pytest.mark.parametrize("cls", registered("backend"))
def test_backend_contract(cls: Any) -> None:
    if cls.__name__ == "Ray":
        pytest.skip("needs a cluster: tests/backends/test_ray.py starts one")
    for backend in examples(cls):
        testing.check_backend(backend)


@pytest.mark.parametrize("cls", registered("durations"))
def test_durations_contract(cls: Any) -> None:
    for durations in examples(cls):
        testing.check_durations(durations.bind(N), N)


def test_fixed_durations_keep_the_durations_contract() -> None:
    from poise.core.durations import FixedDurations, as_durations

    testing.check_durations(FixedDurations(), N)
    testing.check_durations(as_durations(np.array(TAU), N), N)
