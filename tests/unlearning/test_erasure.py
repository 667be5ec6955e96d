"""`--erase` leaves no trace of a client in the run folder, and the certificate says so."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import call
from poise import samplers, solvers
from poise.core.errors import IncompatibleParts, LedgerError, RunLocked
from poise.unlearning import erase, erasure, erasure_plan, verify

CLIENT = 1
QUICK: dict[str, Any] = {
    "target": 2.0,
    "min_rounds": 1,
    "max_rounds": 2,
    "heuristic": True,
}


def trained(out: Path, **options: Any) -> Path:
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    given = {
        "solver": solvers.SGD(lr=0.05, steps=2, batch_size=16),
        "sampler": samplers.Uniform(3),
        "rounds": 6,
        "keep": "all",
        "audit": "warn",
        "metrics": ["loss", "client_loss"],
        **options,
    }
    if "task" not in given:
        given["task"] = poise.task("logistic")
    poise.train(fed, given.pop("task"), out=out, **given).close()
    return out


def traces(run: Path) -> dict[str, list[bytes]]:
    """The bytes of everything that a ledger and its files hold of the client."""
    opened = poise.open_run(run)
    mine = np.flatnonzero(opened.contributions["client"] == CLIENT)
    found: dict[str, list[bytes]] = {"updates": [], "sketches": [], "losses": []}
    for name in opened.measurements:
        if name.startswith("moved"):
            continue
        for row in opened.measurement(name)[mine]:
            if np.isfinite(row).all() and np.any(row):
                found["sketches"].append(np.asarray(row, "<f4").tobytes()[:32])
    for column in ("loss_before", "loss_after"):
        for value in opened.contributions[column][mine]:
            if np.isfinite(value):
                found["losses"].append(np.array(value, ">f8").tobytes())
    if opened.keeps_updates:
        for n in range(opened.rounds):
            here = opened.contributions["round"] == n
            clients = opened.contributions["client"][here]
            for row in opened.updates(n)[clients == CLIENT]:
                start = int(np.flatnonzero(row)[0])
                found["updates"].append(row[start : start + 16].tobytes())
    opened.close()
    return found


def files_with(folder: Path, needles: list[bytes]) -> list[str]:
    """The files of a folder that contain one of the byte strings."""
    hits = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            if any(needle in content for needle in needles):
                hits.append(str(file.relative_to(folder)))
    return hits


def later_models(run: Path, after: int) -> list[bytes]:
    opened = poise.open_run(run)
    kept = [opened.models(n)[:16].tobytes() for n in opened.kept if n > after]
    opened.close()
    return kept


@pytest.mark.parametrize("method", ["sifu", "scratch"])
def test_no_byte_of_the_client_is_left(tmp_path: Path, method: str) -> None:
    run = trained(tmp_path / "run", keep_updates=True)
    (run / "report.html").write_text("curves of client 1")
    needles = traces(run)
    assert all(needles[kind] for kind in ("updates", "sketches"))
    before = [*needles["updates"], *needles["sketches"], *needles["losses"]]
    assert files_with(run, before)
    # with this noise the restart is after the first of two rounds of the client
    result = poise.unlearn(run, [CLIENT], method=method, sigma=0.03, **QUICK)
    restart = result.restart[1]
    assert method == "scratch" or 0 < restart < 6
    models = later_models(run, restart)
    document = erase(run)
    assert files_with(run, [*before, *models]) == []
    assert document["erasure"]["clients"] == [CLIENT]
    names = {item["file"] for item in document["erasure"]["erased"]}
    assert {"report.html", "models/00000006.safetensors"} <= names
    reasons = {item["reason"] for item in document["erasure"]["stays"]}
    assert all(reasons)
    assert result.path is not None
    checks = verify(result.path)
    assert any("no trace" in check.label for check in checks)


def test_copies_that_resume_and_the_console_made_are_erased(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    for newest in (5, 6):
        (run / "models" / f"{newest:08d}.safetensors").write_bytes(b"")
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    with pytest.warns(UserWarning, match="ledger.before-1.sqlite"):
        poise.resume(run, federation=fed, go_back=True).close()
    assert list(run.glob("ledger.before-*.sqlite"))
    console = run / "console"
    console.mkdir()
    for name in ("graph.safetensors", "inspection.html"):
        (console / name).write_text("of client 1")
    (run / "explanation.json").write_text("{}")
    before = [*traces(run)["sketches"], b"of client 1"]
    assert "ledger.before-1.sqlite" in files_with(run, before)
    result = poise.unlearn(run, [CLIENT], method="sifu", sigma=0.03, **QUICK)
    document = erase(run)
    assert files_with(run, before) == []
    names = {item["file"] for item in document["erasure"]["erased"]}
    assert {"ledger.before-1.sqlite", "explanation.json"} <= names
    assert {"console/graph.safetensors", "console/inspection.html"} <= names
    assert "did not write" not in json.dumps(document["erasure"]["stays"])
    assert result.path is not None
    verify(result.path)


def test_exact_removal_keeps_only_the_sums_of_the_others(tmp_path: Path) -> None:
    run = trained(
        tmp_path / "run",
        task=poise.ridge(),
        solver=solvers.Sums(),
        sampler=samplers.Full(),
        rounds=1,
        keep_updates=True,
        audit=None,
        metrics=(),
    )
    needles = traces(run)["updates"]
    first = poise.unlearn(run, [CLIENT], method="exact")
    erase(run)
    assert files_with(run, needles) == []
    assert first.path is not None
    document = json.loads(first.path.read_text())
    assert not any("still holds" in text for text in document["grounds"]["assumed"])
    verify(first.path)
    second = poise.unlearn(run, [3], method="exact")
    assert second.path is not None
    verify(second.path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = trained(tmp_path_factory.mktemp("erased") / "run")
    poise.unlearn(run, [CLIENT], sigma=0.03, **QUICK)
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def certificate(run: Path, index: int = 1) -> Path:
    return run / "unlearning" / f"{index:03d}" / "certificate.json"


def test_an_erased_file_that_is_back_is_found(run: Path, whole: Path) -> None:
    erase(run)
    for name in (
        "models/00000006.safetensors",
        "models/00000001.clients.safetensors",
        "report.html",
        "ledger.sqlite",
    ):
        kept = run / name
        before = kept.read_bytes() if kept.exists() else None
        source = whole / name
        kept.write_bytes(source.read_bytes() if source.exists() else b"back")
        with pytest.raises(LedgerError):
            verify(certificate(run))
        kept.unlink()
        if before is not None:
            kept.write_bytes(before)
    verify(certificate(run))


def test_an_item_that_is_not_erased_is_found(run: Path) -> None:
    """A measurement of the client is put back into the ledger, with a chain that fits."""
    document = erase(run)
    rounds = document["evidence"]["training"]["rounds"]
    assert rounds > 0
    with sqlite3.connect(run / "ledger.sqlite") as database:
        database.execute(
            "UPDATE contributions SET loss_after = 0.5 WHERE client = ?", (CLIENT,)
        )
    database.close()
    with pytest.raises(LedgerError):
        verify(certificate(run))


def test_the_erased_training_is_not_resumed(run: Path) -> None:
    erase(run)
    with pytest.raises(IncompatibleParts, match="train them again"):
        poise.resume(run, rounds=9)


def test_later_requests_work_and_cover_the_erased_clients(run: Path) -> None:
    erase(run)
    later = poise.unlearn(run, [3], sigma=0.03, **QUICK)
    assert later.path is not None
    verify(later.path)
    verify(certificate(run))
    erase(run)
    verify(later.path)
    with pytest.raises(LedgerError, match="verify the certificate of request 2"):
        verify(certificate(run))


def test_erasing_twice_changes_nothing(run: Path) -> None:
    erase(run)
    before = {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
    erase(run)
    assert {f: f.read_bytes() for f in run.rglob("*") if f.is_file()} == before


def test_methods_whose_model_rests_on_the_client_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    poise.unlearn(run, [CLIENT], method="fine-tune", **QUICK)
    before = sorted(run.rglob("*"))
    with pytest.raises(IncompatibleParts, match="rests on the last model"):
        erase(run)
    assert sorted(run.rglob("*")) == before


KILLED = """
import os, signal, sys
from pathlib import Path
count = int(sys.argv[2])
def dying(name, real):
    def call(*args, **more):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)
    return call
os.replace = dying("replace", os.replace)
os.fsync = dying("fsync", os.fsync)
Path.unlink = dying("unlink", Path.unlink)
from poise.unlearning import erase
erase(sys.argv[1])
"""


def state(run: Path) -> dict[str, Any]:
    """What an erasure must leave: file names, digests, and the certificate's tables."""
    document = json.loads(certificate(run).read_text())
    opened = poise.open_run(run)
    result = {
        "files": sorted(str(f.relative_to(run)) for f in run.rglob("*")),
        "digest": opened.digest,
        "document": {k: v for k, v in document.items() if k != "digest"},
    }
    opened.close()
    return result


@pytest.mark.thorough
def test_killed_anywhere_and_repeated_it_ends_in_the_same_state(
    run: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(run, whole)
    erase(run)
    expected = state(run)
    kills = 0
    for count in range(40):
        again = tmp_path / f"killed-{count}"
        shutil.copytree(whole, again)
        command = [sys.executable, "-c", KILLED, str(again), str(count)]
        died = subprocess.run(command, check=False, env=dict(os.environ)).returncode
        if died == 0:
            break
        assert died == -signal.SIGKILL
        kills += 1
        erase(again)
        assert state(again) == expected
        verify(certificate(again))
        shutil.rmtree(again)
    assert kills > 10


def test_a_request_during_an_unfinished_erasure_is_refused(run: Path) -> None:
    (run / "unlearning" / "001" / "erasure.json").write_text("{}")
    with pytest.raises(LedgerError, match="is not finished"):
        poise.unlearn(run, [3], sigma=0.03, **QUICK)


def without_last_signature(run: Path) -> None:
    """What a kill leaves: the end of the training is in the ledger, but not signed."""
    log = run / "evidence.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))


def test_rounds_that_nobody_signed_are_signed_before_they_are_erased(
    run: Path,
) -> None:
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    poise.resume(run, federation=fed, rounds=8).close()
    without_last_signature(run)
    erase(run)
    checks = verify(certificate(run))
    assert any("before it is the one signed" in check.label for check in checks)


def test_a_training_with_other_digests_than_signed_is_not_erased(run: Path) -> None:
    """The rounds that were signed after the certificate are gone."""
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    files = [run / name for name in ("ledger.sqlite", "experiment.toml")]
    before = [file.read_bytes() for file in files]
    poise.resume(run, federation=fed, rounds=8).close()
    for file, content in zip(files, before, strict=True):
        file.write_bytes(content)
    kept = sorted(run.rglob("*"))
    with pytest.raises(LedgerError, match="nothing of it was erased"):
        erase(run)
    assert set(kept) <= set(run.rglob("*"))


def test_a_training_that_grows_during_the_erasure_is_left_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume starts after the plan was written, where locks do not work."""
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    delete = erasure._delete

    def delete_later(*arguments: Any) -> None:
        (run / "lock").unlink()
        poise.resume(run, federation=fed, rounds=8).close()
        delete(*arguments)

    monkeypatch.setattr(erasure, "_delete", delete_later)
    with pytest.raises(LedgerError, match="changed after its digest was signed"):
        erase(run)
    assert (run / "models" / "00000006.safetensors").exists()
    monkeypatch.undo()
    erase(run)
    verify(certificate(run))


def test_no_process_can_resume_during_the_erasure(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    delete = erasure._delete

    def delete_later(*arguments: Any) -> None:
        with pytest.raises(RunLocked):
            poise.resume(run, federation=fed, rounds=8)
        delete(*arguments)

    monkeypatch.setattr(erasure, "_delete", delete_later)
    erase(run)
    verify(certificate(run))


INVENTED = {"run": 0, "file": "models/00000099.safetensors", "sha256": "0" * 64}
STRANGE: tuple[object, ...] = (
    [],
    {},
    None,
    {"clients": [1], "before": [], "erased": [], "nodes": ["all nodes were burnt"]},
    {"clients": [1], "before": [], "erased": [INVENTED], "nodes": []},
    {"clients": float("nan"), "before": 1, "erased": 2, "nodes": 3},
)


@pytest.mark.parametrize("plan", STRANGE)
def test_a_plan_that_poise_did_not_sign_is_refused_before_a_deletion(
    run: Path, plan: object
) -> None:
    file = run / "unlearning" / "001" / "erasure.json"
    file.write_text(json.dumps(plan))
    before = (run / "ledger.sqlite").read_bytes()
    models = sorted((run / "models").iterdir())
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"erasure\.json.*delete this file"):
            erase(run)
    assert (run / "ledger.sqlite").read_bytes() == before
    assert sorted((run / "models").iterdir()) == models
    file.unlink()
    erase(run)
    verify(certificate(run))


def interrupted(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An erasure that died before its certificate; the file of its plan."""

    def die(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(erasure, "_certify", die)
        with pytest.raises(KeyboardInterrupt):
            erase(run, nodes=["node 1 was erased"])
    return run / "unlearning" / "001" / "erasure.json"


@pytest.mark.parametrize("entry", ["before", "erased", "nodes"])
def test_an_altered_plan_is_refused_and_the_certificate_is_not_lost(
    run: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    file = interrupted(run, monkeypatch)
    plan = json.loads(file.read_text())
    plan[entry] = []
    file.write_text(json.dumps(plan))
    with pytest.raises(LedgerError, match="not a plan that a key of yours signed"):
        erase(run)
    file.unlink()
    document = erase(run)
    assert document["erasure"]["before"][0]["rounds"] == 6
    verify(certificate(run))


def test_an_interrupted_erasure_keeps_its_list(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(run, monkeypatch)
    planned = json.loads(file.read_text())
    document = erase(run)
    assert document["erasure"]["erased"] == planned["erased"]
    assert document["erasure"]["nodes"] == ["node 1 was erased"]
    assert not file.exists()
    verify(certificate(run))


def test_a_list_that_was_not_signed_before_does_not_hold(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = erasure_plan.write_plan
    monkeypatch.setattr(
        erasure, "write_plan", lambda folder, plan: write(folder, {**plan, "nodes": []})
    )
    erase(run, nodes=["invented"])
    with pytest.raises(LedgerError, match="signed before the first deletion"):
        verify(certificate(run))


def test_the_options_are_checked_before_an_erasure_goes_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(run, monkeypatch)
    for options in (("--clients", "3"), ("--clients", CLIENT, "--epsilon", "3")):
        refused = call("unlearn", run, *options, "--erase")
        assert refused.code in (1, 2), refused
        assert file.exists()
    assert json.loads(certificate(run).read_text())["erasure"] is None


@pytest.mark.parametrize("plan_is_left", [True, False])
def test_the_command_finishes_an_interrupted_erasure(
    run: Path, monkeypatch: pytest.MonkeyPatch, plan_is_left: bool
) -> None:
    file = interrupted(run, monkeypatch)
    if not plan_is_left:
        file.unlink()
    quick = ("--min-rounds", "1", "--max-rounds", "2", "--target", "2", "--heuristic")
    asked = ("--clients", CLIENT, "--sigma", "0.03", *quick)
    done = call("unlearn", run, *asked, "--erase")
    assert done.code == 0, done.err
    assert "finished the erasure" in done.err
    verify(certificate(run))


def test_pages_of_others_stay_and_are_named(run: Path) -> None:
    notes = run / "notes.html"
    notes.write_text("<p>client 1</p>")
    own = run / "curves.html"
    written = call("report", run, "--out", own)
    assert written.code == 0, written.err
    with pytest.warns(UserWarning, match=r"notes\.html: poise did not write it"):
        document = erase(run)
    assert notes.exists()
    assert not own.exists()
    assert any("notes.html" in stay["item"] for stay in document["erasure"]["stays"])
    verify(certificate(run))


FOLDERS = (
    "report.html",
    "ledger.sqlite.bak",
    "events.out.x",
    "console/x.html",
    "unlearning/x.html",
    ".x.part",
    "models/inner",
)


@pytest.mark.filterwarnings("ignore:--erase leaves")
def test_folders_with_names_of_files_stop_no_erasure(run: Path) -> None:
    for name in FOLDERS:
        (run / name).mkdir(parents=True)
    document = erase(run)
    stays = json.dumps(document["erasure"]["stays"])
    assert all((run / name).is_dir() for name in FOLDERS)
    for name in FOLDERS:
        assert name in stays or name.startswith("unlearning/")
    verify(certificate(run))


def test_a_folder_in_the_place_of_the_new_ledger_is_refused_before(run: Path) -> None:
    (run / "ledger.sqlite.erasing").mkdir()
    models = sorted((run / "models").iterdir())
    with pytest.raises(LedgerError, match="nothing was erased"):
        erase(run)
    assert sorted((run / "models").iterdir()) == models


def test_a_full_disk_says_to_repeat_the_erasure(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("poise.ledger.redaction._write_new", full)
        with pytest.raises(LedgerError, match="free some space, then repeat") as caught:
            erase(run)
    assert "resume" not in caught.value.hint
    erase(run)
    verify(certificate(run))
