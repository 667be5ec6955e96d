"""`Trace`: recorded durations and times at which each client was available."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from poise.core.errors import DataError, InvalidOption, require
from poise.core.parts import part
from poise.core.types import Floats, Ints

HEADER = ["client", "start", "duration"]
NO_MEAN = "Trace: a recorded trace has no mean times"


@part("durations", "trace")
class Trace:
    """Recorded availability: a client can begin at ``start`` and needs ``duration``.

    A client that receives work at time t begins at its first entry with start >= t and
    is away until then. After its last entry it never answers again. The run ends when
    no client answers any more.

    Args:
        entries: a CSV file with the columns client, start, duration; or rows of these
            three numbers.

    >>> trace = Trace([(0, 0.0, 1.0), (0, 5.0, 2.0), (1, 0.0, 0.5)]).bind(2)
    >>> trace.of(np.array([0, 1]), 0, 0, 1.0)  # client 0 is away until 5, client 1 for good
    array([ 6., inf])
    """

    entries: str | Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        if not isinstance(self.entries, str):
            _by_client(enumerate(self.entries, start=1), "row")

    def __len__(self) -> int:
        """Return the number of clients in the rows; 0 for a file (`bind` reads it)."""
        if isinstance(self.entries, str):
            return 0
        return 1 + max(int(row[0]) for row in self.entries)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the entries of the clients that stay, as rows."""
        new_number = {client: k for k, client in enumerate(stay)}
        rows = self.entries
        if isinstance(rows, str):
            rows = [row for _, row in _read(Path(rows))]
        kept = []
        for client, start, duration in rows:
            if int(client) in new_number:
                kept.append((new_number[int(client)], start, duration))
        return replace(self, entries=tuple(kept))

    def bind(self, clients: int | None) -> RecordedTimes:
        """Return the times of this many clients; every client needs an entry."""
        if not isinstance(self.entries, str):
            entries = _by_client(enumerate(self.entries, start=1), "row")
        elif clients is None:
            # the file is read when the number of clients is known
            return RecordedTimes({})
        else:
            entries = _by_client(_read(Path(self.entries)), f"{self.entries}: line")
        if clients is not None:
            _check_clients(entries, clients)
        return RecordedTimes(entries)


@dataclass(frozen=True)
class RecordedTimes:
    """The times at which each client can begin, ascending, and how long it takes."""

    entries: dict[int, tuple[Floats, Floats]]

    @property
    def last(self) -> float:
        """The last time at which a client can begin work."""
        return max(
            (float(starts[-1]) for starts, _ in self.entries.values()), default=0.0
        )

    def next(self, now: float) -> float:
        """Return the first time after now at which a client can begin, or inf."""
        later = [
            float(starts[starts > now].min(initial=np.inf))
            for starts, _ in self.entries.values()
        ]
        return min(later, default=np.inf)

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """Return the time until each client answers, waiting included."""
        return np.array(
            [self._time_of_client(int(i), now) for i in clients], dtype=np.float64
        )

    def _time_of_client(self, client: int, now: float) -> float:
        starts, lengths = self.entries[client]
        k = int(np.searchsorted(starts, now * (1 - 1e-12)))
        if k == len(starts):
            return np.inf
        return float(max(starts[k] - now, 0.0) + lengths[k])

    def mean(self, clients: int) -> Floats:
        """Raise `InvalidOption`: a trace has no mean times."""
        raise InvalidOption(NO_MEAN, "use TimeBased(times='estimated')")

    def windows(self, dt: float, clients: int) -> Floats:
        """Raise `InvalidOption`: a trace has no mean times."""
        raise InvalidOption(NO_MEAN, "use TimeBased(times='estimated')")


def _read(path: Path) -> list[tuple[int, list[float]]]:
    """Return the lines of a trace file with their numbers."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror}",
            "give a CSV file with the columns client, start, duration",
        ) from error
    header = [name.strip() for name in lines[0]] if lines else []
    if header != HEADER:
        raise DataError(
            f"{path}: the first line is {','.join(header)!r}",
            f"the first line must be {','.join(HEADER)}",
        )
    try:
        return [
            (k, [float(v) for v in line])
            for k, line in enumerate(lines[1:], start=2)
            if line
        ]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _by_client(
    rows: Iterable[tuple[int, Sequence[float]]], where: str
) -> dict[int, tuple[Floats, Floats]]:
    """Return starts and durations by client, both in order of the starts."""
    entries: dict[int, list[tuple[float, float]]] = {}
    for number, row in rows:
        _check_row(row, place=f"{where} {number}")
        client, start, duration = row
        entries.setdefault(int(client), []).append((float(start), float(duration)))
    require(
        len(entries) > 0,
        "Trace: there is no entry",
        "give at least one entry per client",
    )
    by_client: dict[int, tuple[Floats, Floats]] = {}
    for client_number, pairs in entries.items():
        starts, durations = np.array(sorted(pairs)).T
        by_client[client_number] = (starts, durations)
    return by_client


def _check_row(row: Sequence[float], place: str) -> None:
    """Raise `InvalidOption` unless a row is (client, start, duration)."""
    hint = "an entry is client, start, duration"
    require(isinstance(row, list | tuple), f"Trace: {place} is {row!r}", hint)
    require(len(row) == 3, f"Trace: {place} has {len(row)} numbers", hint)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in row)
    require(numbers, f"Trace: {place}: {list(row)} are not three numbers", hint)
    client, start, duration = row
    whole = np.isfinite(client) and client == int(client) and client >= 0
    require(whole, f"Trace: {place}: client {client} is not a whole number >= 0")
    require(
        0 <= start < np.inf and 0 < duration < np.inf,
        (
            f"Trace: {place}: start {start} and duration {duration} must be finite, "
            "start >= 0, duration > 0"
        ),
    )


def _check_clients(entries: Collection[int], clients: int) -> None:
    """Raise `InvalidOption` unless the entries name exactly 0 to ``clients - 1``."""
    largest = max(entries)
    require(
        largest < clients,
        f"Trace: there is an entry for client {largest}, but only {clients} clients",
        "clients count from 0",
    )
    for client in range(clients):
        require(
            client in entries,
            f"Trace: client {client} has no entry",
            "give at least one entry per client",
        )
