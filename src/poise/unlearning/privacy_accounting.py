"""What a training with clipping and noise reveals of a client: (epsilon, delta), from the ledger.

Every round publishes ``D + N(0, sigma^2 I)``, and the next model follows from it. A client adds at
most ``W C`` to D, with W the weight it was given and C the norm that updates are clipped to; so a
round is a Gaussian mechanism whose means are ``W C / sigma`` standard deviations apart, and rounds
compose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log10, sqrt
from typing import Any

import numpy as np

from poise.config.experiment import parse
from poise.core.capabilities import Coins, HasCoins
from poise.core.errors import IncompatibleParts, LedgerError, PoiseError, require
from poise.core.protocols import Sampler
from poise.core.traits import (
    AggregatorTraits,
    SamplerTraits,
    ServerTraits,
    WeightingTraits,
    traits_of,
)
from poise.core.types import Floats
from poise.engine.plan import Parts
from poise.ledger.run import Run
from poise.privacy.gaussian import epsilon_at
from poise.training import parts_in
from poise.unlearning.histories import Histories
from poise.unlearning.restart_tree import Node

EXACT = "exact composition of Gaussian mechanisms (Balle & Wang 2018)"
SUBSAMPLED = (
    "dp-accounting: privacy loss distributions of the Poisson-subsampled Gaussian "
    "mechanism, an upper bound"
)
COMPARED = (
    "the training in which the client had sent no change: chances and weights of the "
    "others as they were"
)


@dataclass(frozen=True)
class Release:
    """``count`` rounds to each of which a client, if drawn, adds at most ``ratio`` standard
    deviations of the noise.
    """

    ratio: float
    count: int = 1
    chance: float = 1.0


@dataclass(frozen=True)
class Mechanism:
    """Clip to ``clip``, add noise ``sigma``, with these draws."""

    clip: float
    sigma: float
    sampler: Sampler

    @property
    def amplified(self) -> bool:
        """Whether it counts that nobody knows who was drawn."""
        drawn = traits_of(self.sampler, SamplerTraits)
        return drawn.independent and not drawn.data_dependent and isinstance(self.sampler, HasCoins)

    def coins(self, importance: Floats) -> Coins:
        """The coins by which clients are drawn, where draws are independent."""
        assert isinstance(self.sampler, HasCoins)
        return self.sampler.coins(importance)

    @property
    def sampling(self) -> str:
        """How participation is counted, in words."""
        name = type(self.sampler).__name__
        if self.amplified:
            return f"{name}: amplification by independent draws, which are not published"
        if traits_of(self.sampler, SamplerTraits).selects_everyone:
            return f"{name}: everyone in every round"
        return (
            f"{name}: no amplification claimed; the rounds in which the client really took "
            "part, taken as known"
        )


def mechanism(parts: Parts) -> Mechanism:
    """The mechanism in a composition's parts; raises where there is none."""
    weighting, server = parts.weighting, parts.server
    weights, noise = traits_of(weighting, WeightingTraits), traits_of(server, ServerTraits).noise
    if weights.shortens_to is None or weights.shortens_to == np.inf or noise == 0:
        raise IncompatibleParts(
            (
                f"dp: the run was not trained with clipping and noise, but with {weighting!r} and "
                f"{server!r}"
            ),
            (
                "train with weighting=poise.weightings.Clipped(norm), "
                "server=poise.servers.Noisy(sigma)"
            ),
        )
    if not weights.proportional:
        raise IncompatibleParts(
            (
                f"dp: the coefficients of {weighting!r} depend on what clients send, and carry no "
                "noise"
            ),
            "clip proportional weights: Clipped(norm)",
        )
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        raise IncompatibleParts(
            (
                "dp: clipping bounds what a client adds to a weighted sum, not to "
                f"{parts.aggregator!r}"
            ),
            "leave the aggregator out",
        )
    return Mechanism(float(weights.shortens_to), float(noise), parts.sampler)


def releases(run: Run, client: int, rounds: int | None = None) -> list[Release]:
    """What the first ``rounds`` rounds of a run (None: all) released of a client, numbered as in
    that run.

    Where clients are drawn by coins of their own, every round counts with the client's chance; else
    those in which it took part, with the weight it had. Raises where the ledger shows an update
    that was not clipped.
    """
    made = mechanism(parts_in(parse(run.experiment)))
    last = run.rounds if rounds is None else rounds
    c = run.contributions[run.contributions["round"] < last]
    beyond = c["coefficient"] * c["norm"] > c["base"] * made.clip * (1 + 1e-6)
    if beyond.any():
        n, who = c["round"][beyond][0], c["client"][beyond][0]
        raise LedgerError(f"round {n}: the update of client {who} was not clipped to {made.clip:g}")
    if made.amplified:
        chance, weight = _coin(run, made, client)
        return [Release(weight * made.clip / made.sigma, last, chance)] if last and chance else []
    mine = c[c["client"] == client]
    weights = np.bincount(mine["round"], mine["base"], minlength=1)
    found, counts = np.unique(weights[weights > 0], return_counts=True)
    return [
        Release(float(w) * made.clip / made.sigma, int(k))
        for w, k in zip(found, counts, strict=True)
    ]


def _coin(run: Run, made: Mechanism, client: int) -> tuple[float, float]:
    """The chance and the weight of a client that is drawn by a coin of its own."""
    importance = run.array("importance")
    if importance is None:
        raise LedgerError("the run keeps no table of its clients: their chances are not known")
    coins = made.coins(importance)
    return float(coins.chances[client]), float(coins.weights[client])


def epsilon_of(released: Iterable[Release], delta: float) -> float:
    """The least epsilon that can be shown at this delta; `accountant` says how it was found.

    ``epsilon_at(sqrt(sum count ratio^2), delta)`` where nothing is left to chance, which is exact.

    >>> round(epsilon_of([Release(0.1, 100)], 0.01), 4), round(epsilon_of([Release(1.0)], 0.01), 4)
    (2.3178, 2.3178)
    >>> epsilon_of([Release(0.1, 100, chance=0.1)], 0.01) < 0.2
    True

    Source: Balle & Wang 2018, Theorem 8; Koskela et al. 2020 for the subsampled mechanism.
    """
    some = [r for r in released if r.ratio > 0 and r.count > 0 and r.chance > 0]
    require(0 < delta < 1, f"delta must be between 0 and 1, not {delta}")
    if all(r.chance >= 1 for r in some):
        return epsilon_at(sqrt(sum(r.count * r.ratio**2 for r in some)), delta)
    return by_distributions(tuple(some), delta)


@lru_cache(maxsize=1024)  # clients of equal weight have the same
def by_distributions(released: tuple[Release, ...], delta: float) -> float:
    """`epsilon_of` by composing privacy loss distributions on a grid, rounded so that it is an
    upper bound.
    """
    try:
        from dp_accounting import NeighboringRelation, dp_event
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise PoiseError(
            (
                "the accountant of sampled clients is the package dp-accounting, which is not "
                "installed"
            ),
            "pip install 'poise[dp]'",
        ) from error
    span = sum(r.count * r.ratio**2 / 2 for r in released) + 8 * sqrt(
        sum(r.count * r.ratio**2 for r in released)
    )
    books = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=max(1e-4, span / 1e5)
    )
    for r in released:
        noise = dp_event.GaussianDpEvent(1 / r.ratio)
        books.compose(
            noise if r.chance >= 1 else dp_event.PoissonSampledDpEvent(r.chance, noise), r.count
        )
    return float(books.get_epsilon(delta))


def privacy_spent(run: Run, clients: Iterable[int], delta: float = 0.01) -> dict[int, float]:
    """The epsilon that a run with clipping and noise has spent on each of these clients, at this
    delta.

    Compared with the run in which the client had sent no change at all.

    Args:
        run: a run with weighting `Clipped` and server `Noisy`.
        clients: whom to account for, numbered as in the run.
        delta: between 0 and 1.

    Source: McMahan et al. 2018 (DP-FedAvg); E section 5.5.1.
    """
    return {int(c): epsilon_of(releases(run, int(c)), delta) for c in clients}


def guarantee(
    histories: Histories, nodes: Sequence[Node], clients: Sequence[int], asked: float, delta: float
) -> dict[str, Any]:
    """What branches that were all trained with clipping and noise give each of these clients,
    beside what is asked.

    Where the others share the weight of a client that is gone, the direction moves by up to ``2 W
    C``, which is given as well; no amplification is claimed for it.
    """
    made = mechanism(parts_in(parse(histories.root.experiment)))
    released = {c: _over(histories, nodes, c) for c in clients}
    each = {str(c): rounded_up(epsilon_of(found, delta)) for c, found in released.items()}
    twice = [[Release(2 * r.ratio, r.count) for r in found] for found in released.values()]
    spent, shared = max(each.values()), max(rounded_up(epsilon_of(found, delta)) for found in twice)
    return {
        "epsilon": spent,
        "delta": delta,
        "asked epsilon": asked,
        "met": spent <= asked,
        "epsilon of each": each,
        "clipped to": made.clip,
        "noise of a round": made.sigma,
        "sampling": made.sampling,
        "accountant": SUBSAMPLED if made.amplified else EXACT,
        "compared with": COMPARED,
        "had the others shared its weight": {"epsilon": shared, "met": shared <= asked},
    }


def _over(histories: Histories, nodes: Sequence[Node], client: int) -> list[Release]:
    """What all branches of a history, each up to its node, released of a client of the training."""
    found: list[Release] = []
    for branch, n in nodes:
        run = histories.run(branch)
        row = np.flatnonzero(histories.members(branch) == client)
        found += releases(run, int(row[0]), n) if len(row) else []
    return found


def rounded_up(value: float, digits: int = 6) -> float:
    """The next number above with this many digits, so that a certificate does not hang on the last
    bit.

    >>> rounded_up(2.31778904), rounded_up(0.0)
    (2.31779, 0.0)
    """
    if value <= 0:
        return 0.0
    unit = 10.0 ** (digits - 1 - floor(log10(value)))
    return float(np.ceil(value * unit - 1e-6) / unit)
