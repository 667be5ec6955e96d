"""Every single-field edit of a certificate is found, signed again or not."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import poise
from poise import samplers, solvers
from poise.core.errors import LedgerError
from poise.evidence import log
from poise.evidence.envelope import Statement, seal, unseal
from poise.evidence.keys import new_key, signing_key
from poise.unlearning import Budget, fulfilment, verify
from poise.unlearning.certificate import canonical, certify, digest_of, write
from unlearning.test_altered_histories import alter, cells

Edit = tuple[str, Callable[[Any], None]]


def trained(out: Path, **options: Any) -> Path:
    fed = poise.federation("digits", "dirichlet", clients=5, alpha=0.5, samples=200)
    poise.train(
        fed,
        poise.task("logistic"),
        solver=solvers.SGD(lr=0.05, steps=2, batch_size=16),
        sampler=samplers.Uniform(3),
        rounds=5,
        keep="all",
        out=out,
        **options,
    ).close()
    return out


QUICK: dict[str, Any] = {
    "sigma": 0.1,
    "target": 2.0,
    "min_rounds": 1,
    "max_rounds": 2,
    "heuristic": True,
}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = trained(tmp_path_factory.mktemp("signed") / "run")
    path = poise.unlearn(run, [1], **QUICK).path
    assert path is not None
    return path


@pytest.fixture
def certificate(signed: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed.parent.parent.parent, tmp_path / "run")
    return tmp_path / "run" / "unlearning" / "001" / "certificate.json"


def other(value: Any) -> Any:
    """A value of the same kind, as near as possible."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return -0.0 if value == 0 else value * (1 + 1e-12)
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return 0


def edits(table: Any, path: tuple[Any, ...] = ()) -> Iterator[Edit]:
    """Every single-field edit: change a leaf, delete an entry, add an entry."""

    def at(document: Any) -> Any:
        for key in path:
            document = document[key]
        return document

    name = "/".join(map(str, path))
    if isinstance(table, dict):
        yield f"add to {name}", lambda d: at(d).update({"more": 1})
        for key in table:
            yield f"delete {name}/{key}", lambda d, key=key: at(d).pop(key)
    if isinstance(table, list):
        yield f"append to {name}", lambda d: at(d).append(0)
        for k in range(len(table)):
            yield f"delete {name}/{k}", lambda d, k=k: at(d).pop(k)
    inside = table.items() if isinstance(table, dict) else enumerate(table)
    for key, value in inside:
        if isinstance(value, dict | list):
            yield from edits(value, (*path, key))
        else:
            changed = other(value)
            yield (
                f"change {name}/{key}",
                lambda d, key=key, new=changed: at(d).__setitem__(key, new),
            )


def found(certificate: Path) -> bool:
    try:
        verify(certificate)
    except LedgerError:
        return True
    return False


def with_edit(document: Any, edit: Callable[[Any], None]) -> Any:
    changed = copy.deepcopy(document)
    edit(changed)
    return changed


def test_every_edit_of_the_certificate_is_found(certificate: Path) -> None:
    document = json.loads(certificate.read_text())
    del document["digest"]
    missed, count = [], 0
    for name, edit in edits(document):
        changed = with_edit(document, edit)
        certificate.write_bytes(canonical({**changed, "digest": digest_of(changed)}))
        count += 1
        if not found(certificate):
            missed.append(name)
    assert not missed
    assert count > 150


def test_every_edit_of_the_statement_is_found_though_the_key_signs_it_again(
    certificate: Path,
) -> None:
    """Certificate and envelope agree, and the signature holds; the log has another."""
    envelope = certificate.with_suffix(".dsse")
    original = certificate.read_bytes()
    payload = json.loads(unseal(envelope.read_bytes(), envelope).payload)
    signable = ("subject", "predicateType", "predicate")
    statement = {name: payload[name] for name in signable}
    missed, count = [], 0
    for name, edit in edits(statement):
        changed = with_edit(statement, edit)
        certificate.write_bytes(original)
        document = changed.get("predicate", {}).get("certificate")
        if isinstance(document, dict) and "/certificate/" in name:
            document.pop("digest", None)
            document["digest"] = digest_of(document)
            certificate.write_bytes(canonical(document))
        try:
            again = Statement(
                tuple((s["name"], s["digest"]["sha256"]) for s in changed["subject"]),
                changed["predicateType"],
                changed["predicate"],
            )
        except (LookupError, TypeError):
            continue  # not a statement that can be written
        envelope.write_bytes(seal(again, signing_key()))
        count += 1
        same = (
            again.payload
            == json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
        )
        if not same and not found(certificate):
            missed.append(name)
    assert not missed
    assert count > 170


def test_the_same_for_an_unsigned_certificate_of_format_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsigned(*given: Any, **options: Any) -> dict[str, Any]:
        return certify(*given, **{**options, "format": 2})

    monkeypatch.setattr(fulfilment, "certify", unsigned)
    monkeypatch.setattr(
        fulfilment, "issue", lambda document, folder, **more: write(document, folder)
    )
    run = trained(tmp_path / "run")
    path = poise.unlearn(run, [1], **QUICK).path
    assert path is not None
    assert verify(path)[-1].label.startswith("not signed")
    document = json.loads(path.read_text())
    assert document["certificate"] == 2
    del document["digest"]
    missed = []
    for name, edit in edits(document):
        changed = with_edit(document, edit)
        path.write_bytes(canonical({**changed, "digest": digest_of(changed)}))
        if not found(path):
            missed.append(name)
    assert not missed


def test_a_signed_certificate_cannot_become_an_unsigned_one(certificate: Path) -> None:
    """Format 2 with numbers that fit: only the log shows that it was signed."""
    document = json.loads(certificate.read_text())
    for key in ("client keys", "erasure", "digest"):
        del document[key]
    document["certificate"] = 2
    document["digest"] = digest_of(document)
    certificate.write_bytes(canonical(document))
    certificate.with_suffix(".dsse").unlink()
    with pytest.raises(LedgerError, match="a signed certificate was issued"):
        verify(certificate)


def test_the_checks_name_the_key(certificate: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.pub"
    own.write_bytes(signing_key().public.pem)
    assert "was not checked" in verify(certificate)[-1].label
    assert signing_key().public.id in verify(certificate)[-1].label
    assert "that you trust" in verify(certificate, public_keys=[own])[-1].label
    stranger = tmp_path / "stranger.pub"
    stranger.write_bytes(new_key("b", tmp_path / "keys").public.pem)
    with pytest.raises(LedgerError, match="another key"):
        verify(certificate, public_keys=[stranger])
    assert verify(certificate, public_keys=[stranger, own])


def test_a_forger_with_a_key_of_his_own_is_found_by_the_public_key(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forger makes the whole run and its certificate again, from another seed."""
    own = tmp_path / "own.pub"
    own.write_bytes(signing_key().public.pem)
    new_key("default", tmp_path / "his")
    monkeypatch.setenv("POISE_KEYS", str(tmp_path / "his"))
    run = trained(tmp_path / "forged", seed=3)
    forged = poise.unlearn(run, [1], **QUICK).path
    assert forged is not None
    verify(forged)
    with pytest.raises(LedgerError, match="another key"):
        verify(forged, public_keys=[own])


def test_training_signs_its_digest_and_a_ledger_with_another_is_found(
    certificate: Path,
) -> None:
    run = certificate.parent.parent.parent
    (entry,) = log.entries(run)
    assert (entry.event, entry.rounds) == ("ended", 5)
    with poise.open_run(run)._ledger.guard():
        assert entry.digest == poise.open_run(run).digest
    (run / log.FILE).unlink()
    with pytest.raises(LedgerError, match="digest was signed"):
        verify(certificate)


def test_a_training_that_went_on_keeps_its_certificate(certificate: Path) -> None:
    run = certificate.parent.parent.parent
    poise.resume(run, rounds=7).close()
    events = [(e.event, e.rounds) for e in log.entries(run)]
    assert events == [("ended", 5), ("ended", 7)]
    verify(certificate)


NOT_SIGNED = {
    "began",
    "experiment",
    "label_counts",
    "mkl",
    "poise",
    "rate",
    "sample form",
    "status",
    "tensors",
    "trainable",
}
"""What `verify` does not check of a training that went on: docs/security.md says so."""


def test_facts_of_a_training_that_went_on_are_found_but_for_the_documented_ones(
    tmp_path: Path,
) -> None:
    budget = Budget(epsilon=10.0, delta=0.01, sigma=0.1)
    run = trained(tmp_path / "run", unlearning=budget)
    path = poise.unlearn(run, [1], **QUICK).path
    assert path is not None
    file = path.relative_to(run)
    missed_at_once = set(missed_facts(run, file, tmp_path / "copy"))
    poise.resume(run, rounds=7).close()
    verify(path)
    missed = set(missed_facts(run, file, tmp_path / "copy"))
    assert (missed_at_once, missed) == (set(), NOT_SIGNED)


def missed_facts(run: Path, file: Path, copy: Path) -> Iterator[str]:
    """Alter each fact and each array of a ledger; yield those that `verify` accepts."""
    every = list(cells(run / "ledger.sqlite"))
    for table, column, row in (cell for cell in every if cell[:2] in FACTS):
        shutil.copytree(run, copy)
        assert alter(copy / "ledger.sqlite", table, column, row)
        if not found(copy / file):
            yield row.split("'")[1]
        shutil.rmtree(copy)


FACTS = {("meta", "value"), ("arrays", "data")}
"""The tables and columns with the facts and the arrays of a ledger."""


def test_equal_runs_stay_equal_but_for_time_and_signature(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "a"), trained(tmp_path / "b")
    assert poise.open_run(first).digest == poise.open_run(second).digest
    made = [poise.unlearn(run, [1], noise="seeded", **QUICK) for run in (first, second)]
    left, right = (json.loads(canonical(result.certificate)) for result in made)
    for document in (left, right):  # SQLite's files have times
        for table in (
            document["evidence"]["training"],
            *document["evidence"]["branches"],
        ):
            del table["file"]
        del document["digest"]
    assert left == right
