"""Times as they were recorded: who was there when, and how long it took."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from poise.core.errors import DataError, InvalidOption, require
from poise.core.parts import part
from poise.core.types import Floats, Ints

HEADER = ["client", "start", "duration"]
NO_LAW = "a trace has no long-run times"


@part("durations", "trace")
class Trace:
    """Recorded availability: client i can begin a piece of work at ``start`` and then needs
    ``duration``.

    A client that is asked at time t begins at its first entry with start >= t: until then it is
    away. After its last entry it is away for good, and a run ends when nobody answers any more.

    Args:
        entries: a CSV file with the columns client, start, duration; or rows of these three
            numbers.

    >>> trace = Trace([(0, 0.0, 1.0), (0, 5.0, 2.0), (1, 0.0, 0.5)]).bind(2)
    >>> trace.of(np.array([0, 1]), 0, 0, 1.0)  # client 0 is away until 5, client 1 for good
    array([ 6., inf])
    """

    entries: str | Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        if not isinstance(self.entries, str):
            _by_client(enumerate(self.entries, start=1), "row")

    def __len__(self) -> int:
        """Clients that the rows name; 0 for a file, which is read when a run is composed."""
        return 0 if isinstance(self.entries, str) else 1 + max(int(row[0]) for row in self.entries)

    def for_clients(self, stay: Sequence[int]) -> Self:
        """The entries of the clients that stay, as rows."""
        place = {client: k for k, client in enumerate(stay)}
        rows = self.entries
        if isinstance(rows, str):
            rows = [row for _, row in _read(Path(rows))]
        kept = [(place[int(row[0])], row[1], row[2]) for row in rows if int(row[0]) in place]
        return replace(self, entries=tuple(kept))

    def bind(self, clients: int | None) -> RecordedTimes:
        """The times of this many clients; a client without an entry is refused."""
        if not isinstance(self.entries, str):
            found = _by_client(enumerate(self.entries, start=1), "row")
        elif clients is None:
            return RecordedTimes({})  # the file is read when the run is composed
        else:
            found = _by_client(_read(Path(self.entries)), f"{self.entries}: line")
        if clients is not None:
            known = [i for i in found if i >= clients]
            require(
                not known,
                f"Trace: client {max(known, default=0)} of {clients} clients",
                "clients count from 0",
            )
            missing = [i for i in range(clients) if i not in found]
            require(not missing, f"Trace: client {missing[0] if missing else ''} has no entry")
        return RecordedTimes(found)


@dataclass(frozen=True)
class RecordedTimes:
    """By client: the times at which work can begin, ascending, and how long it takes then."""

    entries: dict[int, tuple[Floats, Floats]]

    @property
    def last(self) -> float:
        """The last time at which anybody can begin."""
        return max((float(starts[-1]) for starts, _ in self.entries.values()), default=0.0)

    def next(self, now: float) -> float:
        """The first time after now at which anybody can begin; inf if nobody can."""
        later = [
            float(starts[starts > now].min(initial=np.inf)) for starts, _ in self.entries.values()
        ]
        return min(later, default=np.inf)

    def of(self, clients: Ints, version: int, seed: int, now: float) -> Floats:
        """The time until the answer, waiting included."""
        return np.array([self._one(int(i), now) for i in clients], dtype=np.float64)

    def _one(self, client: int, now: float) -> float:
        starts, lengths = self.entries[client]
        k = int(np.searchsorted(starts, now * (1 - 1e-12)))
        return np.inf if k == len(starts) else float(max(starts[k] - now, 0.0) + lengths[k])

    def mean(self, clients: int) -> Floats:
        """Not known."""
        raise InvalidOption(NO_LAW, "use TimeBased(times='estimated')")

    def windows(self, dt: float, clients: int) -> Floats:
        """Not known."""
        raise InvalidOption(NO_LAW, "use TimeBased(times='estimated')")


def _read(path: Path) -> list[tuple[int, list[float]]]:
    """The numbered lines of a trace file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror}", "a trace is a CSV file with client, start, duration"
        ) from error
    header = [name.strip() for name in lines[0]] if lines else []
    if header != HEADER:
        raise DataError(
            f"{path}: the first line is {','.join(header)!r}", f"it must be {','.join(HEADER)}"
        )
    try:
        return [(k, [float(v) for v in line]) for k, line in enumerate(lines[1:], start=2) if line]
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _by_client(
    rows: Iterable[tuple[int, Sequence[float]]], where: str
) -> dict[int, tuple[Floats, Floats]]:
    found: dict[int, list[tuple[float, float]]] = {}
    for number, row in rows:
        listed = isinstance(row, list | tuple)
        require(
            listed, f"Trace: {where} {number} is {row!r}", "an entry is client, start, duration"
        )
        require(
            len(row) == 3,
            f"Trace: {where} {number} has {len(row)} numbers",
            "client, start, duration",
        )
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in row)
        require(numbers, f"Trace: {where} {number}: {list(row)} are not three numbers")
        client, start, duration = row
        whole = np.isfinite(client) and client == int(client) and client >= 0
        require(whole, f"Trace: {where} {number}: client {client} is not a whole number >= 0")
        good = 0 <= start < np.inf and 0 < duration < np.inf
        require(
            good,
            (
                f"Trace: {where} {number}: start {start} and duration {duration} must be finite, "
                "start >= 0, duration > 0"
            ),
        )
        found.setdefault(int(client), []).append((float(start), float(duration)))
    require(len(found) > 0, "Trace: there is no entry")
    tables = {client: np.array(sorted(entries)).T for client, entries in found.items()}
    return {client: (table[0], table[1]) for client, table in tables.items()}
