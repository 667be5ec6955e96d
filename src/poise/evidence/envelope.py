"""DSSE envelopes (version 1) around in-toto statements (version 1).

The signature covers the pre-authentication encoding (PAE) of payload type and payload:
`secure-systems-lab/dsse <https://github.com/secure-systems-lab/dsse>`_.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poise.core.errors import LedgerError
from poise.evidence.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"

Subject = tuple[str, str]
"""The name of a thing that a statement is about, and its SHA-256."""


@dataclass(frozen=True)
class Statement:
    """What an envelope states: a predicate about subjects."""

    subjects: tuple[Subject, ...]
    predicate_type: str
    predicate: Mapping[str, Any]

    @property
    def payload(self) -> bytes:
        """The statement as the one JSON text that poise signs and accepts."""
        table = {
            "_type": STATEMENT,
            "subject": [
                {"name": name, "digest": {"sha256": digest}}
                for name, digest in self.subjects
            ],
            "predicateType": self.predicate_type,
            "predicate": self.predicate,
        }
        return plain_json(table)


@dataclass(frozen=True)
class Opened:
    """An envelope whose signature is that of the key that it names."""

    statement: Statement
    payload: bytes
    key: PublicKey


def plain_json(table: Mapping[str, Any]) -> bytes:
    """Return a table as one line of JSON with sorted keys."""
    return json.dumps(
        table, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def strict_base64(text: str) -> bytes:
    """Decode the one base64 text of some bytes; raises `ValueError` for any other.

    The last letter before the padding has bits that decoding drops. Another letter there
    would be an edit that no signature covers.
    """
    content = base64.b64decode(text, validate=True)
    if base64.b64encode(content).decode() != text:
        raise ValueError("its base64 is not in the form that poise writes")
    return content


def encoded(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding that a DSSE signature covers.

    >>> encoded("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(statement: Statement, key: SigningKey) -> bytes:
    """Return the envelope of a statement as one line of JSON."""
    payload = statement.payload
    signature = key.sign(encoded(PAYLOAD_TYPE, payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": key.public.id, "sig": base64.b64encode(signature).decode()}
        ],
    }
    return plain_json(envelope) + b"\n"


def unseal(content: bytes, where: object) -> Opened:
    """Check the signature of an envelope and return its statement.

    Raises where an envelope is not exactly as poise writes it: any other byte, key or
    signature is refused.
    """
    try:
        envelope = json.loads(content)
        payload = strict_base64(envelope["payload"])
        (signature,) = envelope["signatures"]
        key = PublicKey.of_id(signature["keyid"])
        signed = strict_base64(signature["sig"])
        whole = content == plain_json(envelope) + b"\n"
        tables = set(envelope) == {"payload", "payloadType", "signatures"}
        known = tables and set(signature) == {"keyid", "sig"}
        if not known or not whole or envelope["payloadType"] != PAYLOAD_TYPE:
            raise ValueError("it is not in the form that poise writes")
        statement = _statement(payload)
    except (
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise LedgerError(
            f"{where} is no signed statement: {error}", "restore it from a backup"
        ) from error
    if not key.verifies(signed, encoded(PAYLOAD_TYPE, payload)):
        raise LedgerError(
            f"{where}: the signature does not fit the content",
            "it was altered: restore it from a backup",
        )
    return Opened(statement, payload, key)


def _statement(payload: bytes) -> Statement:
    """Read a statement; raises `ValueError` for other texts."""
    table = json.loads(payload)
    subjects: Sequence[Mapping[str, Any]] = table["subject"]
    statement = Statement(
        tuple((s["name"], s["digest"]["sha256"]) for s in subjects),
        table["predicateType"],
        table["predicate"],
    )
    if payload != statement.payload:
        raise ValueError("its payload is not a statement in the form that poise writes")
    return statement


__all__ = [
    "Opened",
    "Statement",
    "Subject",
    "encoded",
    "plain_json",
    "seal",
    "strict_base64",
    "unseal",
]
