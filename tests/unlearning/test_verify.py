"""`verify` accepts a certificate as written, and detects every changed byte it rests on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise import samplers, solvers
from poise.core.errors import IncompatibleParts, LedgerError
from poise.training import resume
from poise.unlearning import sensitivity_budget, verify
from poise.unlearning.certificate import canonical, digest_of, facts_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that honoured two requests."""
    fed = poise.federation("digits", "dirichlet", clients=6, alpha=0.5, samples=300)
    out = tmp_path_factory.mktemp("certified") / "run"
    poise.train(
        fed,
        poise.task("logistic"),
        solver=solvers.SGD(lr=0.05, steps=2, batch_size=16),
        sampler=samplers.Uniform(3),
        rounds=8,
        keep="all",
        out=out,
    )
    for clients in ([1], [4]):
        poise.unlearn(out, clients, sigma=0.1, target=2.0, min_rounds=2, max_rounds=4)
    return out


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def certificate(run: Path, index: int = 2) -> Path:
    return run / "unlearning" / f"{index:03d}" / "certificate.json"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x01
    path.write_bytes(bytes(content))


def test_it_holds_wherever_the_run_lies(run: Path) -> None:
    for index in (1, 2):
        checks = verify(certificate(run, index))
        assert len(checks) > 10
        assert not any(c.problem for c in checks)


FILES = [
    "ledger.sqlite",
    "unlearning/001/ledger.sqlite",
    "unlearning/002/ledger.sqlite",
    "unlearning/002/models/00000000.safetensors",
    "unlearning/002/models/00000004.safetensors",
    "unlearning/002/certificate.json",
    "unlearning/002/request.json",
    "experiment.toml",
    "unlearning/002/experiment.toml",
]


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_anywhere_is_found(run: Path, name: str) -> None:
    file = run / name
    size = file.stat().st_size
    before = file.read_bytes()
    for position in (
        np.random.default_rng(0)
        .choice(size, size=min(size, 12), replace=False)
        .tolist()
    ):
        flip(file, position)
        with pytest.raises(poise.PoiseError):
            verify(certificate(run))
        file.write_bytes(before)
    verify(certificate(run))


def test_the_model_it_restarted_from_is_looked_at_too(run: Path) -> None:
    branch, n = verify_node(run)
    folder = run if branch == 0 else run / "unlearning" / f"{branch:03d}"
    flip(folder / "models" / f"{n:08d}.safetensors", -1)
    with pytest.raises(LedgerError):
        verify(certificate(run))


def verify_node(run: Path) -> tuple[int, int]:
    found = json.loads(certificate(run).read_text())["restart"]
    return found["branch"], found["round"]


def forge(path: Path, change: Any) -> None:
    """Change a certificate and give it a digest that fits."""
    document = json.loads(path.read_text())
    change(document)
    document["digest"] = digest_of(document)
    path.write_bytes(canonical(document))


FORGERIES = {
    "a smaller epsilon": (lambda d: d["guarantee"].update(epsilon=1.0), "epsilon"),
    "another sensitivity": (lambda d: d["guarantee"].update(psi={"4": 1e-9}), "psi"),
    "another client": (lambda d: d.update(clients=[0]), "clients"),
    "a later restart": (
        lambda d: d["restart"].update(round=d["restart"]["round"] + 1),
        "restart",
    ),
    "fewer rounds": (lambda d: d["result"].update(rounds=1), "result"),
    "a better score": (
        lambda d: d["result"].update({"on remaining clients": 0.999}),
        "result",
    ),
    "no gaps": (lambda d: d["grounds"].update(assumed=[]), "grounds"),
    "less noise": (lambda d: d["noise"].update(sigma=0.01), "noise"),
    "another model": (
        lambda d: d["evidence"]["model"].update(content="0" * 64),
        "evidence",
    ),
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_certificate_with_a_fitting_digest_does_not_hold(
    run: Path, how: str
) -> None:
    change, table = FORGERIES[how]
    forge(certificate(run), change)
    with pytest.raises(LedgerError, match=table):
        verify(certificate(run))


def test_a_promise_that_the_noise_is_too_small_for_does_not_hold(run: Path) -> None:
    """Request and certificate are changed alike: a smaller epsilon, as if the noise had been twice
    as large."""
    place = certificate(run).parent / "request.json"
    asked = json.loads(place.read_text())
    asked["budget"] |= {"epsilon": 5.0, "sigma": 2 * asked["budget"]["sigma"]}
    place.write_text(json.dumps(asked, indent=1))
    facts = facts_of(poise.open_run(place.parent))
    limits = [
        sensitivity_budget(sigma, 5.0, 0.01)
        for sigma in (asked["budget"]["sigma"], asked["sigma"])
    ]
    for limit in limits:
        forge(
            certificate(run),
            lambda d, psi=limit: (
                d["guarantee"].update({"epsilon": 5.0, "psi limit": psi}),
                d["evidence"]["branches"][1].update(facts=facts),
            ),
        )
        with pytest.raises(LedgerError, match=r"psi limit|noise is as large"):
            verify(certificate(run))


def test_a_ledger_rewritten_with_care_does_not_hold(run: Path) -> None:
    """Someone makes a client's influence small in the training's ledger, in a way that SQLite finds
    in order."""
    with sqlite3.connect(run / "ledger.sqlite") as database:
        database.execute(
            "UPDATE measurements SET data = zeroblob(length(data)) WHERE n = 0"
        )
    database.close()
    with pytest.raises(LedgerError, match="round 0 is not as it was recorded"):
        verify(certificate(run))


def test_a_training_that_went_on_since_still_shows_what_it_showed(run: Path) -> None:
    resume(run, rounds=10).close()
    verify(certificate(run))
    with sqlite3.connect(run / "ledger.sqlite") as database:
        database.execute(
            "UPDATE arrays SET data = zeroblob(length(data)) WHERE name = 'importance'"
        )
    database.close()
    with pytest.raises(LedgerError, match="facts"):
        verify(certificate(run))


def test_a_training_taken_up_after_its_end_is_left_as_it_is(run: Path) -> None:
    resume(run).close()
    verify(certificate(run))


def test_a_branch_is_not_taken_up_by_itself(run: Path) -> None:
    with pytest.raises(IncompatibleParts, match="belongs to an unlearning request"):
        resume(run / "unlearning" / "002", rounds=6)
    verify(certificate(run))


def test_a_branch_that_went_on_since_does_not(run: Path) -> None:
    place = run / "unlearning" / "002"
    request = (place / "request.json").rename(run / "aside.json")
    resume(place, rounds=6).close()
    request.rename(place / "request.json")
    with pytest.raises(LedgerError, match="went on after the certificate"):
        verify(certificate(run))


def test_a_certificate_that_lies_elsewhere_needs_the_training(
    run: Path, tmp_path: Path
) -> None:
    shutil.move(run / "unlearning", tmp_path / "branches")
    moved = tmp_path / "branches" / "002" / "certificate.json"
    with pytest.raises(LedgerError, match="does not lie in a run's folder"):
        verify(moved)
    verify(moved, run)


@pytest.mark.parametrize("content", ["", "{}", "[]", "not json", '{"certificate": 99}'])
def test_what_is_no_certificate_is_said_to_be_none(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(content)
    with pytest.raises(LedgerError, match="is no certificate"):
        verify(file)
    with pytest.raises(LedgerError, match="cannot read"):
        verify(tmp_path / "absent.json")


def test_a_model_that_is_gone_is_said(run: Path) -> None:
    branch, n = verify_node(run)
    folder = run if branch == 0 else run / "unlearning" / f"{branch:03d}"
    (folder / "models" / f"{n:08d}.safetensors").unlink()
    with pytest.raises(LedgerError, match="is gone"):
        verify(certificate(run))
