"""`verify` detects one changed entry anywhere in certificate.json and request.json."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import poise
from faults.support import call
from parameters import thorough_except
from poise import samplers, servers, solvers, weightings
from poise.core.errors import LedgerError
from poise.unlearning import verify
from poise.unlearning.certificate import canonical, digest_of

OPTIONS: dict[str, Any] = {
    "sigma": 0.1,
    "target": 2.0,
    "min_rounds": 2,
    "max_rounds": 3,
    "noise": "seeded",
}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "sifu": [{"clients": [1]}],
    "secret noise": [{"clients": [1], "noise": "secret"}],
    "held out": [{"clients": [1], "held_out": True}],
    "scratch": [{"clients": [1], "method": "scratch"}],
    "fine-tune": [{"clients": [1], "method": "fine-tune"}],
    "last": [{"clients": [1], "method": "last"}],
    "dp": [{"clients": [1], "method": "dp"}],
    "fed-accum": [{"clients": [1], "method": "fed-accum"}],
    "group": [{"clients": [1, 3], "guarantee": "group"}],
    "several": [
        {"clients": [1]},
        {"clients": [4]},
        {"clients": [0], "measure_forgotten": True},
    ],
    "reached": [{"clients": [1], "target": 0.01}],
}
"""The requests of a history, in order; the last certificate is changed."""

PARTS: dict[str, dict[str, Any]] = {
    "dp": {"weighting": weightings.Clipped(1.0), "server": servers.Noisy(0.5)},
    "fed-accum": {"keep_updates": True},
}
QUICK = ("sifu", "several")


def unlearned(name: str, out: Path) -> Path:
    """Train, make the requests of a case, and return the last certificate."""
    poise.train(
        poise.federation("digits", "dirichlet", clients=6, alpha=0.5, samples=300),
        poise.task("logistic"),
        solver=solvers.SGD(lr=0.01, steps=2, batch_size=16),
        sampler=samplers.Uniform(3),
        rounds=6,
        keep="all",
        out=out,
        **PARTS.get(name, {}),
    ).close()
    for request in REQUESTS[name]:
        done = poise.unlearn(out, **{**OPTIONS, **request})
    return Path(str(done.path))


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all entries without entries of their own."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    if not items or not document:
        yield path
    for key, value in items:
        yield from leaves(value, (*path, key))


def other_values(value: Any) -> list[Any]:
    """Values of the same and of another kind."""
    if isinstance(value, bool):
        return [not value, int(value)]
    if isinstance(value, int):
        return [value + 1, value - 1, float(value), str(value)]
    if isinstance(value, float):
        return [value + 1e-9, value - 0.001 * abs(value) - 1e-9, str(value), None]
    if isinstance(value, str):
        return [value + "x", value[1:] + "y", None]
    if value is None:
        return [0.5, "x", False]
    return [["x"], {"x": 1}, None]


def with_entry(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def written(document: dict[str, Any], file: Path) -> bytes:
    """A changed file; a certificate gets a digest that fits."""
    if file.name == "request.json":
        return json.dumps(document, indent=1).encode()
    return canonical({**document, "digest": digest_of(document)})


def holds(certificate: Path) -> bool:
    try:
        return len(verify(certificate)) > 0
    except LedgerError:
        return False


@pytest.mark.parametrize("name", thorough_except(QUICK, REQUESTS))
def test_one_changed_entry_does_not_hold(name: str, tmp_path: Path) -> None:
    certificate = unlearned(name, tmp_path / "run")
    assert verify(certificate)
    for file in (certificate, certificate.with_name("request.json")):
        before = file.read_bytes()
        document = json.loads(before)
        paths = [path for path in leaves(document) if path != ("digest",)]
        assert len(paths) > 15
        for path in paths:
            for value in other_values(at(document, path)):
                file.write_bytes(written(with_entry(document, path, value), file))
                assert not holds(certificate), (file.name, path, value)
        file.write_bytes(before)
    assert verify(certificate)


def test_an_entry_more_or_less_does_not_hold(tmp_path: Path) -> None:
    certificate = unlearned("sifu", tmp_path / "run")
    document = json.loads(certificate.read_bytes())
    tables = [(), *((key,) for key in document if isinstance(document[key], dict))]
    for table in tables:
        for key in at(document, table):
            if key in ("certificate", "digest"):
                continue
            changed = copy.deepcopy(document)
            del at(changed, table)[key]
            certificate.write_bytes(written(changed, certificate))
            with pytest.raises(LedgerError):
                verify(certificate)
        changed = with_entry(document, (*table, "approved by"), "the operator")
        certificate.write_bytes(written(changed, certificate))
        with pytest.raises(LedgerError):
            verify(certificate)


def test_a_certificate_in_the_folder_of_another_request_does_not_hold(
    tmp_path: Path,
) -> None:
    certificate = unlearned("several", tmp_path / "run")
    first = certificate.parent.parent / "001" / "certificate.json"
    certificate.write_bytes(first.read_bytes())
    with pytest.raises(LedgerError, match="request 1, but lies in the folder 003"):
        verify(certificate)


def test_a_number_that_json_has_not_is_an_alteration(tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text('{"certificate": 2, "digest": NaN}')
    with pytest.raises(LedgerError, match="was altered"):
        verify(file)


OLD = Path(__file__).parents[1] / "old_runs" / "forgotten"
NOT_COMPARED = (
    "theorem",
    "assumed",
    "not proved",
    "promised",
    "psi",
    "composed epsilon",
)


def test_a_certificate_of_format_1_holds_and_says_what_was_not_compared(
    tmp_path: Path,
) -> None:
    run = Path(shutil.copytree(OLD, tmp_path / "run"))
    certificate = run / "unlearning" / "001" / "certificate.json"
    said = call("verify", certificate)
    assert said.code == 0
    assert "did not check eta <= 1/L" in " ".join(said.out.split())
    document = json.loads(certificate.read_bytes())
    for path in leaves(document):
        # format 1 did not record the score on unlearned clients in the ledger
        if path == ("digest",) or {*path} & {*NOT_COMPARED, "on forgotten clients"}:
            continue
        for value in other_values(at(document, path)):
            certificate.write_bytes(
                written(with_entry(document, path, value), certificate)
            )
            assert not holds(certificate), (path, value)


def test_a_new_certificate_does_not_pass_as_an_old_one(tmp_path: Path) -> None:
    certificate = unlearned("sifu", tmp_path / "run")
    document = json.loads(certificate.read_bytes())
    certificate.write_bytes(
        written(with_entry(document, ("certificate",), 1), certificate)
    )
    with pytest.raises(LedgerError):
        verify(certificate)
