"""`Federation`: the clients, their training samples and their test samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from poise.core.client_names import client_number
from poise.core.errors import InvalidOption, require
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data.corruptions import CORRUPTIONS, Corruption
from poise.data.corruptions.corruption import Span
from poise.data.holdings import Holdings, StoredHoldings, gather
from poise.data.identity import digest_of
from poise.data.options import check_options, named, option_names, sort_options
from poise.data.overview import describe, kind_of_labels
from poise.data.sources.source import Source

Arrays: TypeAlias = tuple[Any, NDArray[Any]]
"""Features (one array, or a tuple or dict of arrays) and labels."""

Number = TypeVar("Number", np.int64, np.float64)

_MOST_COUNTED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """N clients and the samples they own, made by `poise.federation`; immutable.

    Args:
        source: the training and test pools.
        holdings: which rows of the training pool each client owns.
        seed: of the federation.
        partition: the partition rule as text.
        weighing: ``size``, ``equal``, or the importance of each client.
        spec: ``poise.federation(**spec)`` makes this federation again; None for arrays
            and index lists.
        corruptions: applied to the clients' samples, in this order.
        client_tests: the pool and the holdings of the clients' own test samples.
        names: of the clients, or None.
        chosen: the owners in the holdings that are clients; None for all of them.
        assumed: the value that the partition took for an option that nobody gave but
            that decides how clients differ, as a sentence; empty if there is none.

    >>> from poise.data import federation
    >>> fed = federation("digits", "dirichlet", clients=10, alpha=0.5)
    >>> fed.clients, int(fed.sizes.sum()), fed.classes, fed.feature_shape
    (10, 1438, 10, (1, 8, 8))
    """

    source: Source
    holdings: Holdings
    seed: int
    partition: str
    weighing: str | Floats = "size"
    spec: dict[str, Any] | None = None
    corruptions: tuple[Corruption, ...] = ()
    client_tests: tuple[Samples, StoredHoldings] | None = None
    names: tuple[str, ...] | None = None
    chosen: Ints | None = None
    assumed: str = ""

    # clients and their weights
    # ------------------------------------------------------------------

    @property
    def clients(self) -> int:
        """Number of clients N."""
        if self.chosen is None:
            return self.holdings.clients
        return len(self.chosen)

    @property
    def members(self) -> Ints:
        """The owner number of each client, (N,): 0 to N - 1 before `without`."""
        if self.chosen is None:
            return np.arange(self.clients)
        return self.chosen

    @property
    def classes(self) -> int:
        """Number of classes; 0 unless every sample has one class."""
        return self.source.train.classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if classes are only numbers."""
        return self.source.class_names

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the model receives it."""
        return self.source.train.shape

    @property
    def public_mean(self) -> str:
        """The public image that is subtracted from every sample; empty if none is."""
        return self.source.public_mean

    @property
    def on_demand(self) -> bool:
        """Whether clients are computed on demand and may share samples."""
        return not isinstance(self.holdings, StoredHoldings)

    @cached_property
    def sizes(self) -> Ints:
        """Training samples per client, (N,), read-only."""
        return _frozen(self._of_chosen(self.holdings.sizes()))

    @cached_property
    def importance(self) -> Floats:
        """p_i, (N,), sum 1, read-only: n_i/Σn, 1/N, or the given numbers, scaled."""
        if not isinstance(self.weighing, str):
            given = self._of_chosen(self.weighing)
            return _frozen(given / given.sum())
        if self.weighing == "equal" or self.holdings.equal_size is not None:
            return np.broadcast_to(np.float64(1 / self.clients), (self.clients,))
        return _frozen(self.sizes / self.sizes.sum())

    def _of_chosen(self, values: NDArray[Number]) -> NDArray[Number]:
        """Select the entries of this federation's clients from those of all owners."""
        if self.chosen is None:
            return values
        return values[self.chosen]

    # training data
    # ------------------------------------------------------------------------------

    @cached_property
    def _span(self) -> Span:
        raw = self.source.train.raw
        return float(raw.min()), float(raw.max())

    def _corrupt(
        self, shards: Shards, clients: Ints, corruptions: Sequence[Corruption]
    ) -> Shards:
        for corruption in corruptions:
            span = self._span if corruption.features else (0.0, 0.0)
            shards = corruption.apply(shards, clients, span=span)
        return shards

    def _plain(self, clients: Ints) -> Shards:
        rows, offsets = self.holdings.rows(clients)
        return _shards(self.source.train, rows, offsets)

    @cached_property
    def _everyone(self) -> Shards:
        """The samples of all clients, corrupted once; other owners are left out."""
        return self._corrupt(self._plain(self.members), self.members, self.corruptions)

    def shards(self, clients: Sequence[int] | Ints) -> Shards:
        """Return the samples of these clients, in the given order.

        >>> from poise.data import federation
        >>> federation("digits", clients=10).shards([3, 1]).offsets.tolist()
        [0, 144, 288]
        """
        numbers = self._checked(clients)
        if self.on_demand:
            owners = numbers
            if self.chosen is not None:
                owners = self.chosen[numbers]
            return self._corrupt(
                self._plain(owners), owners, corruptions=self.corruptions
            )
        held = self._everyone
        positions, offsets = gather(held.offsets, numbers)
        rows = torch.from_numpy(held.rows.numpy()[positions])
        labels = torch.from_numpy(held.labels.numpy()[positions])
        return Shards(held.samples, rows, labels, offsets)

    def client(self, i: int | str) -> Arrays:
        """Return the training data ``(x, y)`` of client i, by its number or its name."""
        return self.shards([self.client_number(i)]).arrays()

    def client_number(self, client: int | str) -> int:
        """Return the number of a client that is given by number or by name."""
        return client_number(client, self.clients, self.names or ())

    def _checked(self, clients: Sequence[int] | Ints) -> Ints:
        given = np.asarray(clients)
        require(given.ndim == 1, "clients must be a list of client numbers")
        require(
            given.dtype.kind in "iu" or not len(given),
            f"clients are whole numbers, not {given.dtype}",
        )
        outside = given[(given < 0) | (given >= self.clients)]
        if len(outside):
            raise InvalidOption(
                f"there is no client {outside[0]}",
                f"clients are 0 to {self.clients - 1}",
            )
        return given.astype(np.int64)

    def label_counts(self) -> Ints:
        """Return the number of samples per client and class, as labelled, (N, C).

        >>> from poise.data import federation
        >>> federation("digits", "one-class", clients=10).label_counts().astype(bool).sum()
        np.int64(10)
        """
        require(self.classes > 0, "label_counts needs one class per sample")
        if self.clients > _MOST_COUNTED:
            raise InvalidOption(
                f"label_counts: {self.clients} clients are too many to count",
                (
                    f"the limit is {_MOST_COUNTED}; count fewer with "
                    "fed.shards(clients).labels"
                ),
            )
        held = self.shards(np.arange(self.clients))
        owner = np.repeat(np.arange(self.clients), held.sizes)
        cells = owner * self.classes + held.labels.numpy()
        counted = np.bincount(cells, minlength=self.clients * self.classes)
        return counted.reshape(self.clients, self.classes)

    def traits(self) -> dict[str, Floats]:
        """Return the numbers by which clients differ by design, (N,) each.

        Names are ``imbalance ratio`` and ``flip ratio``.

        >>> from poise.data import federation
        >>> fed = federation("digits", clients=3)
        >>> fed.with_corruption("flip-labels", rate=1.0, ratio=0.5).traits()
        {'flip ratio': array([0.5, 0.5, 0.5])}
        """
        traits = dict(self.holdings.traits(self.members))
        for corruption in self.corruptions:
            traits |= corruption.traits(self.members)
        return traits

    # test data
    # ----------------------------------------------------------------------------------

    @cached_property
    def test_shard(self) -> Shards | None:
        """The held-out samples as one shard, or None."""
        pool = self.source.test
        if pool is None:
            return None
        rows = torch.arange(len(pool))
        if self.source.test_rows is not None:
            rows = torch.from_numpy(self.source.test_rows)
        return Shards(
            pool, rows, pool.labels[rows], np.array([0, len(rows)], dtype=np.int64)
        )

    @property
    def test(self) -> Arrays:
        """Held-out data ``(x, y)`` that no client owns."""
        if self.test_shard is None:
            raise InvalidOption(
                f"{self.source.name}: this federation has no held-out data",
                "pass test=(x, y) or test_share=0.2",
            )
        return self.test_shard.arrays()

    @property
    def has_client_test(self) -> bool:
        """Whether clients have test samples of their own."""
        return self.client_tests is not None

    def client_test_shards(self, clients: Sequence[int] | Ints) -> Shards:
        """Return the test samples of these clients in turn; clients may have none."""
        if self.client_tests is None:
            raise InvalidOption(
                "the clients of this federation have no test samples of their own",
                "pass client_test_share=0.2, or use a natural partition ('by-key')",
            )
        owners = self.members[self._checked(clients)]
        pool, held = self.client_tests
        rows, offsets = held.rows(owners)
        shards = _shards(pool, rows, offsets=offsets)
        on_tests = [
            corruption for corruption in self.corruptions if corruption.own_tests
        ]
        return self._corrupt(shards, owners, corruptions=on_tests)

    def client_test(self, i: int | str) -> Arrays:
        """Return the test data ``(x, y)`` of client i, by its number or its name."""
        return self.client_test_shards([self.client_number(i)]).arrays()

    # variations and identity
    # --------------------------------------------------------------------

    def with_corruption(self, name: str, **options: Any) -> Federation:
        """Return a new federation with corrupted clients; this one stays unchanged.

        Args:
            name: ``flip-labels``, ``watermark`` or ``domain``.
            options: of that corruption.

        >>> from poise.data import federation
        >>> fed = federation("digits", clients=5)
        >>> fed.with_corruption("flip-labels", rate=0.5).spec["corruption"]
        [{'name': 'flip-labels', 'rate': 0.5}]

        Source: [Exp-α 2023, §4.2], [Exp-α 2023, §4.3], [Fraboni 2023, §5.5.3].
        """
        maker = named(name, CORRUPTIONS, "corruption")
        sort_options(options, {name: option_names(maker)}, [])
        check_options(maker, options, name)
        require(
            name != "flip-labels" or "rate" in options,
            "flip-labels needs rate",
            "for example rate=1/3",
            where="rate",
        )
        corruption: Corruption = maker(**options)
        corruption.fit(self.source.train, self.clients)
        spec = None
        if self.spec is not None and not any(
            callable(value) for value in options.values()
        ):
            table = {
                "name": name,
                **{key: plain(value) for key, value in options.items()},
            }
            spec = {
                **self.spec,
                "corruption": [*self.spec.get("corruption", []), table],
            }
        return replace(self, spec=spec, corruptions=(*self.corruptions, corruption))

    def without(self, clients: Sequence[int] | Ints) -> Federation:
        """Return the federation without these clients; others move up (`members`).

        >>> from poise.data import federation
        >>> left = federation("digits", clients=5).without([1, 3])
        >>> left.clients, left.members.tolist(), left.spec["without"]
        (3, [0, 2, 4], [1, 3])
        """
        gone = np.unique(self._checked(clients))
        stay = np.delete(self.members, gone)
        require(
            len(stay) > 0,
            f"without: no client of {self.clients} would be left",
            where="without",
        )
        missing = np.setdiff1d(np.arange(self.holdings.clients), stay)
        spec = None
        if self.spec is not None:
            spec = {**self.spec, "without": missing.tolist()}
        names = None
        if self.names is not None:
            names = tuple(np.delete(np.array(self.names, dtype=object), gone))
        return replace(self, chosen=_frozen(stay), spec=spec, names=names)

    def digest(self) -> str:
        """Return a hash of the clients' samples (see `poise.data.identity`).

        >>> from poise.data import federation
        >>> federation("digits", seed=1).digest() == federation("digits", seed=2).digest()
        False
        """
        return digest_of(self)

    def summary(self) -> str:
        """Return a description of the federation in a few lines."""
        return describe(self)

    def _repr_html_(self) -> str:
        """The summary in a notebook."""
        from html import escape  # takes a millisecond to import

        return f"<pre>{escape(self.summary())}</pre>"

    def __repr__(self) -> str:
        on_demand = ", on demand" if self.on_demand else ""
        corruptions = "".join(
            f" + {corruption.name}" for corruption in self.corruptions
        )
        return (
            f"Federation({self.source.name!r}, {self.partition}{corruptions}, "
            f"{self.clients:,} clients{on_demand}, {kind_of_labels(self)}, seed {self.seed})"
        )


def _shards(pool: Samples, rows: Ints, offsets: Ints) -> Shards:
    """Return rows of a pool with the pool's labels.

    NumPy gathers the labels: torch would split this small work over its threads, which
    wait for each other for a whole time slice whenever a second process uses the same
    cores.
    """
    labels = torch.from_numpy(pool.labels.numpy()[rows])
    return Shards(pool, torch.from_numpy(rows), labels, offsets)


def plain(value: object) -> Any:
    """Convert a value to types that an experiment file can hold.

    >>> plain((np.float64(0.5), np.arange(2)))
    [0.5, [0, 1]]
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return value


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
