"""`Run`: the results of a run, read from its ledger."""

from __future__ import annotations

import sqlite3
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.core.errors import InvalidOption, LedgerError, require, suggest
from poise.core.sensitivity import Group, recorded_groups
from poise.core.types import HELD, PERSONAL, Assignment, Floats, Record, Step
from poise.ledger import client_states, models, rows, schema
from poise.ledger.recovery import good_entries
from poise.ledger.store import DATABASE, EXPERIMENT, MODELS, Ledger

if TYPE_CHECKING:
    from poise.core.vectors import Vector

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


class Run:
    """A finished, stopped or still running run; arrays have one row per aggregation.

    Rounds before a damaged page of the ledger stay readable; ``damage`` describes the
    damage.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.histories: Any = None  # the unlearning branches of a run in memory

    @property
    def path(self) -> Path | None:
        """The run folder; None for a run in memory."""
        return self._ledger.path

    @cached_property
    def meta(self) -> dict[str, str]:
        """Metadata of the run: seed, state, versions."""
        with self._ledger.guard():
            return self._ledger.meta()

    def fact(self, key: str) -> str:
        """Return one entry of the metadata; raise if the ledger lacks it."""
        if key not in self.meta:
            raise LedgerError(
                f"{self._file} has no entry {key!r} in its metadata",
                "restore the file from a backup",
            )
        return self.meta[key]

    @property
    def _file(self) -> Path | str:
        return self.path / DATABASE if self.path else "the ledger in memory"

    @property
    def experiment(self) -> str:
        """The text of the experiment file of the run."""
        file = None if self.path is None else self.path / EXPERIMENT
        if file is None or not file.exists():
            return self.fact("experiment")
        return file.read_text(encoding="utf-8")

    @cached_property
    def rounds(self) -> int:
        """Number of readable aggregations, R."""
        database = self._ledger.database
        with self._ledger.guard():
            try:
                count, last = database.execute(
                    "SELECT count(*), max(n) FROM rounds"
                ).fetchone()
                database.execute(
                    "SELECT sum(client), sum(coefficient) FROM contributions"
                ).fetchone()
                database.execute(
                    "SELECT sum(value), sum(length(per_client)) FROM metrics"
                ).fetchone()
                expected = 0 if last is None else last + 1
                if count == expected:
                    return int(count)
            except sqlite3.Error as error:
                if not schema.is_damage(error):
                    raise
            return len(good_entries(database)[0])

    @cached_property
    def damage(self) -> str:
        """The problem of the first missing or altered round; empty if none."""
        with self._ledger.guard():
            return good_entries(self._ledger.database)[1]

    @property
    def newest_record(self) -> Record | None:
        """The last record before the first damaged one; None if there is none."""
        with self._ledger.guard():
            entries, _ = good_entries(self._ledger.database)
        return entries[-1].record if entries else None

    @property
    def clients(self) -> int:
        """Number of clients, N."""
        return int(self.fact("clients"))

    @property
    def digest(self) -> str:
        """The hash of everything recorded: equal for equal runs."""
        return self.digest_after(self.rounds)

    def digest_after(self, n: int) -> str:
        """Return the hash of the first n rounds."""
        digests = self._query("SELECT digest FROM rounds WHERE n < ? AND n = ?", n - 1)
        if digests:
            return str(digests[0][0])
        return rows.GENESIS

    @property
    def trainable(self) -> int:
        """Number of trained entries; batch-norm statistics come after them."""
        return int(self.fact("trainable"))

    @property
    def model(self) -> Floats:
        """The newest model, (d,)."""
        return self.models(self.rounds)

    def models(self, n: int) -> Floats:
        """The model after n aggregations, (d,), if kept; n = 0 is the initial one."""
        if not 0 <= n <= self.rounds:
            raise InvalidOption(
                f"the run has no model after {n} aggregations",
                f"it has {self.rounds} aggregations",
            )
        theta: Vector = self._ledger.store.get(models.name(n), self.model_hash(n))[
            "theta"
        ]
        return np.asarray(theta.cpu().numpy())

    def client_model(self, client: int) -> Floats:
        """The model that a client uses, (d,): the newest, with its personal layers.

        A client that has not taken part yet uses the newest model unchanged.
        """
        require(
            0 <= client < self.clients,
            f"there is no client {client}",
            f"clients are 0 to {self.clients - 1}",
        )
        model = self.model.copy()
        positions = self.array("personal")
        if positions is None and "personal" not in self.experiment:
            return model
        with self._ledger.guard():
            entries, _ = good_entries(self._ledger.database)
            state = client_states.read(self._ledger.store, entries).get(client, {})
        if HELD in state:
            raise LedgerError(
                (
                    f"the personal layers of client {client} are on its node and do not "
                    "leave it"
                ),
                "read them on the node",
            )
        if PERSONAL in state:
            if positions is None:
                raise LedgerError(
                    (
                        "poise 0.1 made this run and did not record which entries are "
                        "personal"
                    ),
                    "`poise resume RUN --rounds N` records them",
                )
            model[positions] = state[PERSONAL].cpu().numpy()
        return model

    @property
    def kept(self) -> list[int]:
        """The n for which `models` has a model."""
        return [v for v in models.versions(self._ledger.store) if v <= self.rounds]

    def model_file(self, n: int) -> Path | None:
        """Return the file of the model after n aggregations; None in memory."""
        if self.path is None:
            return None
        return self.path / MODELS / f"{models.name(n)}.safetensors"

    def model_hash(self, n: int) -> str | None:
        """Return the recorded hash of the model after n aggregations."""
        if n == 0:
            return self.meta.get("initial")
        hashes = self._query("SELECT model FROM rounds WHERE n < ? AND n = ?", n - 1)
        if hashes:
            return str(hashes[0][0])
        return None

    def updates(self, n: int) -> Floats:
        """The updates of aggregation n, (m, d), a row per contribution, if kept."""
        if not 0 <= n < self.rounds:
            raise InvalidOption(
                f"the run has no aggregation {n}", f"it has {self.rounds} aggregations"
            )
        if not self.keeps_updates:
            raise LedgerError(
                f"{self!r} did not keep its updates",
                "train with keep_updates=True ([run] keep_updates = true)",
            )
        ((digest,),) = self._query(
            "SELECT updates FROM rounds WHERE n < ? AND n = ?", n
        )
        if not digest:  # no client contributed
            return np.zeros((0, len(self.models(0))))
        stack: Vector = self._ledger.store.get(models.updates(n), digest)[
            models.UPDATES
        ]
        return np.asarray(stack.cpu().numpy())

    @property
    def keeps_updates(self) -> bool:
        """Whether the run kept its updates."""
        return "keep_updates" in self.meta

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups whose sensitivity training measured, as ``[unlearning] groups`` says."""
        return recorded_groups(self.meta)

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
        return np.array(
            [seconds.get(n, 0.0) for n in range(self.rounds)], dtype=np.float64
        )

    def _column(self, name: str) -> Floats:
        query = f"SELECT {name} FROM rounds WHERE n < ? ORDER BY n"
        return np.array([v for (v,) in self._query(query)], dtype=np.float64)

    @property
    def metrics(self) -> list[str]:
        """The names that `metric` knows."""
        return sorted(
            name
            for (name,) in self._query("SELECT DISTINCT name FROM metrics WHERE n < ?")
        )

    def metric(self, name: str) -> Floats:
        """A metric after each aggregation: (R,) or (R, N); nan if not measured."""
        if name not in self.metrics:
            raise InvalidOption(
                f"the run has no metric {name!r}", suggest(name, self.metrics)
            )
        query = (
            "SELECT n, value, per_client FROM metrics WHERE n < ? AND name = ? "
            "ORDER BY n"
        )
        values = self._query(query, name)
        per_client = any(blob is not None for _, _, blob in values)
        shape = (self.rounds, self.clients) if per_client else (self.rounds,)
        result = np.full(shape, np.nan)
        for n, value, blob in values:
            if blob is not None:
                result[n] = np.frombuffer(blob, dtype="<f8")
            elif value is not None:
                result[n] = value
        return result

    @cached_property
    def contributions(self) -> np.ndarray:
        """Every client's part in every aggregation, structured as in `COLUMNS`."""
        names = ", ".join("n" if c == "round" else c for c in COLUMNS.names or ())
        values = self._query(
            f"SELECT {names} FROM contributions WHERE n < ? ORDER BY n, row"
        )
        # a loss that was not reported, None, becomes nan
        return np.array(values, dtype=COLUMNS)

    @cached_property
    def weights(self) -> Floats:
        """Each client's applied coefficient in each aggregation, (R, N); 0 = none."""
        result = np.zeros((self.rounds, self.clients))
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
        by_round = {n: rows.unpacked(*cells) for n, *cells in self._query(query, name)}
        if not by_round:
            raise InvalidOption(
                f"the run has no measurement {name!r}", suggest(name, self.measurements)
            )
        shape = next(iter(by_round.values())).shape[1:]
        counts = np.bincount(self.contributions["round"], minlength=self.rounds)
        missing = [np.full((int(k), *shape), np.nan) for k in counts]
        return np.concatenate([by_round.get(n, missing[n]) for n in range(self.rounds)])

    @property
    def measurements(self) -> list[str]:
        """The names that `measurement` knows."""
        return sorted(
            name
            for (name,) in self._query(
                "SELECT DISTINCT name FROM measurements WHERE n < ?"
            )
        )

    def array(self, name: str) -> np.ndarray | None:
        """Return client data: sizes, importance, label_counts, trait/…; or None."""
        with self._ledger.guard():
            return self._ledger.array(name)

    @property
    def traits(self) -> dict[str, Floats]:
        """Designed differences between clients, (N,) each: imbalance or flip ratios."""
        with self._ledger.guard():
            query = "SELECT name FROM arrays WHERE name LIKE 'trait/%' ORDER BY name"
            names = [
                name for (name,) in self._ledger.database.execute(query).fetchall()
            ]
        return {
            name.removeprefix("trait/"): np.asarray(self.array(name)) for name in names
        }

    @property
    def refusals(self) -> list[tuple[int, int, str]]:
        """(round, client, reason) of every update that the server refused."""
        query = "SELECT n, client, reason FROM refusals WHERE n < ? ORDER BY n, row"
        return [tuple(values) for values in self._query(query)]

    @property
    def events(self) -> list[str]:
        """Events of the process: resumes, returns to a round, suspects, …."""
        return self._ledger.events()

    def rounds_to(self, target: float, metric: str = "accuracy") -> int | None:
        """The first aggregation (from 1) whose metric reached the target, or None."""
        reached = np.flatnonzero(self._curve(metric) >= target)
        if len(reached):
            return int(reached[0]) + 1
        return None

    def smoothness(self, metric: str = "accuracy") -> float:
        """std(delta)/|mean(delta)| of changes between measurements; small is smooth.

        Source: [Mansour 2023, Table 4].
        """
        values = self._curve(metric)
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

    def verify(self) -> None:
        """Recompute every digest; raise `LedgerError` for the first changed round."""
        if self.damage:
            hint = "`poise resume` goes back to the last good round"
            raise LedgerError(f"{self._file}: {self.damage}", hint)
        for n in self.kept:
            self.models(n)
        if self.keeps_updates:
            for n in range(self.rounds):
                self.updates(n)

    def settle(self) -> None:
        """Merge SQLite's log into the file; a killed process, or a reader, left it there."""
        if self.path is None:
            return
        log = self.path / f"{DATABASE}-wal"
        if not log.exists() or not log.stat().st_size:
            return
        with self._ledger.guard():
            connection = sqlite3.connect(self.path / DATABASE)
            schema.merge_log(connection)
            connection.close()

    def note(self, key: str, value: object) -> None:
        """Record metadata of a run that has ended."""
        if self.path is None:
            self._ledger.set(key, value)
        else:
            self._ledger.close()  # SQLite merges its log when the last reader leaves
            ledger = Ledger.open(self.path, writing=True)
            try:
                ledger.set(key, value)
            finally:
                ledger.close()
            self._ledger = Ledger.open(self.path)
        self.__dict__.pop("meta", None)

    def close(self) -> None:
        """Close the files."""
        self._ledger.close()

    def _query(self, query: str, *values: Any) -> list[Any]:
        with self._ledger.guard():
            return self._ledger.database.execute(
                query, (self.rounds, *values)
            ).fetchall()

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path is not None else ""
        return f"<Run of {self.rounds} rounds, {self.clients} clients{where}>"


def open_run(path: str | Path) -> Run:
    """Open the run in a folder, to read it; the run may still be going on.

    A folder with one run per seed (``DIR/seed-0``, …) is not a run: open one of its
    folders.
    """
    folder = Path(path)
    several = [*folder.glob("seed-*"), *folder.glob("shard-*")]
    seeds = sorted(p.name for p in several) if folder.is_dir() else []
    if seeds and not (folder / DATABASE).exists():
        raise LedgerError(
            f"{folder} holds several runs", f"open one of {', '.join(seeds)}"
        )
    return Run(Ledger.open(folder))


__all__ = ["Run", "open_run", "rows"]
