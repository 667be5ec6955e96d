"""Nodes sign their updates, the server keeps the signatures, and forgeries are found."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from poise.apps.deploy.certificates import make_node_key
from poise.core.errors import LedgerError
from poise.evidence.countersign import (
    FILE,
    Countersignatures,
    NodeKey,
    node_keys,
    sign,
    signed_contributions,
    statement,
)

TENSORS = {"0": b"\x01\x02\x03\x04", "1": b"\x05\x06\x07\x08"}


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    for client in (0, 3):
        folder = tmp_path / "deployment" / f"node-{client}"
        folder.mkdir(parents=True)
        make_node_key(folder)
    return tmp_path / "deployment"


def reply(nodes: Path, signer: int = 3, **changes: Any) -> dict[str, Any]:
    """The facts of a reply of client 3, signed by the node of ``signer``."""
    facts = {
        "client": 3,
        "nonce": "abc",
        "versions": [4, 5],
        "occurrences": [0, 0],
        "samples": 20,
        "steps": 2,
    }
    key = nodes / f"node-{signer}" / "node.key"
    facts["signature"] = sign(statement(facts, "job", TENSORS), key)
    return {**facts, **changes}


@pytest.fixture
def kept(nodes: Path, tmp_path: Path) -> Countersignatures:
    return Countersignatures(tmp_path / "run", node_keys(nodes))


def test_a_signed_reply_is_kept_and_read_back(
    nodes: Path, kept: Countersignatures
) -> None:
    assert kept.accept(reply(nodes), "job", TENSORS) == ""
    expected = {(3, 4, 0), (3, 5, 0)}
    assert signed_contributions(kept.folder, node_keys(nodes)) == expected
    assert signed_contributions(kept.folder, None) == expected


@pytest.mark.parametrize(
    ("changes", "run", "tensors"),
    [
        ({"versions": [4, 6]}, "job", TENSORS),
        ({"samples": 21}, "job", TENSORS),
        ({"nonce": "abd"}, "job", TENSORS),
        ({"signature": None}, "job", TENSORS),
        ({"signature": "AAAA"}, "job", TENSORS),
        ({}, "another job", TENSORS),
        ({}, "job", {**TENSORS, "1": b"\x05\x06\x07\x09"}),
        ({}, "job", {"0": TENSORS["0"]}),
    ],
)
def test_other_replies_than_the_signed_one_are_refused(
    nodes: Path,
    kept: Countersignatures,
    changes: dict[str, Any],
    run: str,
    tensors: dict[str, bytes],
) -> None:
    assert "signature" in kept.accept(reply(nodes, **changes), run, tensors)
    assert not (kept.folder / FILE).exists()


def test_another_node_cannot_sign_for_a_client(
    nodes: Path, kept: Countersignatures
) -> None:
    assert "signature" in kept.accept(reply(nodes, signer=0), "job", TENSORS)


def test_the_operator_cannot_rewrite_what_a_node_signed(
    nodes: Path, kept: Countersignatures
) -> None:
    kept.accept(reply(nodes), "job", TENSORS)
    file = kept.folder / FILE
    line = json.loads(file.read_text())
    line["statement"]["sha256"]["0"] = "0" * 64
    file.write_text(json.dumps(line) + "\n")
    with pytest.raises(LedgerError, match="did not sign it"):
        signed_contributions(kept.folder, node_keys(nodes))


def test_half_a_line_at_the_end_does_not_count(
    nodes: Path, kept: Countersignatures
) -> None:
    kept.accept(reply(nodes), "job", TENSORS)
    with (kept.folder / FILE).open("a") as file:
        file.write('{"key": "SHA')
    assert len(signed_contributions(kept.folder, node_keys(nodes))) == 2


@pytest.mark.parametrize("left", [b'{"key": "SHA', b'{"key": "SHA256:x"}'])
def test_the_next_signature_replaces_half_a_line(
    left: bytes, nodes: Path, kept: Countersignatures
) -> None:
    """Otherwise both would be one line that nobody can read, for good."""
    kept.folder.mkdir()
    file = kept.folder / FILE
    file.write_bytes(left)  # as the first line
    assert kept.accept(reply(nodes), "job", TENSORS) == ""
    assert len(signed_contributions(kept.folder, node_keys(nodes))) == 2
    whole = file.read_bytes()
    file.write_bytes(whole + left)
    assert kept.accept(reply(nodes), "job", TENSORS) == ""
    assert len(signed_contributions(kept.folder, node_keys(nodes))) == 2
    assert file.read_bytes().startswith(whole)
    assert len(file.read_bytes().splitlines()) == 2


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_the_fingerprint_is_that_of_ssh_keygen(nodes: Path) -> None:
    public = nodes / "node-3" / "node.pub"
    command = ["ssh-keygen", "-l", "-f", str(public)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert NodeKey.read(public).fingerprint in shown
