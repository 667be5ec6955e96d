"""Rules that end a run before its last round: a condition, patience and budgets."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poise.core.directions import Directions
from poise.core.errors import InvalidOption

if TYPE_CHECKING:
    from poise.core.types import Record

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
"""The comparisons of a condition."""

_CONDITION = re.compile(r"\s*([A-Za-z]\w*)\s*(>=|<=|>|<)\s*(\S+)\s*")


@dataclass(frozen=True)
class Condition:
    """A metric compared with a number.

    >>> Condition.parse("accuracy >= 0.9").holds(0.9)
    True
    """

    metric: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition that a text names; raise if it is none."""
        match = _CONDITION.fullmatch(text)
        bound = math.nan
        if match is not None:
            try:
                bound = float(match[3])
            except ValueError:
                bound = math.nan
        if match is None or not math.isfinite(bound):
            raise InvalidOption(
                f"stop_when = {text!r} is not of the form METRIC >= NUMBER",
                'for example "accuracy >= 0.9" or "loss <= 0.3"',
                where=("stop_when",),
            )
        return cls(match[1], match[2], bound=bound)

    def holds(self, value: float) -> bool:
        """Return whether a value meets the condition; nan never does."""
        return COMPARISONS[self.comparison](value, self.bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.bound:g}"


@dataclass(frozen=True)
class EndRules:
    """The rules that end a run early; the default has none.

    Args:
        condition: ends the run once it holds.
        patience: ends the run after so many measurements without a better value.
        patience_metric: the metric of ``patience``.
        max_bytes: ends the run once clients and server have sent so many bytes.
        max_seconds: ends the run once its rounds have taken so many measured seconds.
        directions: whether large or small values of a metric are good.
    """

    condition: Condition | None = None
    patience: int | None = None
    patience_metric: str = ""
    max_bytes: int | None = None
    max_seconds: float | None = None
    directions: Directions = Directions()


class EndTracker:
    """Applies the rules to the records of a run; resuming a run repeats the decisions.

    ``reason`` says why the run has ended; it is empty while no rule applies.
    """

    def __init__(self, rules: EndRules | None = None) -> None:
        self._rules = rules or EndRules()
        self.reason = ""
        self._bytes = 0
        self._seconds = 0.0
        self._best = math.nan
        self._since_best = 0

    def resume(self, records: Iterable[Record]) -> None:
        """Take in the rounds that a run has recorded so far."""
        for record in records:
            self.add(record)

    def spends(self, record: Record, seconds: float) -> bool:
        """Return whether a round uses up a budget, so that its model must be measured."""
        bytes_sent = self._bytes + record.bytes_up + record.bytes_down
        return bool(self._spent(bytes_sent, self._seconds + seconds))

    def add(self, record: Record) -> None:
        """Take in one more round, and decide whether it is the last one."""
        self._bytes += record.bytes_up + record.bytes_down
        self._seconds += record.seconds
        self.reason = ""
        if not record.metrics:  # budgets end a run at a measured model
            return
        reasons = (
            self._condition_met(record),
            self._out_of_patience(record),
            self._spent(self._bytes, self._seconds),
        )
        self.reason = "; ".join(filter(None, reasons))

    def _condition_met(self, record: Record) -> str:
        """Return how the condition holds after a round; empty if it does not."""
        condition = self._rules.condition
        if condition is None:
            return ""
        value = _scalar(record, condition.metric)
        if value is None or not condition.holds(value):
            return ""
        return f"stop_when = {str(condition)!r}: {condition.metric} is {value:.6g}"

    def _out_of_patience(self, record: Record) -> str:
        """Count the measurements since the best one; return why that ends the run."""
        patience = self._rules.patience
        metric = self._rules.patience_metric
        value = _scalar(record, metric)
        if patience is None or value is None:
            return ""
        if self._is_better(value):
            self._best = value
            self._since_best = 0
            return ""
        self._since_best += 1
        if self._since_best < patience:
            return ""
        return (
            f"patience = {patience}: {metric} has been no better than {self._best:.6g} "
            f"for {self._since_best} measurements"
        )

    def _is_better(self, value: float) -> bool:
        """Return whether a value is better than all before; the first number always is."""
        if math.isnan(self._best):
            return not math.isnan(value)
        if self._rules.directions.lower_is_better(self._rules.patience_metric):
            return value < self._best
        return value > self._best

    def _spent(self, bytes_sent: int, seconds: float) -> str:
        """Return which budget is used up; empty if none is."""
        rules = self._rules
        if rules.max_bytes is not None and bytes_sent >= rules.max_bytes:
            return f"max_bytes = {rules.max_bytes}: {bytes_sent} bytes were sent"
        if rules.max_seconds is not None and seconds >= rules.max_seconds:
            return f"max_seconds = {rules.max_seconds:g}: rounds took {seconds:.3g} s"
        return ""


def _scalar(record: Record, metric: str) -> float | None:
    """Return the value of a metric with one value per round; None if not measured."""
    value = record.metrics.get(metric)
    if isinstance(value, float):
        return value
    return None


__all__ = ["Condition", "EndRules", "EndTracker"]
