"""Nodes sign what they contribute, so that the operator alone cannot rewrite history.

A node signs each reply with its own key (ECDSA P-384, ``node.key``): the run, the
versions, and the hashes of its updates as sent. The server checks the signature and
keeps it in ``countersignatures.jsonl`` of the run folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from poise.core.disk import flush_folder, make_folder
from poise.core.errors import LedgerError
from poise.evidence.envelope import encoded, plain_json, strict_base64
from poise.evidence.keys import KeyUnusable, read_key_file

FILE = "countersignatures.jsonl"
KIND = "urn:poise:contribution:v1"
SIGNATURE = "signature"
FACTS = ("client", "nonce", "occurrences", "run", "samples", "steps", "versions")
LARGEST = 2**30  # bytes that poise reads of the file
_ALGORITHM = ec.ECDSA(hashes.SHA384())


def statement(
    facts: Mapping[str, Any], run: str, tensors: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return what a node signs about its reply: facts, and hashes of the tensors."""
    table = {name: facts.get(name) for name in FACTS}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in tensors.items()}
    return {**table, "run": run, "sha256": digests}


def sign(table: Mapping[str, Any], key: Path) -> str:
    """Sign a statement with the key of a node."""
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return base64.b64encode(private.sign(_message(table), _ALGORITHM)).decode()


def _message(table: Mapping[str, Any]) -> bytes:
    return encoded(KIND, plain_json(table))


@dataclass(frozen=True)
class NodeKey:
    """The public key of a node, as in its ``node.pub``."""

    public: ec.EllipticCurvePublicKey = field(repr=False)
    fingerprint: str

    @classmethod
    def read(cls, file: Path) -> NodeKey:
        """Read ``node.pub``."""
        try:
            content = read_key_file(file)
            public = serialization.load_ssh_public_key(content)
            blob = base64.b64decode(content.split()[1])
        except (OSError, ValueError, IndexError, UnsupportedAlgorithm) as error:
            raise KeyUnusable(f"{file} is not the public key of a node") from error
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise KeyUnusable(f"{file} is not an ECDSA key")
        digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
        # as ssh-keygen -l prints it
        return cls(public, f"SHA256:{digest.rstrip('=')}")

    def verifies(self, signature: object, table: Mapping[str, Any]) -> bool:
        """Whether this key signed a statement."""
        try:
            signed = strict_base64(str(signature))
            self.public.verify(signed, _message(table), _ALGORITHM)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True


def node_keys(folder: Path) -> dict[int, NodeKey]:
    """Return the keys in a folder: ``node-3/node.pub`` or ``3.pub`` is that of client 3."""
    found: dict[int, NodeKey] = {}
    for file in (*folder.glob("node-*/node.pub"), *folder.glob("*.pub")):
        name = file.parent.name if file.name == "node.pub" else file.stem
        number = name.removeprefix("node-")
        if number.isdigit():
            found[int(number)] = NodeKey.read(file)
    return found


@dataclass(frozen=True)
class Countersignatures:
    """Checks the signatures of replies, and keeps them in a run folder.

    Args:
        folder: the run folder.
        keys: the key of each node, by the client's number in the deployment.
    """

    folder: Path
    keys: Mapping[int, NodeKey]

    def accept(
        self, facts: Mapping[str, Any], run: str, tensors: Mapping[str, bytes]
    ) -> str:
        """Check and keep the signature of a reply; return what is wrong with it.

        The text completes "client 3 sent …".
        """
        key = self.keys.get(int(facts["client"]))
        if key is None:
            return ""
        table = statement(facts, run, tensors)
        signature = facts.get(SIGNATURE)
        if not key.verifies(signature, table):
            return "an update without a valid signature of its node"
        line = {"key": key.fingerprint, SIGNATURE: signature, "statement": table}
        try:
            make_folder(self.folder)
            _append(self.folder / FILE, plain_json(line) + b"\n")
        except OSError as error:
            raise LedgerError(
                f"cannot write {self.folder / FILE}: {error.strerror}",
                "remove the cause, then resume the run",
            ) from error
        return ""


def _append(path: Path, line: bytes) -> None:
    """Add a line after the last whole one, and flush it to the disk."""
    is_new = not path.exists()
    from poise.ledger.foreign import open_regular  # the server's, not the nodes'

    with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        content = b""
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            content = file.read()
        if content not in (b"", b"\n"):  # the server died while it wrote a line
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.seek(0, os.SEEK_END)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        flush_folder(path.parent)


Contribution = tuple[int, int, int]
"""A client's number in the deployment, the version, and the occurrence of its work."""


def signed_contributions(
    folder: Path, keys: Mapping[int, NodeKey] | None
) -> set[Contribution]:
    """Return the contributions that nodes signed; raise for a wrong signature.

    Args:
        folder: the run folder.
        keys: the keys of the nodes; None to read the file without checking them.
    """
    path = folder / FILE
    if not path.exists():
        return set()
    found: set[Contribution] = set()
    from poise.ledger.foreign import read_bytes  # the server's, not the nodes'

    content = read_bytes(path, LARGEST)
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break  # the server died while it wrote this line
        try:
            table = json.loads(line)
            signed = table["statement"]
            client = signed["client"]
            pairs = zip(signed["versions"], signed["occurrences"], strict=True)
            works = [(client, version, time) for version, time in pairs]
            whole = set(table) == {"key", SIGNATURE, "statement"}
        except (LookupError, TypeError, ValueError):
            whole = False
        if not whole:
            raise LedgerError(f"{path}, line {number}, is not a countersignature")
        if keys is not None:
            key = keys.get(client)
            good = key is not None and key.verifies(table[SIGNATURE], signed)
            if not good or key is None or key.fingerprint != table["key"]:
                raise LedgerError(
                    f"{path}, line {number}: the node of client {client} did not sign it",
                    "the line was altered, or the key is another one",
                )
        found.update(works)
    return found


__all__ = [
    "FILE",
    "SIGNATURE",
    "Countersignatures",
    "NodeKey",
    "node_keys",
    "sign",
    "signed_contributions",
    "statement",
]
