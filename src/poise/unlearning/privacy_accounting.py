"""The (epsilon, delta) that a training with clipping and noise gives a client, from the ledger.

Every round publishes ``D + N(0, sigma^2 I)``, and the next model follows from it. A
client adds at most ``W C`` to D, with W its weight and C the clipping norm. A round is
therefore a Gaussian mechanism whose means are ``W C / sigma`` standard deviations
apart, and rounds compose.

Certificates store the texts EXACT, SUBSAMPLED, COMPARED and `Mechanism.sampling`: keep
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log10, sqrt
from typing import Any, NamedTuple

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
from poise.privacy.gaussian import epsilon_at
from poise.results import Run
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
    """``count`` rounds with the same bound on a client's influence.

    In each, the client takes part with probability ``chance`` and then adds at most
    ``ratio`` standard deviations of the noise.
    """

    ratio: float
    count: int = 1
    chance: float = 1.0


@dataclass(frozen=True)
class Mechanism:
    """Updates clipped to norm ``clip``, noise ``sigma`` on their sum, clients from ``sampler``."""

    clip: float
    sigma: float
    sampler: Sampler

    @property
    def amplified(self) -> bool:
        """Whether secret, independent draws of the clients amplify the privacy."""
        draws = traits_of(self.sampler, SamplerTraits)
        independent = draws.independent and not draws.data_dependent
        return independent and isinstance(self.sampler, HasCoins)

    def coins(self, importance: Floats) -> Coins:
        """Return the chances and weights of clients that are drawn independently."""
        assert isinstance(self.sampler, HasCoins)
        return self.sampler.coins(importance)

    @property
    def sampling(self) -> str:
        """The text of the certificate that tells how participation is counted."""
        name = type(self.sampler).__name__
        if self.amplified:
            return (
                f"{name}: amplification by independent draws, which are not published"
            )
        if traits_of(self.sampler, SamplerTraits).selects_everyone:
            return f"{name}: everyone in every round"
        return (
            f"{name}: no amplification claimed; the rounds in which the client really took "
            "part, taken as known"
        )


def mechanism(parts: Parts) -> Mechanism:
    """Return the mechanism of a composition's parts; raise where they add no clipping and noise."""
    weighting = parts.weighting
    server = parts.server
    weights = traits_of(weighting, WeightingTraits)
    noise = traits_of(server, ServerTraits).noise
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
                f"dp: the coefficients of {weighting!r} depend on the clients' updates and carry "
                "no noise"
            ),
            "clip proportional weights: Clipped(norm)",
        )
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        raise IncompatibleParts(
            "dp: clipping bounds a client's part of a weighted sum, "
            f"not of {parts.aggregator!r}",
            "leave the aggregator out",
        )
    return Mechanism(
        float(weights.shortens_to), sigma=float(noise), sampler=parts.sampler
    )


def releases(run: Run, client: int, rounds: int | None = None) -> list[Release]:
    """Return the releases about a client in the first ``rounds`` rounds, or in all.

    ``client`` is numbered as in that run. With independent draws, every round counts
    with the client's chance; otherwise only the rounds in which it took part count,
    with its weight. Raises where the ledger shows an update that was not clipped.
    """
    used = mechanism(parts_in(parse(run.experiment)))
    last = run.rounds if rounds is None else rounds
    contributions = run.contributions[run.contributions["round"] < last]
    sent = contributions["coefficient"] * contributions["norm"]
    too_long = sent > contributions["base"] * used.clip * (1 + 1e-6)
    if too_long.any():
        first = contributions[too_long][0]
        raise LedgerError(
            f"round {first['round']}: the update of client {first['client']} was not clipped to "
            f"{used.clip:g}"
        )
    if used.amplified:
        coin = _coin(run, used, client=client)
        if not last or not coin.chance:
            return []
        return [Release(coin.weight * used.clip / used.sigma, last, coin.chance)]
    of_client = contributions[contributions["client"] == client]
    weights = np.bincount(of_client["round"], of_client["base"], minlength=1)
    values, counts = np.unique(weights[weights > 0], return_counts=True)
    return [
        Release(float(weight) * used.clip / used.sigma, int(count))
        for weight, count in zip(values, counts, strict=True)
    ]


class ClientCoin(NamedTuple):
    """The probability that a round draws a client, and the client's weight when drawn."""

    chance: float
    weight: float


def _coin(run: Run, used: Mechanism, *, client: int) -> ClientCoin:
    """Return the chance and the weight of a client that is drawn independently."""
    importance = run.array("importance")
    if importance is None:
        raise LedgerError(
            "the run did not record the importance of its clients: their chances are unknown"
        )
    coins = used.coins(importance)
    return ClientCoin(float(coins.chances[client]), float(coins.weights[client]))


def epsilon_of(released: Iterable[Release], delta: float) -> float:
    """Return the least epsilon that poise can prove at this delta.

    ``epsilon_at(sqrt(sum count ratio^2), delta)`` where every chance is 1, which is
    exact.

    >>> round(epsilon_of([Release(0.1, 100)], 0.01), 4), round(epsilon_of([Release(1.0)], 0.01), 4)
    (2.3178, 2.3178)
    >>> epsilon_of([Release(0.1, 100, chance=0.1)], 0.01) < 0.2
    True

    Source: [Balle 2018, Thm 8]; [Koskela 2020] for the subsampled mechanism.
    """
    effective = [r for r in released if r.ratio > 0 and r.count > 0 and r.chance > 0]
    require(0 < delta < 1, f"delta must be between 0 and 1, not {delta}")
    if all(r.chance >= 1 for r in effective):
        return epsilon_at(sqrt(sum(r.count * r.ratio**2 for r in effective)), delta)
    return by_distributions(tuple(effective), delta)


@lru_cache(maxsize=1024)  # clients of equal weight share the result
def by_distributions(released: tuple[Release, ...], delta: float) -> float:
    """Compute an upper bound of `epsilon_of` by composing privacy loss distributions."""
    try:
        from dp_accounting import NeighboringRelation, dp_event
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise PoiseError(
            "the accountant of sampled clients needs the package dp-accounting",
            "pip install 'poise[dp]'",
        ) from error
    squares = sum(r.count * r.ratio**2 for r in released)
    span = sum(r.count * r.ratio**2 / 2 for r in released) + 8 * sqrt(squares)
    accountant = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=max(1e-4, span / 1e5),
    )
    for release in released:
        event = dp_event.GaussianDpEvent(1 / release.ratio)
        if release.chance < 1:
            event = dp_event.PoissonSampledDpEvent(release.chance, event)
        accountant.compose(event, release.count)
    return float(accountant.get_epsilon(delta))


def privacy_spent(
    run: Run, clients: Iterable[int], delta: float = 0.01
) -> dict[int, float]:
    """Return the epsilon that a run with clipping and noise has spent on each of these clients.

    The comparison is with the run in which the client sends no change at all.

    Args:
        run: a run with weighting `Clipped` and server `Noisy`.
        clients: the clients to account for, numbered as in the run.
        delta: between 0 and 1.

    Source: [McMahan 2018]; [Fraboni 2023, §5.5.1].
    """
    return {int(c): epsilon_of(releases(run, int(c)), delta) for c in clients}


def guarantee(
    histories: Histories,
    nodes: Sequence[Node],
    *,
    clients: Sequence[int],
    requested_epsilon: float,
    delta: float,
) -> dict[str, Any]:
    """Return the guarantee of branches trained with clipping and noise, for a certificate.

    If the others share the weight of a removed client, the direction moves by up to
    ``2 W C``. The epsilon of that comparison is given as well, without amplification.
    """
    used = mechanism(parts_in(parse(histories.root.experiment)))
    each: dict[str, float] = {}
    shared = 0.0
    for client in clients:
        released = _releases_along(histories, nodes, client=client)
        each[str(client)] = rounded_up(epsilon_of(released, delta))
        doubled = [Release(2 * r.ratio, r.count) for r in released]
        shared = max(shared, rounded_up(epsilon_of(doubled, delta)))
    spent = max(each.values())
    return {
        "epsilon": spent,
        "delta": delta,
        "asked epsilon": requested_epsilon,
        "met": spent <= requested_epsilon,
        "epsilon of each": each,
        "clipped to": used.clip,
        "noise of a round": used.sigma,
        "sampling": used.sampling,
        "accountant": SUBSAMPLED if used.amplified else EXACT,
        "compared with": COMPARED,
        "had the others shared its weight": {
            "epsilon": shared,
            "met": shared <= requested_epsilon,
        },
    }


def _releases_along(
    histories: Histories, nodes: Sequence[Node], *, client: int
) -> list[Release]:
    """Return the releases about a client of the training in all branches, each up to its node."""
    released: list[Release] = []
    for branch, n in nodes:
        numbers = np.flatnonzero(histories.members(branch) == client)
        if len(numbers):
            released += releases(histories.run(branch), int(numbers[0]), n)
    return released


def rounded_up(value: float, digits: int = 6) -> float:
    """Round up to this many digits, so that certificates do not depend on the last bit.

    >>> rounded_up(2.31778904), rounded_up(0.0)
    (2.31779, 0.0)
    """
    if value <= 0:
        return 0.0
    unit = 10.0 ** (digits - 1 - floor(log10(value)))
    return float(np.ceil(value * unit - 1e-6) / unit)
