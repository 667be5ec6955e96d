"""``poise unlearn`` and ``poise verify``: a request from plan to certificate, and clear
refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults.support import call, files, provable, run_into, small
from poise.config.unlearn_request import parse_clients
from poise.core.errors import InvalidOption

FAST = ("--min-rounds", "2", "--max-rounds", "4", "--target", "2")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_into(provable(rounds=6, keep='"unlearnable"'), tmp_path)


def test_a_request_from_plan_to_certificate(run: Path) -> None:
    plan = call("unlearn", run, "--clients", "1", "--plan", "--json")
    assert plan.code == 0, plan.err
    looked = json.loads(plan.out)
    assert looked["limit"] == pytest.approx(0.1428, abs=1e-4)
    assert not (run / "unlearning").exists()
    done = call("unlearn", run, "--clients", "1", *FAST, "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert [said["restart"]["branch"], said["restart"]["round"]] == looked["restart"]
    assert said["result"]["rounds"] == 4
    assert said["finished"]
    page = Path(said["page"]).read_text(encoding="utf-8")
    for words in (
        "Restart tree",
        "Sensitivity to the clients, the training",
        "epsilon 10, delta 0.01",
    ):
        assert words in page, words
    held = call("verify", said["path"])
    assert held.code == 0, held.err
    assert "the certificate holds" in held.out
    assert json.loads(call("verify", said["path"], "--json").out)["holds"]


def test_people_get_words(run: Path) -> None:
    plan = call("unlearn", run, "--clients", "0,1", "--plan")
    for words in ("restart", "rounds given up", "models to restart from"):
        assert words in plan.out
    done = call("unlearn", run, "--clients", "0,1", *FAST, "--measure-forgotten")
    for words in (
        "epsilon 10, delta 0.01",
        "target not reached",
        "unlearned clients",
        "certificate.json",
    ):
        assert words in done.out, words


def test_mistakes_are_told(run: Path, tmp_path: Path) -> None:
    unknown = call("unlearn", run, "--clients", "99")
    assert (unknown.code, "there is no client 99" in unknown.err) == (2, True)
    method = call("unlearn", run, "--clients", "1", "--method", "forget", *FAST)
    assert (method.code, "method = 'forget'" in method.err) == (2, True)
    nothing = call("unlearn", tmp_path / "none", "--clients", "1")
    assert (nothing.code, "is not a run folder" in nothing.err) == (1, True)
    said = json.loads(call("unlearn", run, "--clients", "1", *FAST, "--json").out)
    path = Path(said["path"])
    path.write_bytes(path.read_bytes().replace(b'"epsilon": 10.0', b'"epsilon": 0.10'))
    altered = call("verify", path)
    assert (altered.code, "was altered" in altered.err) == (1, True)


def test_lists_of_clients() -> None:
    assert parse_clients("0..2,9") == (0, 1, 2, 9)
    for text in ("", "a", "1,", "3..", "-1"):
        with pytest.raises(InvalidOption, match="--clients"):
            parse_clients(text)


def test_a_declared_budget_is_what_is_promised(tmp_path: Path) -> None:
    text = (
        provable(rounds=4, keep='"unlearnable"')
        + "[unlearning]\nepsilon = 4.0\nsigma = 0.2\n"
    )
    run = run_into(text, tmp_path)
    said = json.loads(call("unlearn", run, "--clients", "1", *FAST, "--json").out)
    assert (
        said["guarantee"]["epsilon"],
        said["guarantee"]["delta"],
        said["noise"]["sigma"],
    ) == (
        4.0,
        0.01,
        0.2,
    )
    other = call("unlearn", run, "--clients", "2", "--epsilon", "5", *FAST)
    assert (other.code, "another guarantee" in other.err) == (2, True)


def test_a_heuristic_is_called_one(tmp_path: Path) -> None:
    run = run_into(small(rounds=4, keep='"unlearnable"'), tmp_path)
    refused = call("unlearn", run, "--clients", "1", *FAST)
    assert "L, the largest curvature of a client's loss, is unknown" in refused.err
    done = call("unlearn", run, "--clients", "1", "--heuristic", *FAST)
    assert done.code == 0, done.err
    words = " ".join(done.out.split())
    for said in ("not proved, as a heuristic: epsilon 10", "largest curvature"):
        assert said in words, said


def test_keys_are_made_listed_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISE_KEYS", str(tmp_path / "keys"))
    made = json.loads(call("keys", "new", "--json").out)
    assert json.loads(call("keys", "list", "--json").out)["keys"] == {
        "default": made["id"]
    }
    assert json.loads(call("keys", "show", "--json").out)["id"] == made["id"]
    assert made["id"] in call("keys", "show").out
    assert call("keys", "export").out.startswith("-----BEGIN PUBLIC KEY-----")
    again = call("keys", "new")
    assert again.code == 2
    assert "already" in again.err
    assert call("keys", "show", "nobody").code == 1


def test_verify_checks_the_key_that_it_is_given(run: Path, tmp_path: Path) -> None:
    done = call("unlearn", run, "--clients", "1", *FAST, "--json")
    path = json.loads(done.out)["path"]
    own = tmp_path / "own.pub"
    assert call("keys", "export", "--out", own).code == 0
    assert "this key was not checked" in call("verify", path).out
    held = call("verify", path, "--public-key", own)
    assert held.code == 0, held.err
    assert "signed by the key that you trust" in held.out
    own.write_text("nothing")
    refused = call("verify", path, "--public-key", own)
    assert refused.code == 1
    assert "is not a public key" in refused.err


def test_erase_removes_and_says_what_stays(run: Path) -> None:
    asked = ("unlearn", run, "--clients", "1", *FAST, "--method", "scratch")
    done = call(*asked, "--erase", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert [item["file"] for item in said["erasure"]["erased"]]
    assert [f.name for f in (run / "models").iterdir()] == ["00000000.safetensors"]
    shown = call(*asked, "--erase")
    for words in ("erased files", "stays"):
        assert words in shown.out, shown.err
    held = call("verify", said["path"])
    assert held.code == 0, held.err
    assert "no trace of the clients in the training" in held.out


def test_erase_after_a_request_finishes_later(run: Path) -> None:
    """A request without --erase, and the same request with it."""
    asked = ("unlearn", run, "--clients", "1", *FAST, "--method", "scratch")
    assert call(*asked).code == 0
    assert len(list((run / "models").iterdir())) > 1
    assert call(*asked, "--erase").code == 0
    assert len(list((run / "models").iterdir())) == 1


def content(folder: Path) -> dict[str, bytes]:
    """Every file, without those with which SQLite reads a ledger."""
    found = files(folder)
    return {n: found[n] for n in found if not n.endswith(("-shm", "-wal"))}


@pytest.mark.parametrize("fulfilled", [False, True])
def test_a_plan_with_erase_changes_nothing(run: Path, fulfilled: bool) -> None:
    asked = ("unlearn", run, "--clients", "1", *FAST, "--method", "scratch")
    if fulfilled:
        assert call(*asked).code == 0
    before = content(run)
    planned = call(*asked, "--plan", "--erase")
    assert planned.code == 0, planned.err
    assert "nothing was erased" in planned.err
    assert content(run) == before
    assert ("--erase would delete models/" in planned.err) == fulfilled
