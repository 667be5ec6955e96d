"""`Totals`: sums of values per sample, and states of metrics of a set, over samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from poise.core.errors import IncompatibleParts, PoiseError
from poise.metrics.metric import Metric, State


@dataclass(frozen=True)
class Totals:
    """What a pass over some samples leaves of each metric."""

    sums: dict[str, float]
    states: dict[str, State]


def values_of(
    parts: Sequence[Totals], metrics: Mapping[str, Metric], samples: int, where: str
) -> dict[str, float]:
    """Return the value of each metric over the samples of all parts, merged in order.

    ``where`` names the set of samples for errors.
    """
    values = {
        name: sum(part.sums[name] for part in parts) / samples for name in parts[0].sums
    }
    for name in parts[0].states:
        metric = metrics[name]
        state = metric.init()
        for part in parts:
            state = metric.merge(state, part.states[name])
        try:
            values[name] = metric.value(state)
        except IncompatibleParts as error:
            raise unmeasurable(name, where, error.message, error.hint) from error
    return values


def unmeasurable(
    name: str, where: str, problem: str, hint: str = "leave the metric out"
) -> IncompatibleParts:
    """Return the error of a metric that has no value on a set of samples."""
    return IncompatibleParts(
        f"metric {name!r} cannot be measured on {where}: {problem}", hint
    )


@contextmanager
def measuring(what: str) -> Iterator[None]:
    """Name what of the user's code fails while poise measures a model."""
    try:
        yield
    except PoiseError:
        raise
    except Exception as error:  # the code is the user's: it may raise anything
        raise IncompatibleParts(
            f"{what} fails while poise measures it: {type(error).__name__}: {error}",
            "it must take all samples that are measured, in blocks of any size",
        ) from error
