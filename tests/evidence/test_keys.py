"""Keys, envelopes and logs: what was signed is read back, everything else is refused."""

from __future__ import annotations

import base64
import json
import os
import shutil
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.support import limited
from poise.core.errors import InvalidOption, LedgerError
from poise.evidence import log
from poise.evidence.countersign import node_keys
from poise.evidence.envelope import Statement, encoded, plain_json, seal, unseal
from poise.evidence.keys import (
    KeyUnusable,
    PublicKey,
    key_names,
    keys_folder,
    load_key,
    new_key,
    read_public_key,
    signing_key,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POISE_KEYS", str(tmp_path / "keys"))
    return tmp_path / "keys"


def test_the_first_use_makes_a_key_that_only_its_user_reads(folder: Path) -> None:
    with pytest.warns(UserWarning, match="made a key"):
        made = signing_key()
    assert os.stat(folder / "default.key").st_mode & 0o777 == 0o600
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert signing_key().public == made.public
    assert read_public_key(folder / "default.pub") == made.public
    assert key_names() == ["default"]


def test_a_key_is_never_replaced(folder: Path) -> None:
    before = new_key("a").public
    with pytest.raises(InvalidOption, match="already"):
        new_key("a")
    assert load_key("a").public == before


def test_a_key_that_others_can_read_is_refused(folder: Path) -> None:
    new_key("a")
    (folder / "a.key").chmod(0o644)
    with pytest.raises(KeyUnusable, match="readable by other users"):
        load_key("a")


@pytest.mark.parametrize("name", ["../a", "", "-x", "a/b", ".hidden"])
def test_names_stay_inside_the_folder(folder: Path, name: str) -> None:
    with pytest.raises(InvalidOption, match="name of a key"):
        new_key(name)


def test_without_the_variable_keys_lie_in_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("POISE_KEYS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert keys_folder() == tmp_path / "poise" / "keys"


@pytest.mark.parametrize("content", [b"", b"no key", b"ed25519:12", b"\xff" * 80])
def test_other_files_are_no_public_keys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.pub").write_bytes(content)
    with pytest.raises(KeyUnusable):
        read_public_key(tmp_path / "x.pub")


def test_the_encoding_is_that_of_the_dsse_specification() -> None:
    kind = "http://example.com/HelloWorld"
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert encoded(kind, b"hello world") == expected


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_openssl_verifies_an_envelope(folder: Path, tmp_path: Path) -> None:
    """The signature is plain Ed25519 over the PAE: other programs can check it."""
    import base64

    key = new_key("a")
    envelope = json.loads(seal(STATEMENT, key))
    payload = base64.b64decode(envelope["payload"])
    (tmp_path / "message").write_bytes(encoded(envelope["payloadType"], payload))
    (signature,) = envelope["signatures"]
    (tmp_path / "signature").write_bytes(base64.b64decode(signature["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey"]
    command += [str(folder / "a.pub"), "-rawin", "-in", str(tmp_path / "message")]
    command += ["-sigfile", str(tmp_path / "signature")]
    assert subprocess.run(command, check=False).returncode == 0


STATEMENT = Statement((("model", "0" * 64),), "urn:poise:test", {"n": 1, "x": 0.5})


def test_an_envelope_is_read_back(folder: Path) -> None:
    key = new_key("a")
    opened = unseal(seal(STATEMENT, key), "here")
    assert opened.statement == STATEMENT
    assert opened.key == key.public == PublicKey.of_id(key.public.id)


SEALED = seal(STATEMENT, signing_key())


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_every_changed_byte_of_an_envelope_is_found(position: int, flip: int) -> None:
    changed = bytearray(SEALED)
    changed[position] ^= flip
    with pytest.raises(LedgerError):
        unseal(bytes(changed), "here")


LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


@pytest.mark.parametrize("field", ["payload", "sig"])
def test_another_base64_text_of_the_same_bytes_is_found(field: str) -> None:
    """Decoding drops bits of the last letter; no signature covers them."""
    envelope = json.loads(SEALED)
    table = {"payload": envelope, "sig": envelope["signatures"][0]}[field]
    text = table[field]
    last = text.rstrip("=")[-1]
    padding = text[text.index(last + "=") + 1 :]
    table[field] = (
        text[: -len(padding) - 1] + LETTERS[LETTERS.index(last) ^ 1] + padding
    )
    assert base64.b64decode(table[field]) == base64.b64decode(text) != b""
    assert table[field] != text
    with pytest.raises(LedgerError, match="base64"):
        unseal(plain_json(envelope) + b"\n", "here")


def logged(folder: Path, entries: int) -> list[bytes]:
    folder.mkdir(exist_ok=True)
    for n in range(entries):
        digest = f"{n:064x}"
        log.append(
            folder,
            signing_key(),
            event="checkpoint",
            subject="ledger",
            digest=digest,
            rounds=n,
        )
    return (folder / log.FILE).read_bytes().splitlines(keepends=True)


def test_a_log_grows_and_is_read_back(tmp_path: Path) -> None:
    logged(tmp_path, 3)
    assert [(e.serial, e.rounds) for e in log.entries(tmp_path)] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]


@pytest.mark.parametrize("order", [[1, 2], [0, 2], [1, 0, 2], [0, 0, 1, 2]])
def test_removed_swapped_and_repeated_entries_are_found(
    tmp_path: Path, order: list[int]
) -> None:
    lines = logged(tmp_path, 3)
    (tmp_path / log.FILE).write_bytes(b"".join(lines[k] for k in order))
    with pytest.raises(LedgerError, match="does not follow"):
        log.entries(tmp_path)


def test_half_a_line_at_the_end_is_written_again(tmp_path: Path) -> None:
    lines = logged(tmp_path, 2)
    (tmp_path / log.FILE).write_bytes(lines[0] + lines[1][:100])
    assert len(log.entries(tmp_path)) == 1
    logged(tmp_path, 1)
    assert [e.serial for e in log.entries(tmp_path)] == [1, 2]


def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / log.FILE).symlink_to(outside)
    with pytest.raises(LedgerError):
        logged(inside, 1)
    assert outside.read_bytes() == b"mine"


def test_a_hard_link_in_place_of_the_log_is_not_written(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine\n")
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / log.FILE).hardlink_to(outside)
    with pytest.raises(LedgerError, match="a hard link to another file"):
        logged(inside, 1)
    assert outside.read_bytes() == b"mine\n"


def test_a_pipe_is_no_public_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.pub")
    with limited(5), pytest.raises(KeyUnusable, match="is a pipe"):
        read_public_key(tmp_path / "own.pub")
    (tmp_path / "linked.pub").symlink_to("own.pub")
    with limited(5), pytest.raises(KeyUnusable, match="is a pipe"):
        read_public_key(tmp_path / "linked.pub")


def test_a_pipe_of_the_shell_may_be_a_public_key(tmp_path: Path) -> None:
    """``--public-key <(poise keys export)``."""
    key = new_key("default", tmp_path)
    reading, writing = os.pipe()
    os.write(writing, key.public.pem)
    os.close(writing)
    assert read_public_key(Path(f"/dev/fd/{reading}")) == key.public
    os.close(reading)


def test_the_keys_of_nodes_are_no_pipes(tmp_path: Path) -> None:
    (tmp_path / "node-3").mkdir()
    os.mkfifo(tmp_path / "node-3" / "node.pub")
    with limited(5), pytest.raises(KeyUnusable, match="is a pipe"):
        node_keys(tmp_path)
    (tmp_path / "node-3" / "node.pub").unlink()
    (tmp_path / "node-3" / "node.pub").symlink_to("/dev/zero")
    with limited(5), pytest.raises(KeyUnusable, match="not the public key"):
        node_keys(tmp_path)
