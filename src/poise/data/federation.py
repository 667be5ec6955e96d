"""`federation`: deal the samples of a data set to clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import (
    InvalidOption,
    errors_at,
    require,
    sizes_checked,
    suggest,
    without_quotes,
)
from poise.core.objects import name_of, title_of
from poise.core.types import Floats
from poise.data.assumptions import DECIDING, assumption, owners_left_out
from poise.data.federation_data import Federation, plain
from poise.data.holdings import StoredHoldings
from poise.data.options import check_options, named, option_names, sort_options
from poise.data.own import is_own, load_own, names_files, readers_of, with_folder
from poise.data.own.kinds import is_many
from poise.data.own.partitioners import Partitioner, index_arrays, is_partitioner
from poise.data.own_source import OPTIONS, is_code, own_loader
from poise.data.partitioning import (
    Partition,
    PartitionRule,
    deal,
    own_tests,
    subset,
    with_free_riders,
)
from poise.data.partitions import PARTITIONS, by_key
from poise.data.populations import POPULATIONS
from poise.data.sources import SOURCES, Source, arrays

Given: TypeAlias = Any
"""The name of a data source, a path, arrays ``(x, y)``, a data frame, a data set, a list
or table of these with one entry per client, or a function that returns one of them."""

_FEDERATION_OPTIONS = [
    "samples",
    "test_samples",
    "on_demand",
    "client_test_share",
    "corruption",
    "free_riders",
    "without",
    "importance",
    "clients",
    "seed",
]
_SUPPLIED = ("data", "labels", "request", "clients", "seed")
_DEFAULT_CLIENTS = 100


@sizes_checked()
def federation(
    source: Given,
    partition: str | Sequence[ArrayLike] | Partitioner | None = None,
    clients: int | None = None,
    seed: int = 0,
    importance: str | ArrayLike = "size",
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    on_demand: bool = False,
    client_test_share: float | None = None,
    corruption: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    free_riders: int = 0,
    without: Sequence[int] = (),
    **options: Any,
) -> Federation:
    """Deal a data set to clients; the same arguments give the same federation.

    Args:
        source: ``digits``, ``mnist``, ``fashion-mnist``, ``cifar10``, ``usps``,
            ``digit-domains``, ``shakespeare``, ``leaf``, ``heart-disease``,
            ``synthetic``; or your own data: arrays ``(x, y)`` (x may be a tuple or dict
            of arrays), a data frame of pandas or polars, a data set of PyTorch or
            Hugging Face, a CSV, Parquet, ``.npz`` or ``.npy`` file, a folder of images,
            a list (or a dictionary by name) of these with one entry per client; or a
            function that returns one of these, as it is or by its name
            ``"package.module:name"``; ``options=`` are its arguments.
        partition: ``iid``, ``shards``, ``one-class``, ``dirichlet``,
            ``dirichlet-by-class``, ``imbalanced``, ``by-key``, one index array per
            client, or a partitioner of flwr-datasets. None is ``by-key`` if the data
            name their owners (a list of clients, ``key=``, ``keys=``), else ``iid``.
        clients: number of clients; None is 100, or every natural client for ``by-key``.
        seed: the seed of all random streams of the federation.
        importance: p_i ∝ n_i (``size``), p_i = 1/N (``equal``), or an array, which is
            divided by its sum.
        samples: first take a class-balanced random subset of that many training
            samples.
        test_samples: the same for the held-out samples.
        on_demand: compute a client's rows from (seed, client) when they are needed. Any
            number of clients is possible, and clients may share samples (``iid``,
            ``dirichlet``, ``imbalanced``, ``one-class``; with ``samples_per_client=``).
        client_test_share: share of every client's samples to hold out as its own test
            set.
        corruption: tables ``{"name": …, option: value}`` for
            `Federation.with_corruption`.
        free_riders: number of clients without data to add after the others. They
            declare the mean size of the others (for `poise.attacks`; rows drawn from
            all owned rows stand for the data they claim).
        without: clients that have left; the others keep their samples and move up, in
            order.
        options: of the partition (``alpha``, ``shard_size``, ``sizes``, ``kappa``,
            ``phi2``, ``ratios``, …) and of the source (``label``, ``key``,
            ``normalize``, ``by``, ``stride``, ``test``, ``target``, …). The partition
            takes an option that both have.

    >>> fed = federation("digits", "shards", clients=20, shard_size=30, seed=1)
    >>> fed
    Federation('digits', shards(shard_size=30), 20 clients, 10 classes, seed 1)
    >>> x, y = fed.client(0)
    >>> x.shape[1:], x.dtype, y.dtype
    ((1, 8, 8), dtype('float32'), dtype('int64'))

    Source: [Mansour 2022, §4.1], [Exp-α 2023, §4], [Buttaci 2024, §3.4], [Fraboni 2023,
    §3.6].
    """
    seed = _whole("seed", seed)
    number = None
    if clients is not None:
        number = _whole("clients", clients)
    if names_files(source):
        source = with_folder(source, Path.cwd())
    unstated = partition is None
    if partition is None:
        partition = _natural(source, options)
    takers = _takers(source, options.get(OPTIONS, {}))
    rule = _rule(partition, on_demand)
    rule_options, source_options = _sorted(
        source,
        takers,
        partition=partition,
        rule=rule,
        options={
            k: v for k, v in options.items() if k != OPTIONS or not is_code(source)
        },
    )
    source_clients = _DEFAULT_CLIENTS if number is None else number
    pool = _load(
        source, takers[0], options=source_options, clients=source_clients, seed=seed
    )
    pool = subset(pool, samples, test_samples=test_samples, seed=seed)
    if unstated and is_code(source) and pool.keys is not None:
        partition = "by-key"  # the function returned the owners of the rows
        rule = by_key
    if number is None and rule not in (None, by_key):
        number = _DEFAULT_CLIENTS
    dealt = cast(Partition, partition)
    if is_partitioner(partition):
        dealt = index_arrays(partition, source, pool)
    holdings, keys = deal(
        pool, dealt, rule=rule, clients=number, seed=seed, options=rule_options
    )
    tests = None
    if isinstance(holdings, StoredHoldings):
        holdings, tests = own_tests(
            pool, holdings, keys=keys, share=client_test_share, seed=seed
        )
        holdings = with_free_riders(holdings, free_riders, seed=seed)
    else:
        require(
            not client_test_share,
            "client_test_share does not work with on_demand",
            where="client_test_share",
        )
        require(
            not free_riders,
            "free_riders does not work with on_demand",
            where="free_riders",
        )
    require(
        not (free_riders and (tests or keys)),
        "free_riders does not work with clients that have names or test samples",
        where="free_riders",
    )
    always = {
        "clients": holdings.clients - free_riders,
        "seed": seed,
        "importance": importance,
    }
    sometimes = {
        "samples": samples,
        "test_samples": test_samples,
        "on_demand": on_demand,
        "client_test_share": client_test_share,
        "free_riders": free_riders or None,
    }
    assumed = ""
    if unstated and partition == "iid" and pool.keys is not None:
        assumed = owners_left_out(
            str(source), owners=len(np.unique(pool.keys)), clients=holdings.clients
        )
    names = None
    if keys is not None:
        names = tuple(pool.key_names[key] for key in keys)
    fed = Federation(
        pool,
        holdings,
        seed=seed,
        partition=_partition_title(partition, rule_options),
        assumed=assumed or assumption(partition, rule, rule_options),
        weighing=_weighing(importance, holdings.clients),
        spec=_spec(
            source, partition, always=always, sometimes=sometimes, options=options
        ),
        client_tests=tests,
        names=names,
    )
    if isinstance(corruption, Mapping):
        corruption = [corruption]
    with errors_at("corruption"):
        for table in corruption:
            fed = _corrupted(fed, table)
    if len(without):
        return fed.without(without)
    return fed


def _whole(name: str, value: int) -> int:
    fits = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(
        fits,
        f"{name} = {value!r} must be a whole number",
        without_quotes(value),
        where=name,
    )
    return int(value)


def _natural(source: Given, options: Mapping[str, Any]) -> str:
    """Return the partition of data whose rows have owners, else ``iid``."""
    if is_many(source) or {"key", "keys"} & {
        k for k, v in options.items() if v is not None
    }:
        return "by-key"
    return "iid"


def _takers(source: Given, options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Return the functions that take the options of a source.

    ``options`` are those of the user's function, if the source is one.
    """
    with errors_at("source"):
        if is_code(source):
            return [own_loader(source, options)]
        if is_own(source):
            return [*readers_of(source), arrays]
    return [named(source, SOURCES, "data source")]


def _rule(partition: Partition | Partitioner, on_demand: bool) -> PartitionRule | None:
    if not isinstance(partition, str):
        require(
            not on_demand,
            "on_demand needs a partition by name, not index arrays",
            where="on_demand",
        )
        return None
    named(partition, {**PARTITIONS, "by-key": by_key}, "partition")
    if not on_demand:
        return PARTITIONS.get(partition, by_key)
    if partition not in POPULATIONS:
        raise InvalidOption(
            f"partition {partition!r} cannot be made on demand",
            f"known: {', '.join(POPULATIONS)}",
            where=("partition",),
        )
    return POPULATIONS[partition]


def _sorted(
    source: Given,
    loaders: Sequence[Callable[..., Any]],
    partition: Partition | Partitioner,
    rule: PartitionRule | None,
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options into those of partition and source, and check them."""
    first = "a list of index arrays"
    if isinstance(partition, str):
        first = f"partition {partition!r}"
    second = "your data"
    if isinstance(source, str):
        second = f"source {source!r}"
    elif isinstance(source, tuple):
        second = "arrays"
    elif is_code(source):
        second = f"source {title_of(source)}"
    known = [
        n for loader in loaders for n in option_names(loader, *_SUPPLIED, "closed")
    ]
    takers = {first: [], second: known}
    if rule is not None:
        takers[first] = option_names(rule, *_SUPPLIED, "keys")
    owners = {
        name: partition
        for partition, deciding in DECIDING.items()
        for name in deciding.options
        if name != "sizes"
    }
    sorted_ = sort_options(options, takers, _FEDERATION_OPTIONS, owners)
    if rule is not None:
        check_options(rule, sorted_[first], first)
    given = sorted_[second]
    for loader in loaders:
        names = option_names(loader)
        check_options(loader, {n: v for n, v in given.items() if n in names}, second)
    return sorted_[first], given


def _load(
    source: Given,
    loader: Callable[..., Source],
    options: dict[str, Any],
    clients: int,
    seed: int,
) -> Source:
    if is_own(source) and not is_code(source):
        return load_own(source, options)
    offered = {"clients": clients, "seed": seed}
    parameters = option_names(loader)
    supplied = {name: value for name, value in offered.items() if name in parameters}
    return loader(**options, **supplied)


def _weighing(importance: str | ArrayLike, clients: int) -> str | Floats:
    if isinstance(importance, str):
        if importance not in ("size", "equal"):
            raise InvalidOption(
                f"unknown importance {importance!r}",
                suggest(importance, ["size", "equal"]),
                where=("importance",),
            )
        return importance
    try:
        given = np.asarray(importance, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"importance must be numbers: {error}", where=("importance",)
        ) from error
    require(
        given.shape == (clients,),
        f"importance has shape {given.shape}, but there are {clients} clients",
        where="importance",
    )
    valid = np.isfinite(given) & (given >= 0)
    first = int(np.argmin(valid))
    require(
        bool(valid.all()),
        (
            f"the importance of client {first} is {given[first]}, not a number of at "
            "least 0"
        ),
        where="importance",
    )
    require(
        bool(given.sum() > 0), "importance is 0 for every client", where="importance"
    )
    return given.copy()


def _partition_title(
    partition: Partition | Partitioner, options: Mapping[str, Any]
) -> str:
    if is_partitioner(partition):
        return type(partition).__name__
    if not isinstance(partition, str):
        return "index arrays"
    given = ", ".join(f"{key}={_short(value)}" for key, value in options.items())
    if given:
        return f"{partition}({given})"
    return partition


def _short(value: object) -> str:
    text = repr(plain(value))
    if len(text) <= 40:
        return text
    return text[:37] + "..."


def _spec(
    source: Given,
    partition: Partition | Partitioner,
    always: Mapping[str, Any],
    sometimes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return the arguments that make this federation again, without corruptions."""
    if is_code(source):
        source = name_of(source) or source
    by_name = isinstance(source, str) or names_files(source)
    held_out = options.get("test")
    if is_own(held_out) and held_out is not None and not names_files(held_out):
        by_name = False
    if not by_name or not isinstance(partition, str):
        return None
    if names_files(held_out):
        options = {**options, "test": with_folder(held_out, Path.cwd())}
    chosen = {
        name: value
        for name, value in sometimes.items()
        if value is not None and value is not False
    }
    table = {"source": source, "partition": partition, **always, **chosen, **options}
    return {name: plain(value) for name, value in table.items()}


def _corrupted(fed: Federation, table: Mapping[str, Any]) -> Federation:
    require(
        isinstance(table, Mapping) and "name" in table,
        f"corruption {table!r} has no name",
    )
    return fed.with_corruption(**dict(table))
