"""Checks, before training, that metrics of a set have a value on the data of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from poise.core.samples import Shards
from poise.metrics.metric import Metric
from poise.metrics.of_set import OfSet
from poise.tasks.totals import unmeasurable

Evaluate = Callable[[str, Shards, str], object]
"""(metric, samples, name of the set) -> measure the initial model; raise if that fails."""


@dataclass(frozen=True)
class Population:
    """Sets of samples, each with its name: the test data, or those of every client."""

    name: str
    sets: Callable[[], Iterator[tuple[str, Shards]]]


def check_measurable(
    name: str, metric: Metric, population: Population, evaluate: Evaluate
) -> None:
    """Raise if a metric is undefined on every set of a population.

    Empty sets do not count: real nodes keep their samples to themselves. Functions are
    tried once, on the first set.
    """
    problems = []
    for where, shards in population.sets():
        if not len(shards.rows):
            continue
        if isinstance(metric, OfSet):
            evaluate(name, shards, where)
            return
        problem = metric.problem(shards.labels)
        if not problem:
            return
        problems.append((where, problem))
    if not problems:
        return
    where, problem = problems[0]
    if len(problems) > 1:
        where, problem = population.name, f"on {where}, {problem}"
    raise unmeasurable(name, where, problem, _hint(population))


def _hint(population: Population) -> str:
    if population.name == "the test data":
        return "leave the metric out, or give other test data"
    return "measure it on the test data, or partition the data differently"


def client_sets(
    clients: Iterable[int], shards: Callable[[int], Shards], what: str
) -> Iterator[tuple[str, Shards]]:
    """Yield the samples of each client, with their name."""
    for client in clients:
        yield f"the {what} of client {client}", shards(client)
