"""keep_updates: the ledger keeps every update, covered by the chain of digests."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import Command, opened, run_into, same, small
from ledger.doubles import quadratics
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.samplers import Binomial
from poise.solvers import SGD
from poise.training import resume

KEEPING = small(rounds=6, keep_updates="true")


def trained(
    out: Path | None = None, keep_updates: bool = True, **options: object
) -> poise.Run:
    fed = quadratics()
    given = {
        "solver": SGD(lr=0.2, steps=2),
        "rounds": 5,
        "keep": "all",
        "out": out,
        **options,
    }
    return poise.train(fed, fed.task, keep_updates=keep_updates, **given)


def test_the_updates_are_those_that_were_aggregated(tmp_path: Path) -> None:
    for run in (trained(), trained(tmp_path / "run")):
        for n in range(run.rounds):
            omega = run.contributions["coefficient"][run.contributions["round"] == n]
            deltas = run.updates(n)
            assert deltas.shape == (4, 3)
            np.testing.assert_allclose(
                run.models(n) + omega @ deltas, run.models(n + 1), rtol=1e-13
            )
    assert len(list((tmp_path / "run" / "models").glob("*.updates.safetensors"))) == 5


def test_a_round_in_which_nobody_came_has_no_updates() -> None:
    run = trained(sampler=Binomial(1), rounds=12)
    counts = np.bincount(run.contributions["round"], minlength=12)
    assert counts.min() == 0
    assert [len(run.updates(n)) for n in range(12)] == counts.tolist()


def test_they_are_not_kept_unless_asked_for_and_nothing_else_changes() -> None:
    kept, plain = trained(), trained(keep_updates=False)
    assert kept.model.tobytes() == plain.model.tobytes()
    assert kept.digest != plain.digest, "the digest vouches for the updates"
    with pytest.raises(LedgerError, match="keep_updates"):
        plain.updates(0)
    with pytest.raises(InvalidOption, match="no aggregation 5"):
        kept.updates(5)


def test_a_stopped_run_keeps_the_same_updates(tmp_path: Path) -> None:
    whole = run_into(KEEPING, tmp_path / "whole")
    path = run_into(KEEPING, tmp_path / "part", stop_after=2)
    resume(path).close()
    same(path, whole)
    with opened(path) as a, opened(whole) as b:
        assert all(a.updates(n).tobytes() == b.updates(n).tobytes() for n in range(6))
        a.verify()


def test_a_killed_run_keeps_the_same_updates(tmp_path: Path) -> None:
    text = small(rounds=60, keep_updates="true")
    whole = run_into(text, tmp_path / "whole")
    (tmp_path / "exp.toml").write_text(text)
    command, run = (
        Command(tmp_path, "run", tmp_path / "exp.toml", "--out", tmp_path / "out"),
        tmp_path / "out" / "seed-0",
    )
    while (
        command.alive and not (run / "models" / "00000020.updates.safetensors").exists()
    ):
        pass
    command.kill()
    resume(run).close()
    same(run, whole)
    with opened(run) as again:
        again.verify()


def test_an_altered_file_of_updates_is_named(tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    file = tmp_path / "run" / "models" / "00000003.updates.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with (
        opened(tmp_path / "run") as run,
        pytest.raises(LedgerError, match=r"00000003\.updates"),
    ):
        run.verify()


def test_a_ledger_that_is_made_again_still_vouches_for_the_updates(
    tmp_path: Path,
) -> None:
    whole, path = run_into(KEEPING, tmp_path / "a"), run_into(KEEPING, tmp_path / "b")
    with sqlite3.connect(path / "ledger.sqlite") as database:
        database.execute("UPDATE contributions SET coefficient = 9 WHERE n = 4")
    database.close()
    resume(path, go_back=True).close()
    assert (path / "ledger.damaged-1.sqlite").exists()
    with opened(path) as a, opened(whole) as b:
        a.verify()
        assert a.digest == b.digest


def test_a_run_goes_on_as_it_began(tmp_path: Path) -> None:
    path = run_into(KEEPING, tmp_path, stop_after=2)
    file = path / "experiment.toml"
    file.write_text(file.read_text().replace("keep_updates = true\n", ""))
    with pytest.raises(IncompatibleParts, match=r"\[run\]"):
        resume(path)


def test_a_ledger_of_schema_3_can_be_read_and_taken_up(tmp_path: Path) -> None:
    whole, path = (
        run_into(small(rounds=6), tmp_path / "a"),
        run_into(small(rounds=6), tmp_path / "b", stop_after=3),
    )
    with sqlite3.connect(path / "ledger.sqlite") as database:
        database.execute("ALTER TABLE rounds DROP COLUMN updates")
        database.execute("UPDATE meta SET value = '3' WHERE key = 'schema'")
    database.close()
    with opened(path) as old:
        assert (old.rounds, old.damage) == (3, "")
    resume(path).close()
    same(path, whole)


def test_what_is_not_true_or_false_is_refused() -> None:
    with pytest.raises(InvalidOption, match="keep_updates"):
        trained(keep_updates="yes")  # type: ignore[arg-type]
