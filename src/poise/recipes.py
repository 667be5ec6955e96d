"""Methods by name: each recipe returns the parts of one method.

``poise.train(fed, task, **poise.recipes.fedavg(lr=0.1, epochs=1, m=10), rounds=100)``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poise.aggregators import LatestContribution
from poise.clocks import Asynchronous, Buffered, FixedWindow, Synchronous
from poise.core.durations import Durations
from poise.core.protocols import Weighting
from poise.samplers import Binomial, Full, Uniform
from poise.servers import Adam, Add, Momentum, Noisy
from poise.solvers import SGD, Prox, Scaffold
from poise.weightings import (
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


def fedavg(
    m: int | None = None, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """FedAvg [McMahan 2017]: local SGD, all clients or m random ones, weights p.

    Args:
        m: clients per round; None for all.
        server_lr: learning rate of the server.
        solver: options of `poise.solvers.SGD`.

    >>> sorted(fedavg(lr=0.1, epochs=1))
    ['clock', 'sampler', 'server', 'solver', 'weighting']
    """
    return {
        "solver": SGD(**solver),
        "sampler": Full() if m is None else Uniform(m),
        "clock": Synchronous(),
        "weighting": Proportional(),
        "server": Add(server_lr),
    }


def fedsgd(lr: float, m: int | None = None) -> dict[str, Any]:
    """FedSGD: FedAvg with one full-batch step per round (gradient descent).

    >>> fedsgd(lr=0.5)["solver"].steps
    1
    """
    return fedavg(m=m, lr=lr, steps=1)


def _with_weighting(
    weighting: Weighting, fedavg_options: dict[str, Any]
) -> dict[str, Any]:
    """Return FedAvg with another weighting."""
    return {**fedavg(**fedavg_options), "weighting": weighting}


def fedmax(k: int | float = 1, **options: Any) -> dict[str, Any]:
    """FedMax(k), FedWorse(k): only the k clients with the largest losses count.

    Source: [Mansour 2022], [Mansour 2023].
    """
    return _with_weighting(Max(k), options)


def fedsoftmax(temperature: float = 0.2, **options: Any) -> dict[str, Any]:
    """FedSoftMax, FedSoftWorse: clients with larger losses count more.

    Source: [Mansour 2022], [Mansour 2023].
    """
    return _with_weighting(SoftMax(temperature), options)


def fedbetter(k: int | float = 1, **options: Any) -> dict[str, Any]:
    """FedBetter(k): only the k clients of smallest losses count [Mansour 2022]."""
    return _with_weighting(Min(k), options)


def fedsoftbetter(temperature: float = 0.2, **options: Any) -> dict[str, Any]:
    """FedSoftBetter: clients with smaller losses count more [Mansour 2022]."""
    return _with_weighting(SoftMin(temperature), options)


def exp_alpha(alpha: float = 0.2, **options: Any) -> dict[str, Any]:
    """Exp-alpha: clients that improve much on their data count less [Exp-α 2023]."""
    return _with_weighting(Exp(alpha), options)


def fedsoftbetter_avg(
    temperature: float = 0.2, until: int | float = 20, **options: Any
) -> dict[str, Any]:
    """FedSoftBetterAvg: soft-min until round 20, then FedAvg [Mansour 2022, §4.7]."""
    return _with_weighting(
        Switch([(until, SoftMin(temperature)), (None, Proportional())]), options
    )


def fedsoftworse_avg(
    temperature: float = 0.2, until: int | float = 20, **options: Any
) -> dict[str, Any]:
    """FedSoftWorseAvg: soft-max until round 20, then FedAvg [Mansour 2022, §4.7]."""
    return _with_weighting(
        Switch([(until, SoftMax(temperature)), (None, Proportional())]), options
    )


def fedavg_softworse(
    temperature: float = 0.2, until: int | float = 20, **options: Any
) -> dict[str, Any]:
    """FedAvgSoftWorse: FedAvg until round 20, then soft-max [Mansour 2022, §4.7]."""
    return _with_weighting(
        Switch([(until, Proportional()), (None, SoftMax(temperature))]), options
    )


def fedavg_softbetter(
    temperature: float = 0.2, until: int | float = 20, **options: Any
) -> dict[str, Any]:
    """FedAvgSoftBetter: FedAvg until round 20, then soft-min [Mansour 2022, App. B.3]."""
    return _with_weighting(
        Switch([(until, Proportional()), (None, SoftMin(temperature))]), options
    )


def fedsoftbetter_avg_softworse(
    temperature: float = 0.2,
    until: int | float = 20,
    then: int | float = 40,
    **options: Any,
) -> dict[str, Any]:
    """FedSoftBetterAvgSoftWorse: soft-min, FedAvg from round 20, soft-max from round 40.

    Source: [Mansour 2022, §4.7], which prints no rounds for the IID task.
    """
    stages = [
        (until, SoftMin(temperature)),
        (then, Proportional()),
        (None, SoftMax(temperature)),
    ]
    return _with_weighting(Switch(stages), options)


def fedsoftbetter_avg_annealed(
    temperature: float = 0.2, over: int = 20, **options: Any
) -> dict[str, Any]:
    """From soft-min to FedAvg, a little more in every round [Mansour 2022, §3.2]."""
    return _with_weighting(
        Anneal(SoftMin(temperature), Proportional(), over=over), options
    )


def fedsoftworse_avg_annealed(
    temperature: float = 0.2, over: int = 20, **options: Any
) -> dict[str, Any]:
    """From soft-max to FedAvg, a little more in every round [Mansour 2022, §3.2]."""
    return _with_weighting(
        Anneal(SoftMax(temperature), Proportional(), over=over), options
    )


def fednova(**options: Any) -> dict[str, Any]:
    """FedNova: clients that make more local steps count no more [Wang 2020]."""
    return _with_weighting(PerStep(), options)


def mifa(**options: Any) -> dict[str, Any]:
    """MIFA: every round adds up the latest update of every client [Gu 2021]."""
    return {**fedavg(**options), "aggregator": LatestContribution()}


def fedprox(
    mu: float, m: int | None = None, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """FedProx [Li 2020]: FedAvg with a pull to the model that the client received."""
    return {**fedavg(m, server_lr, **solver), "solver": Prox(mu, **solver)}


def scaffold(
    m: int | None = None, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """SCAFFOLD [Karimireddy 2020]: control variates against client drift."""
    return {**fedavg(m, server_lr, **solver), "solver": Scaffold(**solver)}


def dp_fedavg(
    clip: float,
    sigma: float,
    m: int | None = None,
    server_lr: float = 1.0,
    **solver: Any,
) -> dict[str, Any]:
    """DP-FedAvg [McMahan 2018]: clipped updates, noise on their sum.

    All clients, or m on average, each drawn independently.

    >>> dp_fedavg(clip=0.5, sigma=0.05, m=10, lr=0.1, steps=1)["weighting"]
    Clipped(norm=0.5, of=Proportional())
    """
    return {
        **fedavg(**solver),
        "sampler": Full() if m is None else Binomial(m),
        "weighting": Clipped(clip),
        "server": Noisy(sigma, of=Add(server_lr)),
    }


def fedavgm(
    server_lr: float = 1.0, beta: float = 0.9, m: int | None = None, **solver: Any
) -> dict[str, Any]:
    """FedAvgM [Hsu 2019]: FedAvg with server momentum."""
    return {**fedavg(m, **solver), "server": Momentum(server_lr, beta)}


def fedadam(
    server_lr: float = 0.01, m: int | None = None, **solver: Any
) -> dict[str, Any]:
    """FedAdam [Reddi 2021]: FedAvg with an adaptive server."""
    return {**fedavg(m, **solver), "server": Adam(server_lr)}


def fedasync(
    durations: Durations = None, a: float = 0.5, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """FedAsync [Xie 2019]: aggregate each answer, discounted by (1 + staleness)^-a."""
    return {
        **fedavg(None, server_lr, **solver),
        "clock": Asynchronous(durations),
        "weighting": Discount(Identical(), a=a),
    }


def async_fedavg(
    durations: Durations = None, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """Asynchronous FedAvg whose weights keep the objective [Fraboni 2023, §4.4.3]."""
    return {
        **fedavg(None, server_lr, **solver),
        "clock": Asynchronous(durations),
        "weighting": TimeBased(),
    }


def fedfix(
    dt: float, durations: Durations = None, server_lr: float = 1.0, **solver: Any
) -> dict[str, Any]:
    """FedFix: aggregate the answers of each window dt; weights keep the objective.

    Source: [Fraboni 2023, §4.4.4].
    """
    return {
        **fedavg(None, server_lr, **solver),
        "clock": FixedWindow(dt, durations),
        "weighting": TimeBased(),
    }


def fedbuff(
    c: int,
    durations: Durations = None,
    m: int | None = None,
    server_lr: float = 1.0,
    **solver: Any,
) -> dict[str, Any]:
    """FedBuff [Nguyen 2021]: aggregate c answers with weight 1/c; all or m clients."""
    return {
        **fedavg(m, server_lr, **solver),
        "clock": Buffered(c, durations),
        "weighting": Identical(),
    }


RECIPES: dict[str, Callable[..., dict[str, Any]]] = {
    "async-fedavg": async_fedavg,
    "dp-fedavg": dp_fedavg,
    "exp-alpha": exp_alpha,
    "fedadam": fedadam,
    "fedasync": fedasync,
    "fedavg": fedavg,
    "fedavg-softbetter": fedavg_softbetter,
    "fedavg-softworse": fedavg_softworse,
    "fedavgm": fedavgm,
    "fedbetter": fedbetter,
    "fedbuff": fedbuff,
    "fedfix": fedfix,
    "fedmax": fedmax,
    "fednova": fednova,
    "fedprox": fedprox,
    "fedsgd": fedsgd,
    "fedsoftbetter": fedsoftbetter,
    "fedsoftbetter-avg": fedsoftbetter_avg,
    "fedsoftbetter-avg-annealed": fedsoftbetter_avg_annealed,
    "fedsoftbetter-avg-softworse": fedsoftbetter_avg_softworse,
    "fedsoftmax": fedsoftmax,
    "fedsoftworse": fedsoftmax,
    "fedsoftworse-avg": fedsoftworse_avg,
    "fedsoftworse-avg-annealed": fedsoftworse_avg_annealed,
    "fedworse": fedmax,
    "mifa": mifa,
    "scaffold": scaffold,
}
