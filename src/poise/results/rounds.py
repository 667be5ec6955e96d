"""`RoundReader`: what happened in the rounds of a run."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from poise.core.errors import InvalidOption, LedgerError, require, suggest
from poise.core.types import Assignment, Floats, Ints, Step
from poise.ledger import rows
from poise.ledger.foreign import readable
from poise.results.reader import LedgerReader

COLUMNS = np.dtype(
    [
        ("round", "i8"),
        ("client", "i8"),
        ("version", "i8"),
        ("occurrence", "i8"),
        ("base", "f8"),
        ("coefficient", "f8"),
        ("norm", "f8"),
        ("samples", "i8"),
        ("steps", "i8"),
        ("loss_before", "f8"),
        ("loss_after", "f8"),
    ]
)


MOST_CELLS = 2**29
"""Maximum number of cells of a table with a row per round and a column per client."""


def _unique(numbers: Ints, end: int) -> Ints:
    """The different numbers below ``end``, sorted; a table is faster than sorting."""
    if end > 2**26:  # `np.unique` hashes: slower than a sort of almost sorted numbers
        ascending = np.sort(numbers)
        return ascending[np.diff(ascending, prepend=-1) > 0]
    seen = np.zeros(end, dtype=bool)
    seen[numbers] = True
    return np.flatnonzero(seen)


class RoundReader(LedgerReader):
    """Curves and tables of a run; arrays have one row per aggregation."""

    @cached_property
    def times(self) -> Floats:
        """Simulated time of each aggregation, (R,)."""
        return self._column("time")

    @cached_property
    def bytes_up(self) -> Floats:
        """Bytes sent to the server in each aggregation, (R,)."""
        return self._column("bytes_up")

    @cached_property
    def bytes_down(self) -> Floats:
        """Bytes sent to the clients in each aggregation, (R,)."""
        return self._column("bytes_down")

    @cached_property
    def seconds(self) -> Floats:
        """Measured seconds of each aggregation, (R,); not part of the digest."""
        seconds = dict(self._query("SELECT n, seconds FROM timings WHERE n < ?"))
        with readable(self._file):
            return np.array(
                [seconds.get(n, 0.0) for n in range(self.rounds)], dtype=np.float64
            )

    def _column(self, name: str) -> Floats:
        query = f"SELECT {name} FROM rounds WHERE n < ? ORDER BY n"
        values = [v for (v,) in self._query(query)]
        with readable(self._file):
            return np.array(values, dtype=np.float64)

    @property
    def metrics(self) -> list[str]:
        """The names that `metric` knows."""
        return list(self._metrics)

    @cached_property
    def _metrics(self) -> dict[str, bool]:
        """Whether each metric has one value per client, by name in order."""
        query = "SELECT name, count(per_client) FROM metrics WHERE n < ? GROUP BY name"
        return {name: bool(count) for name, count in sorted(self._query(query))}

    def is_per_client(self, name: str) -> bool:
        """Whether a metric has one value per client."""
        return self._metrics.get(name, False)

    @cached_property
    def _scalars(self) -> dict[str, Floats]:
        """The metrics with one value per aggregation that were read, by name."""
        return {}

    def metric(self, name: str) -> Floats:
        """A metric after each aggregation: (R,) or (R, N); nan if not measured."""
        if name not in self.metrics:
            raise InvalidOption(
                f"the run has no metric {name!r}", suggest(name, self.metrics)
            )
        if not self.is_per_client(name):
            if name not in self._scalars:
                self._scalars[name] = self._read_metric(name, (self.rounds,))
            return self._scalars[name].copy()
        return self._read_metric(name, self._table_shape())

    def _read_metric(self, name: str, shape: tuple[int, ...]) -> Floats:
        query = (
            "SELECT n, value, per_client FROM metrics WHERE n < ? AND name = ? "
            "ORDER BY n"
        )
        values = self._query(query, name)
        with readable(self._file):
            result = np.full(shape, np.nan)
            for n, value, blob in values:
                if blob is not None:
                    result[n] = np.frombuffer(blob, dtype="<f8")
                elif value is not None:
                    result[n] = value
            return result

    def _table_shape(self) -> tuple[int, int]:
        """The shape (R, N), if a table of that shape fits into the memory."""
        if self.rounds * self.clients > MOST_CELLS:
            raise LedgerError(
                f"{self._file}: {self.rounds} rounds of {self.clients} clients are too "
                "many for one table",
                "read `contributions`, which has a row for each part taken",
            )
        return self.rounds, self.clients

    @cached_property
    def participants(self) -> Ints:
        """The different clients of each aggregation: sorted rows (round, client)."""
        if "contributions" in vars(self):
            rounds = self.contributions["round"]
            clients = self.contributions["client"]
        else:
            rounds, clients = self._read_participants()
        self._check_range("round", rounds, self.rounds)
        self._check_range("client", clients, self.clients)
        pairs = _unique(rounds * self.clients + clients, self.rounds * self.clients)
        return np.stack([pairs // self.clients, pairs % self.clients], axis=1)

    def _read_participants(self) -> tuple[Ints, Ints]:
        """The aggregation and the client of each contribution, without the rest."""
        query = (
            "SELECT n, count(*), group_concat(client) FROM contributions WHERE n < ? "
            "GROUP BY n ORDER BY n"
        )
        rows = self._query(query)
        with readable(self._file):
            numbers = np.array([n for n, _, _ in rows], dtype=np.int64)
            counts = np.array([count for _, count, _ in rows], dtype=np.int64)
            words = ",".join(text for _, _, text in rows).split(",")
            clients = np.array(words if rows else [], dtype=np.int64)
            if counts.sum() != len(clients):
                raise ValueError("a contribution has no client")
        return numbers.repeat(counts), clients

    def _check_range(self, column: str, values: Ints, most: int) -> None:
        """Raise if a contribution names a round or a client that the run lacks."""
        if len(values) and not 0 <= values.min() <= values.max() < most:
            raise LedgerError(
                f"{self._file}: a contribution names a {column} that the run lacks",
                "restore the file from a backup",
            )

    @cached_property
    def contributions(self) -> np.ndarray:
        """Every client's part in every aggregation, structured as in `COLUMNS`."""
        names = ", ".join("n" if c == "round" else c for c in COLUMNS.names or ())
        values = self._query(
            f"SELECT {names} FROM contributions WHERE n < ? ORDER BY n, row"
        )
        with readable(self._file):
            # a loss that was not reported, None, becomes nan
            table = np.array(values, dtype=COLUMNS)
        self._check_range("round", table["round"], self.rounds)
        self._check_range("client", table["client"], self.clients)
        return table

    @cached_property
    def weights(self) -> Floats:
        """Each client's applied coefficient in each aggregation, (R, N); 0 = none."""
        result = np.zeros(self._table_shape())
        c = self.contributions
        np.add.at(result, (c["round"], c["client"]), c["coefficient"])
        return result

    @cached_property
    def schedule(self) -> list[Step]:
        """The arrivals of each aggregation, for `save_schedule` and `Replay`."""
        arrived: list[list[Assignment]] = [[] for _ in range(self.rounds)]
        for c in self.contributions:
            n = int(c["round"])
            assignment = Assignment(
                float(self.times[n]),
                client=int(c["client"]),
                version=int(c["version"]),
                occurrence=int(c["occurrence"]),
            )
            arrived[n].append(assignment)
        return [
            Step(n, float(self.times[n]), tuple(assignments))
            for n, assignments in enumerate(arrived)
        ]

    def measurement(self, name: str) -> Floats:
        """The values of a probe, one row for each of `contributions`, or nan."""
        query = (
            "SELECT n, dtype, width, data FROM measurements WHERE n < ? AND name "
            "= ? ORDER BY n"
        )
        with readable(self._file):
            by_round = {
                n: rows.unpacked(*cells) for n, *cells in self._query(query, name)
            }
        if not by_round:
            raise InvalidOption(
                f"the run has no measurement {name!r}", suggest(name, self.measurements)
            )
        shape = next(iter(by_round.values())).shape[1:]
        counts = np.bincount(self.contributions["round"], minlength=self.rounds)
        missing = [np.full((int(k), *shape), np.nan) for k in counts]
        values = [by_round.get(n, missing[n]) for n in range(self.rounds)]
        if any(len(v) != k for v, k in zip(values, counts, strict=True)):
            raise LedgerError(
                f"{self._file}: the measurement {name!r} has not one value for each "
                "contribution",
                "restore the file from a backup",
            )
        with readable(self._file):
            return np.concatenate(values)

    @property
    def measurements(self) -> list[str]:
        """The names that `measurement` knows."""
        return sorted(
            name
            for (name,) in self._query(
                "SELECT DISTINCT name FROM measurements WHERE n < ?"
            )
        )

    @property
    def refusals(self) -> list[tuple[int, int, str]]:
        """(round, client, reason) of every update that the server refused."""
        query = "SELECT n, client, reason FROM refusals WHERE n < ? ORDER BY n, row"
        return [tuple(values) for values in self._query(query)]

    def rounds_to(self, target: float, metric: str = "accuracy") -> int | None:
        """The first aggregation (from 1) whose metric reached the target, or None.

        A loss reaches the target from above, an accuracy from below (`directions`).
        """
        values = self._curve(metric)
        if self.directions.lower_is_better(metric):
            reached = np.flatnonzero(values <= target)
        else:
            reached = np.flatnonzero(values >= target)
        if len(reached):
            return int(reached[0]) + 1
        return None

    def smoothness(
        self, metric: str = "accuracy", first: int = 1, last: int | None = None
    ) -> float:
        """std(delta)/|mean(delta)| of changes between measurements; small is smooth.

        Args:
            metric: one value per aggregation.
            first: the first aggregation that counts, from 1.
            last: the last one; None for the end of the run.

        Source: [Mansour 2023, Table 4].
        """
        values = self._curve(metric)[first - 1 : last]
        changes = np.diff(values[~np.isnan(values)])
        if not len(changes):
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            # inf where the mean change is 0, nan where nothing changes
            return float(np.std(changes) / abs(np.mean(changes)))

    def _curve(self, metric: str) -> Floats:
        """Return a metric with one value per aggregation."""
        values = self.metric(metric)
        require(
            values.ndim == 1,
            f"{metric} has one value per client",
            "choose a metric of the model",
        )
        return values
