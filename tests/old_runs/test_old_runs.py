"""Run folders of an earlier version can be opened, audited, reported, resumed and unlearned from.

``expected.json`` has the results of uninterrupted runs from the time when the folders were made
(``make.py``), and a fingerprint of how that machine rounds. On a machine that rounds the same,
hashes must be equal; on another, numbers must agree within 1e-4.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import call, files, opened
from golden.running import ended, fingerprint
from old_runs.make import AGAIN, EXPECTED, EXPERIMENTS, HERE, REQUEST, STOPPED
from poise.backends import Local
from poise.core.errors import LedgerError

EXPECT: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
SAME_MACHINE = EXPECT["fingerprint"] == fingerprint()
BITS = (
    "model",
    "weights",
    "metrics",
    "times",
    "contributions",
    "measurements",
    "kept",
    "ledger",
)

pytestmark = pytest.mark.filterwarnings("ignore:audit", "ignore:the run began with MKL")


@pytest.fixture(params=EXPERIMENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """A copy of the run folder: reading a ledger may leave files beside it."""
    return copied(name, tmp_path)


def copied(name: str, where: Path) -> Path:
    return Path(shutil.copytree(HERE / name, where / name))


def as_expected(run: Any, name: str) -> None:
    """Compare a run with the uninterrupted run from the time when the folders were made."""
    result = ended(run)
    stored = EXPECT["runs"][name]
    if SAME_MACHINE:
        bits = set(BITS)
        if name == "in-flight":
            # personal entries no longer count as traffic, which changes bytes and ledger digests
            bits -= {"bytes", "ledger"}
        changed = [key for key in BITS if key in bits and _differs(result, stored, key)]
        assert not changed, f"{name}: changed: {', '.join(changed)}"
        return
    warnings.warn(
        "another machine made the old runs: numbers are compared within 1e-4, not bits",
        stacklevel=2,
    )
    for key in ("rounds", "model norm", "model sum", "sums of weights", "last time"):
        np.testing.assert_allclose(
            result["summary"][key],
            stored["summary"][key],
            rtol=1e-4,
            atol=1e-4,
            err_msg=key,
        )


def _differs(result: dict[str, Any], stored: dict[str, Any], key: str) -> bool:
    return bool(result["hashes"][key] != stored["hashes"][key])


def test_folders_are_small_and_at_rest(name: str) -> None:
    held = files(HERE / name)
    assert sum(map(len, held.values())) < 300_000
    assert not [file for file in held if file.endswith(("-wal", "-shm", ".part"))]
    assert not [
        file
        for file, content in held.items()
        if b"/home/" in content or b"/tmp/" in content
    ]


def test_it_opens_and_is_whole(name: str, folder: Path) -> None:
    planned = {"stopped": 10, "forgotten": 8, "in-flight": 16}[name]
    with opened(folder) as run:
        assert (run.rounds, run.meta["status"]) == (
            STOPPED.get(name, planned),
            "stopped" if name in STOPPED else "done",
        )
        assert (run.clients, run.meta["poise"]) == (6, EXPECT["made by"]["poise"])
        run.verify()
        assert np.isfinite(run.model).all()
        assert run.metric("client_loss").shape == (run.rounds, 6)
        assert run.weights.shape == (run.rounds, 6)
        assert len(run.schedule) == run.rounds


def test_a_report_is_written(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    outcome = call("report", folder, "--out", page, "--json")
    assert outcome.code == 0, outcome.err
    assert "<html" in page.read_text(encoding="utf-8")[:500]


def test_it_is_audited(name: str, folder: Path, tmp_path: Path) -> None:
    with opened(folder) as run:
        audit = poise.audit(run)
        assert audit.by_round.shape == (run.rounds, 6)
        assert audit.suspects == ([5] if name == "in-flight" else [])
    assert call("audit", folder, "--out", tmp_path / "audit.html", "--json").code == 0


def test_it_resumes_and_ends_like_an_uninterrupted_run(name: str, folder: Path) -> None:
    run = poise.resume(folder)
    try:
        assert run.meta["status"] == "done"
        as_expected(run, name)
        run.verify()
    finally:
        run.close()


def test_it_resumes_with_more_workers(name: str, folder: Path) -> None:
    run = poise.resume(folder, backend=Local(workers=2))
    as_expected(run, name)
    run.close()


def test_the_command_line_resumes_it(name: str, folder: Path) -> None:
    outcome = call("resume", folder, "--json")
    assert outcome.code == 0, outcome.err
    with opened(folder) as run:
        as_expected(run, name)


def test_a_free_rider_stays_in_quarantine(tmp_path: Path) -> None:
    folder = copied("in-flight", tmp_path)
    with opened(folder) as run:
        events = [event for event in run.events if event.startswith("audit:")]
        assert len(events) == 1
        assert "client 5 is quarantined" in events[0]
    run = poise.resume(folder)
    after_resume = [event for event in run.events if event.startswith("audit:")]
    assert after_resume == events, "the event is recorded once"
    assert (run.weights[2:, 5] == 0).all()
    run.close()


def test_work_in_flight_arrives_from_the_version_it_began_with(tmp_path: Path) -> None:
    run = poise.resume(copied("in-flight", tmp_path))
    arrived = run.contributions[run.contributions["round"] == STOPPED["in-flight"]]
    assert {(int(c["client"]), int(c["version"])) for c in arrived} >= {
        (0, 8),
        (2, 8),
        (4, 8),
    }
    run.close()


def test_the_certificate_holds(tmp_path: Path) -> None:
    certificate = (
        copied("forgotten", tmp_path) / "unlearning" / "001" / "certificate.json"
    )
    assert len(poise.unlearning.verify(certificate)) > 10
    assert call("verify", certificate, "--json").code == 0
    document = json.loads(certificate.read_text())
    assert document["clients"] == REQUEST["clients"]
    assert document["poise"] == EXPECT["made by"]["poise"]


def test_an_altered_certificate_does_not(tmp_path: Path) -> None:
    certificate = (
        copied("forgotten", tmp_path) / "unlearning" / "001" / "certificate.json"
    )
    certificate.write_text(
        certificate.read_text().replace('"epsilon": 10.0', '"epsilon": 1.0')
    )
    assert call("verify", certificate, "--json").code != 0


def test_a_second_request_goes_on_from_the_first(tmp_path: Path) -> None:
    folder = copied("forgotten", tmp_path)
    with opened(folder / "unlearning" / "001") as first:
        as_expected(first, "forgotten/1")
    unlearned = poise.unlearn(folder, noise="seeded", **AGAIN)
    as_expected(unlearned.run, "forgotten/2")
    both = sorted([*REQUEST["clients"], *AGAIN["clients"]])
    assert unlearned.certificate["forgotten so far"] == both
    unlearned.run.close()
    for number in ("001", "002"):
        assert (
            call(
                "verify", folder / "unlearning" / number / "certificate.json", "--json"
            ).code
            == 0
        ), number


@pytest.mark.parametrize("name", STOPPED, indirect=True)
def test_a_resumed_run_can_unlearn(name: str, folder: Path) -> None:
    poise.resume(folder).close()
    unlearned = poise.unlearn(
        folder,
        [2],
        method="scratch",
        target=0.0,
        min_rounds=2,
        max_rounds=3,
        heuristic=True,
    )
    assert 2 <= unlearned.rounds <= 3
    assert unlearned.path is not None
    unlearned.run.close()
    assert call("verify", unlearned.path, "--json").code == 0


def test_an_old_run_has_client_models_after_a_resume(tmp_path: Path) -> None:
    folder = copied("in-flight", tmp_path)
    with opened(folder) as run, pytest.raises(LedgerError, match=r"poise 0\.1"):
        run.client_model(0)
    poise.resume(folder).close()
    with opened(folder) as run:
        models = [run.client_model(i) for i in range(run.clients)]
        assert any(not np.array_equal(model, run.model) for model in models)
