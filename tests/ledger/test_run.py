"""`Run` and the ledger that it reads."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from faults.support import opened, run_into, small
from ledger.doubles import quadratics
from poise.core.errors import InvalidOption, LedgerError
from poise.core.types import Contribution, Record
from poise.ledger import rows
from poise.ledger.models import FileStore, MemoryStore, content_hash
from poise.ledger.store import Ledger
from poise.results import Run, open_run
from poise.samplers import Uniform
from poise.solvers import SGD


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = small(rounds=6, keep='"last"', evaluate_every=2)
    return run_into(text, tmp_path_factory.mktemp("run"))


def by_hand(values: list[float], path: Path | None = None) -> Run:
    """A run whose accuracy took these values (nan: not measured)."""
    ledger = Ledger.create(
        path,
        {"clients": 2, "seed": 0, "keep": "all", "experiment": "", "status": "done"},
        {},
    )
    theta = torch.zeros(3)
    ledger.start(theta)
    for n, value in enumerate(values):
        metrics: dict[str, Any] = (
            {}
            if np.isnan(value)
            else {"accuracy": value, "client_loss": np.array([value, 1.0])}
        )
        made = (
            Contribution(n % 2, n, 0, 0.5, 0.25, 1.0, 10, 1),
            Contribution(n % 2, n, 1, 0.5, 0.5, 1.0, 10, 1),
        )
        ledger.append(Record(n, float(n + 1), made, metrics, 8, 4), theta + n, {})
    return Run(ledger)


# reading
# --------------------------------------------------------------------------------------------


def test_shapes_and_missing_measurements(path: Path) -> None:
    with opened(path) as run:
        assert (run.rounds, run.clients) == (6, 10)
        assert run.metrics == ["accuracy", "client_loss", "loss"]
        assert np.isnan(run.metric("accuracy")).tolist() == [True, False] * 3
        assert run.metric("client_loss").shape == (6, 10)
        assert run.weights.shape == (6, 10)
        assert ((run.weights > 0).sum(axis=1) == 4).all()
        assert run.times.tolist() == [1, 2, 3, 4, 5, 6]
        assert (
            run.bytes_up.tolist()
            == run.bytes_down.tolist()
            == [4 * 4 * len(run.model)] * 6
        )
        assert len(run.contributions) == 24
        assert run.refusals == []
        sizes = run.array("sizes")
        assert sizes is not None
        assert sizes.sum() == 300
        assert run.array("nothing") is None
        assert "Run of 6 rounds, 10 clients" in repr(run)
        run.verify()


def test_the_last_round_is_always_measured(tmp_path: Path) -> None:
    with opened(run_into(small(rounds=5, evaluate_every=3), tmp_path)) as run:
        assert np.isnan(run.metric("accuracy")).tolist() == [
            True,
            True,
            False,
            True,
            False,
        ]


def test_a_client_drawn_twice_counts_with_the_sum_of_its_coefficients() -> None:
    assert by_hand([0.1, 0.2, 0.3]).weights.tolist() == [
        [0.75, 0],
        [0, 0.75],
        [0.75, 0],
    ]


def test_models_are_those_that_were_kept(path: Path) -> None:
    with opened(path) as run:
        assert run.kept == [0, 5, 6]
        assert run.models(6).tobytes() == run.model.tobytes()
        assert run.models(0).shape == run.model.shape
        with pytest.raises(
            LedgerError,
            match=r"00000003\.safetensors is not there: that model was not kept",
        ):
            run.models(3)
        for n in (-1, 7):
            with pytest.raises(InvalidOption, match=f"no model after {n} aggregations"):
                run.models(n)


def test_a_run_in_memory_says_what_was_not_kept() -> None:
    fed = quadratics()
    run = poise.train(fed, fed.task, SGD(lr=0.1, steps=1), rounds=4)
    assert run.path is None
    assert run.kept == [0, 3, 4]
    with pytest.raises(LedgerError, match="was not kept"):
        run.models(1)


def test_memory_and_disk_hold_the_same_run(tmp_path: Path) -> None:
    fed = quadratics(8)
    one = poise.train(fed, fed.task, SGD(lr=0.1, steps=2), Uniform(3), rounds=5, seed=3)
    two = poise.train(
        fed,
        fed.task,
        SGD(lr=0.1, steps=2),
        Uniform(3),
        rounds=5,
        seed=3,
        out=tmp_path / "run",
    )
    assert one.digest == two.digest
    assert one.model.tobytes() == two.model.tobytes()
    three = poise.train(
        fed, fed.task, SGD(lr=0.1, steps=2), Uniform(3), rounds=5, seed=4
    )
    assert three.digest != one.digest


def test_unknown_metrics_are_refused_by_the_nearest_name(path: Path) -> None:
    with (
        opened(path) as run,
        pytest.raises(InvalidOption, match="did you mean 'accuracy'"),
    ):
        run.metric("acuracy")


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([0.1, 0.5, 0.4, 0.7], 0.5, 2),
        ([0.1, 0.5, 0.4, 0.7], 0.6, 4),
        ([0.1, 0.5], 0.9, None),
        ([float("nan"), 0.5, float("nan"), 0.7], 0.7, 4),
        ([0.9], 0.9, 1),
    ],
)
def test_rounds_to(values: list[float], target: float, expected: int | None) -> None:
    assert by_hand(values).rounds_to(target) == expected


def test_rounds_to_asks_for_one_value_per_round() -> None:
    with pytest.raises(InvalidOption, match="client_loss has one value per client"):
        by_hand([0.1, 0.2]).rounds_to(0.5, "client_loss")


def test_smoothness_is_the_spread_of_the_changes_over_their_mean() -> None:
    changes = np.array([0.2, -0.1, 0.3])
    run = by_hand(list(np.cumsum([0.1, *changes])))
    assert run.smoothness() == pytest.approx(changes.std() / abs(changes.mean()))
    skipped = by_hand([0.1, float("nan"), 0.3, float("nan"), 0.2, 0.5])
    assert skipped.smoothness() == pytest.approx(changes.std() / abs(changes.mean()))
    assert np.isnan(by_hand([0.5]).smoothness())
    with np.errstate(all="raise"):
        assert by_hand([0.25, 0.5, 0.25]).smoothness() == float("inf")


# the chain
# ------------------------------------------------------------------------------------------


def test_every_digest_vouches_for_all_before_it() -> None:
    one, other = by_hand([0.1, 0.2, 0.3]), by_hand([0.1000001, 0.2, 0.3])
    digests = [
        [
            d
            for (d,) in run._ledger.database.execute(
                "SELECT digest FROM rounds ORDER BY n"
            )
        ]
        for run in (one, other)
    ]
    assert all(a != b for a, b in zip(*digests, strict=True))
    assert len({*digests[0], *digests[1]}) == 6
    assert by_hand([0.1, 0.2, 0.3]).digest == one.digest
    assert by_hand([0.1, 0.2]).digest == digests[0][1]


def test_a_digest_covers_everything_but_wall_clock_time() -> None:
    made = (Contribution(0, 0, 0, 0.5, 0.5, 1.0, 10, 1, 2.0, 1.0),)
    record = Record(0, 1.0, made, {"accuracy": 0.5}, 8, 4)
    first = rows.digest_of(rows.GENESIS, record, rows.Hashes("m"))
    same = dataclasses.replace(record, seconds=99.0)
    assert rows.digest_of(rows.GENESIS, same, rows.Hashes("m")) == first
    others = [
        dataclasses.replace(record, time=1.5),
        dataclasses.replace(record, bytes_up=9),
        dataclasses.replace(record, metrics={"accuracy": 0.25}),
        dataclasses.replace(record, contributions=()),
        dataclasses.replace(record, index=1),
        *(
            dataclasses.replace(
                record, contributions=(dataclasses.replace(made[0], **{name: 3}),)
            )
            for name in (f.name for f in dataclasses.fields(made[0]))
        ),
    ]
    digests = {
        rows.digest_of(rows.GENESIS, other, rows.Hashes("m")) for other in others
    }
    digests |= {
        rows.digest_of(rows.GENESIS, record, h)
        for h in (rows.Hashes("n"), rows.Hashes("m", "s"))
    }
    assert len(digests) == len(others) + 2
    assert first not in digests


def test_a_record_is_read_as_it_was_written() -> None:
    run = by_hand([0.5, float("nan")])
    found = rows.select(run._ledger.database, 1)
    assert found is not None
    assert (found[0].index, found[0].metrics, len(found[0].contributions)) == (1, {}, 2)
    assert rows.select(run._ledger.database, 2) is None


# opening
# --------------------------------------------------------------------------------------------


def test_a_folder_with_seeds_is_not_a_run(path: Path) -> None:
    with pytest.raises(LedgerError, match="is not a run folder, but holds one") as one:
        open_run(path.parent)
    assert one.value.hint == f"name the run: {path}"


def test_a_folder_with_several_seeds_names_them(tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
    with pytest.raises(LedgerError, match="holds several runs") as caught:
        open_run(tmp_path)
    assert caught.value.hint == "open one of seed-0, seed-1"


@pytest.mark.parametrize("name", ["", "nothing", "file"])
def test_what_is_no_run_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="is not a run folder"):
        open_run(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"], (
        "reading makes no files"
    )


@pytest.mark.parametrize("version", ["1", "6", "new"])
def test_another_schema_version_is_refused_and_left_alone(
    version: str, tmp_path: Path
) -> None:
    by_hand([0.1], tmp_path / "run").close()
    with sqlite3.connect(tmp_path / "run" / "ledger.sqlite") as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (version,))
    database.close()
    before = (tmp_path / "run" / "ledger.sqlite").read_bytes()
    with pytest.raises(
        LedgerError, match=f"schema version {version}, this poise reads versions 3 to 5"
    ):
        open_run(tmp_path / "run")
    assert (tmp_path / "run" / "ledger.sqlite").read_bytes() == before


def test_resume_refuses_another_schema_version_too(tmp_path: Path) -> None:
    path = run_into(small(rounds=2), tmp_path)
    with sqlite3.connect(path / "ledger.sqlite") as database:
        database.execute("UPDATE meta SET value = '1' WHERE key = 'schema'")
    database.close()
    with pytest.raises(LedgerError, match="schema version 1"):
        poise.resume(path)
    assert not list(path.glob("ledger.damaged*")), "a later version is not damage"


def test_a_reader_cannot_write(path: Path) -> None:
    with opened(path) as run, pytest.raises(LedgerError, match="readonly"):
        run._ledger.set("status", "altered")


# models on disk
# -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_store_gives_back_what_it_was_given(where: str, tmp_path: Path) -> None:
    store = MemoryStore() if where == "memory" else FileStore(tmp_path / "models")
    tensors = {
        "theta": torch.arange(5.0),
        "velocity": torch.ones(2, 2, dtype=torch.float64),
    }
    digest = store.put("00000001", tensors)
    assert digest == content_hash(tensors)
    found = store.get("00000001", digest)
    assert {k: (v.dtype, v.tolist()) for k, v in found.items()} == {
        k: (v.dtype, v.tolist()) for k, v in tensors.items()
    }
    tensors["theta"][0] = 7.0
    assert store.get("00000001")["theta"][0] == 0.0, (
        "what is kept does not change afterwards"
    )
    assert store.keys() == ["00000001"]
    store.drop("00000001")
    store.drop("00000001")
    assert store.keys() == []
    with pytest.raises(LedgerError, match="not kept"):
        store.get("00000001")


def test_a_content_hash_depends_on_names_shapes_types_and_values() -> None:
    one = torch.zeros(4)
    others = [
        {"a": one},
        {"b": one},
        {"a": one.reshape(2, 2)},
        {"a": one.double()},
        {"a": one + 1},
        {"a": one[:3]},
    ]
    assert len({content_hash(o) for o in others}) == len(others)
    big = torch.arange(10_000.0)
    assert content_hash({"a": big}) == content_hash({"a": big.clone()})
    assert content_hash({"a": big}) != content_hash({"a": big.flip(0)})
