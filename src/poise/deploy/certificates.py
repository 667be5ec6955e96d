"""Certificates and keys of a deployment, made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from poise.core.errors import DataError, InvalidOption

DAYS = 365  # a trial's certificates are good for so long


def check_installed() -> None:
    """Refuse to go on without what deployments need."""
    _cryptography()


def make_certificates(authority: Path, leaves: Iterable[Path], hosts: Iterable[str]) -> None:
    """Write an authority's ``ca.crt``, and into each of ``leaves`` a copy of it and a ``tls.pem`` with its ``tls.key``.

    The authority's own key is not kept: nobody can sign another certificate with it.
    """
    x509, ec, hashes, _ = _cryptography()
    key, issuer = ec.generate_private_key(ec.SECP384R1()), _name(x509, "poise deployment")
    final = x509.BasicConstraints(ca=False, path_length=None)
    names = x509.SubjectAlternativeName([_host(x509, host) for host in hosts])
    root = _dated(x509, issuer, issuer, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    anchor = _pem(root.sign(key, hashes.SHA256()))
    _write(authority / "ca.crt", anchor)
    for folder in leaves:
        mine = ec.generate_private_key(ec.SECP384R1())
        leaf = _dated(x509, issuer, _name(x509, folder.name), mine).add_extension(final, critical=True)
        _write(folder / "tls.pem", _pem(leaf.add_extension(names, critical=False).sign(key, hashes.SHA256())))
        _write_key(folder / "tls.key", mine)
        if folder != authority:
            _write(folder / "ca.crt", anchor)


def make_node_key(folder: Path) -> None:
    """Write ``node.key`` and ``node.pub`` into a folder: who a node is, is who holds this key."""
    _, ec, _, serialization = _cryptography()
    key = ec.generate_private_key(ec.SECP384R1())
    _write_key(folder / "node.key", key)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(folder / "node.pub", public)


def check_key(file: Path) -> None:
    """Refuse a file that is not a private key; nothing of what it holds is told."""
    *_, serialization = _cryptography()
    load = serialization.load_pem_private_key if file.name == "tls.key" else serialization.load_ssh_private_key
    try:
        load(file.read_bytes(), None)
    except Exception:
        raise DataError(f"{file} is not a private key", "poise deploy init made one") from None


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise InvalidOption("deployments need Flower", "pip install 'poise[flower]'") from error
    return x509, ec, hashes, serialization


def _name(x509: Any, text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _dated(x509: Any, issuer: Any, subject: Any, key: Any) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(DAYS))


def _pem(certificate: Any) -> bytes:
    *_, serialization = _cryptography()
    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem


def _write_key(file: Path, key: Any) -> None:
    *_, serialization = _cryptography()
    form = serialization.PrivateFormat.TraditionalOpenSSL if file.name == "tls.key" else None
    pem = key.private_bytes(
        serialization.Encoding.PEM, form or serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write(file, pem, 0o600)


def _write(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Create a file that nobody else can read in the meantime."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
