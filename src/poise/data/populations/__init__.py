"""On-demand twins of the partition rules, by the same names.

Each is a function ``(request, **options)`` that returns a `Population` over positions of the
request's labels. Clients may share samples, so their number is not bounded by the pool.
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
from poise.data.populations.rules import Anything, OneClass, Proportions, Thinning

__all__ = ["POPULATIONS", "Population", "PopulationRequest"]


def _groups(labels: Labels, classes: int) -> tuple[Ints, Ints]:
    order = np.argsort(labels, kind="stable").astype(np.int64)
    return order, np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=classes))]).astype(
        np.int64
    )


def _check(clients: int, size: int, room: int, what: str, name: str = "samples_per_client") -> None:
    require(clients >= 1, f"clients = {clients!r} must be at least 1", where="clients")
    require(size >= 1, f"{name} = {size!r} must be at least 1", where=name)
    require(
        size <= room,
        f"{name} = {size}, but {what} has {room} samples",
        f"at most {room}",
        where=name,
    )


def iid(request: PopulationRequest, *, samples_per_client: int = 100) -> Population:
    """Each client owns ``samples_per_client`` distinct samples of the whole pool (A §4.1).

    >>> million = PopulationRequest(np.zeros(50, np.int64), clients=10**6)
    >>> iid(million, samples_per_client=5).rows(np.array([999_999]))[1].tolist()
    [0, 5]
    """
    size = len(request.labels)
    _check(request.clients, samples_per_client, size, "the pool")
    rule = Anything(samples_per_client)
    return Population(request.clients, request.seed, rule, np.arange(size), np.array([0, size]))


def dirichlet(
    request: PopulationRequest, *, alpha: float = 1.0, samples_per_client: int = 100
) -> Population:
    """Each client owns ``samples_per_client`` samples in its own proportions Dir(α·1) (E §3.6)."""
    seed = request.seed
    _check(request.clients, samples_per_client, len(request.labels), "the pool")
    classes = check_classes(request.labels, "dirichlet")
    proportions(seed, np.arange(1), alpha, classes)
    order, starts = _groups(request.labels, classes)
    rule = Proportions(samples_per_client, alpha, seed, np.diff(starts))
    return Population(request.clients, seed, rule, order, starts)


def one_class(request: PopulationRequest, *, samples_per_client: int = 100) -> Population:
    """Client i owns ``samples_per_client`` samples of class ``i mod C`` (E §5.5.1)."""
    classes = check_classes(request.labels, "one-class")
    order, starts = _groups(request.labels, classes)
    present = np.flatnonzero(np.diff(starts))
    room = np.diff(starts)[present]
    _check(
        request.clients, samples_per_client, int(room.min()), f"class {present[np.argmin(room)]}"
    )
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
    """Classes thin out exponentially, n_max · r^{c/(K-1)}, r given or drawn per client (B §4.1).

    The size of a client depends on its r: ``n_max`` is what it owns of class 0, or
    ``samples_per_client`` what a balanced client (r = 1) owns in all; by default n_max = 100. With
    ``equal_sizes`` every client owns ``samples_per_client``, in the same proportions: the
    experiments of B keep sizes equal (B §3.3). The largest class is class 0 for everyone, or with
    ``own_order`` another for each client (B does not say which).
    """
    require(
        n_max is None or samples_per_client is None,
        "n_max and samples_per_client were both given",
        where="n_max",
    )
    classes = check_classes(request.labels, "imbalanced")
    require(
        ratios is None or np.ndim(ratios) == 1,
        "imbalanced on demand: ratios must be a plain list",
        where="ratios",
    )
    seed = request.seed
    client_ratios(seed, np.arange(1), ratio, ratios, request.clients)
    order, starts = _groups(request.labels, classes)
    room = np.diff(starts)
    given = _given(ratio, ratios)
    size = _equal_size(n_max, samples_per_client, classes) if equal_sizes else None
    top = n_max if samples_per_client is None else samples_per_client // classes
    n_top = 100 if top is None else top
    rule = Thinning(given, n_top, classes=classes, seed=seed, size=size, own_order=own_order)
    most, what = (
        (rule.n_max, "n_max") if size is None else (rule.largest(), "largest class of a client")
    )
    tight = (
        int(np.argmin(room)) if own_order or size is None else 0
    )  # of equal sizes, class 0 alone can be too small
    _check(request.clients, most, int(room[tight]), f"class {tight}", what)
    return Population(request.clients, seed, rule, order, starts)


def _given(ratio: float | None, ratios: Sequence[float] | None) -> Floats:
    """The ratios to draw from; the seven of the paper where none are given."""
    several = RATIOS if ratios is None else ratios
    return np.array(several if ratio is None else [ratio], dtype=np.float64)


def _equal_size(n_max: int | None, samples_per_client: int | None, classes: int) -> int:
    require(
        n_max is None,
        "imbalanced: n_max does not fit equal_sizes",
        "give samples_per_client",
        where="n_max",
    )
    size = 100 if samples_per_client is None else samples_per_client
    require(
        size >= classes,
        f"imbalanced: samples_per_client = {size} is less than one of each of {classes} classes",
        where="samples_per_client",
    )
    return size


POPULATIONS: dict[str, Callable[..., Population]] = {
    "dirichlet": dirichlet,
    "iid": iid,
    "imbalanced": imbalanced,
    "one-class": one_class,
}
