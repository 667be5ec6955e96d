"""Populations on demand: counterparts of the partition rules, under the same names.

Each is a function ``(request, **options)`` that returns a `Population` over positions
of the request's labels. Clients may share samples, so the pool does not limit their
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from poise.core.errors import require
from poise.core.types import Floats, Ints
from poise.data.partitions.common import Labels, check_classes
from poise.data.partitions.dirichlet import proportions
from poise.data.partitions.imbalanced import RATIOS, client_ratios
from poise.data.populations.population import Population, PopulationRequest
from poise.data.populations.rules import OneClass, Proportions, Thinning, WholePool

__all__ = ["POPULATIONS", "Population", "PopulationRequest"]


def _groups(labels: Labels, classes: int) -> tuple[Ints, Ints]:
    """Return all positions sorted by class, and where each class starts."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    counts = np.bincount(labels, minlength=classes)
    return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _check(
    clients: int, size: int, room: int, group: str, name: str = "samples_per_client"
) -> None:
    require(clients >= 1, f"clients = {clients!r} must be at least 1", where="clients")
    require(size >= 1, f"{name} = {size!r} must be at least 1", where=name)
    require(
        size <= room,
        f"{name} = {size}, but {group} has {room} samples",
        f"choose at most {room}",
        where=name,
    )


def iid(request: PopulationRequest, *, samples_per_client: int = 100) -> Population:
    """Give each client ``samples_per_client`` distinct samples of the whole pool.

    >>> million = PopulationRequest(np.zeros(50, np.int64), clients=10**6)
    >>> iid(million, samples_per_client=5).rows(np.array([999_999]))[1].tolist()
    [0, 5]

    Source: [Mansour 2022, §4.1].
    """
    size = len(request.labels)
    _check(request.clients, samples_per_client, room=size, group="the pool")
    rule = WholePool(samples_per_client)
    return Population(
        request.clients, request.seed, rule, np.arange(size), np.array([0, size])
    )


def dirichlet(
    request: PopulationRequest, *, alpha: float = 1.0, samples_per_client: int = 100
) -> Population:
    """Give clients ``samples_per_client`` samples, with class shares from Dir(α·1).

    Source: [Fraboni 2023, §3.6].
    """
    seed = request.seed
    _check(
        request.clients, samples_per_client, room=len(request.labels), group="the pool"
    )
    classes = check_classes(request.labels, "dirichlet")
    proportions(seed, np.arange(1), alpha, classes)
    order, starts = _groups(request.labels, classes)
    rule = Proportions(samples_per_client, alpha, seed, np.diff(starts))
    return Population(request.clients, seed, rule, order, starts)


def one_class(
    request: PopulationRequest, *, samples_per_client: int = 100
) -> Population:
    """Give client i ``samples_per_client`` samples of class ``i mod C`` [Fraboni 2023, §5.5.1]."""
    classes = check_classes(request.labels, "one-class")
    order, starts = _groups(request.labels, classes)
    present = np.flatnonzero(np.diff(starts))
    room = np.diff(starts)[present]
    smallest = f"class {present[np.argmin(room)]}"
    _check(request.clients, samples_per_client, room=int(room.min()), group=smallest)
    rule = OneClass(samples_per_client, present, classes)
    return Population(request.clients, request.seed, rule, order, starts)


def imbalanced(
    request: PopulationRequest,
    *,
    ratio: float | None = None,
    ratios: Sequence[float] | None = None,
    n_max: int | None = None,
    samples_per_client: int | None = None,
    equal_sizes: bool = False,
    own_order: bool = False,
) -> Population:
    """Give n_max · r^{c/(K-1)} samples of class c of K; r is given or drawn per client.

    The size of a client depends on its r: it owns ``n_max`` samples of class 0, or
    ``samples_per_client`` samples in total if r = 1; by default n_max = 100. With
    ``equal_sizes`` every client owns ``samples_per_client`` samples in the same
    proportions: the experiments of [Exp-α 2023] keep sizes equal [Exp-α 2023, §3.3].
    The largest class is class 0 for all clients, or a random class for each client with
    ``own_order`` ([Exp-α 2023] does not say which).

    Source: [Exp-α 2023, §4.1].
    """
    require(
        n_max is None or samples_per_client is None,
        "n_max and samples_per_client are both given",
        where="n_max",
    )
    classes = check_classes(request.labels, "imbalanced")
    require(
        ratios is None or np.ndim(ratios) == 1,
        "imbalanced: with on_demand, ratios must be a plain list of numbers",
        where="ratios",
    )
    seed = request.seed
    client_ratios(
        seed, np.arange(1), ratio=ratio, ratios=ratios, population=request.clients
    )
    order, starts = _groups(request.labels, classes)
    room = np.diff(starts)
    choices = _ratios_to_draw_from(ratio, ratios)
    size = None
    if equal_sizes:
        size = _equal_size(n_max, samples_per_client, classes=classes)
    if samples_per_client is not None:
        n_top = samples_per_client // classes
    elif n_max is not None:
        n_top = n_max
    else:
        n_top = 100
    rule = Thinning(
        choices, n_top, classes=classes, seed=seed, size=size, own_order=own_order
    )
    if size is None:
        largest = rule.n_max
        name = "n_max"
    else:
        largest = rule.largest()
        name = "largest class of a client"
    scarce = 0  # with equal sizes and without own_order, only class 0 can be too small
    if own_order or size is None:
        scarce = int(np.argmin(room))
    _check(
        request.clients,
        largest,
        room=int(room[scarce]),
        group=f"class {scarce}",
        name=name,
    )
    return Population(request.clients, seed, rule, order, starts)


def _ratios_to_draw_from(ratio: float | None, ratios: Sequence[float] | None) -> Floats:
    """Return the given ratio or ratios, or the seven of the paper."""
    if ratio is not None:
        ratios = [ratio]
    elif ratios is None:
        ratios = RATIOS
    return np.array(ratios, dtype=np.float64)


def _equal_size(n_max: int | None, samples_per_client: int | None, classes: int) -> int:
    require(
        n_max is None,
        "imbalanced: n_max does not work with equal_sizes",
        "give samples_per_client instead",
        where="n_max",
    )
    size = 100
    if samples_per_client is not None:
        size = samples_per_client
    require(
        size >= classes,
        (
            f"imbalanced: samples_per_client = {size} is less than one of each of "
            f"{classes} classes"
        ),
        where="samples_per_client",
    )
    return size


POPULATIONS: dict[str, Callable[..., Population]] = {
    "dirichlet": dirichlet,
    "iid": iid,
    "imbalanced": imbalanced,
    "one-class": one_class,
}
