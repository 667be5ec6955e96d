"""Certificates and keys of a deployment, made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from poise.core.errors import DataError, InvalidOption

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 365  # a trial's certificates are good for so long


def check_installed() -> None:
    """Refuse to go on without what deployments need."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InvalidOption("deployments need Flower", "pip install 'poise[flower]'") from error


def make_certificates(authority: Path, leaves: Iterable[Path], hosts: Iterable[str]) -> None:
    """Write an authority's ``ca.crt``, and into each of ``leaves`` a copy of it and a ``tls.pem``
    with its ``tls.key``.

    The authority's own key is not kept: nobody can sign another certificate with it.
    """
    check_installed()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _new_key()
    issuer = _name("poise deployment")
    final = x509.BasicConstraints(ca=False, path_length=None)
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    root = _dated(issuer, issuer, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    anchor = _pem(root.sign(key, hashes.SHA256()))
    _write(authority / "ca.crt", anchor)
    for folder in leaves:
        mine = _new_key()
        leaf = _dated(issuer, _name(folder.name), mine).add_extension(final, critical=True)
        _write(
            folder / "tls.pem",
            _pem(leaf.add_extension(names, critical=False).sign(key, hashes.SHA256())),
        )
        _write_key(folder / "tls.key", mine)
        if folder != authority:
            _write(folder / "ca.crt", anchor)


def make_node_key(folder: Path) -> None:
    """Write ``node.key`` and ``node.pub`` into a folder: who a node is, is who holds this key."""
    check_installed()
    from cryptography.hazmat.primitives import serialization

    key = _new_key()
    _write_key(folder / "node.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(folder / "node.pub", public)


def check_key(file: Path) -> None:
    """Refuse a file that is not a private key; nothing of what it holds is told."""
    check_installed()
    from cryptography.hazmat.primitives import serialization

    try:
        if file.name == "tls.key":
            serialization.load_pem_private_key(file.read_bytes(), None)
        else:
            serialization.load_ssh_private_key(file.read_bytes(), None)
    except Exception:
        raise DataError(f"{file} is not a private key", "poise deploy init made one") from None


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _dated(
    issuer: x509.Name, subject: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(DAYS)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem


def _write_key(file: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.OpenSSH
    if file.name == "tls.key":
        form = serialization.PrivateFormat.TraditionalOpenSSL
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    _write(file, pem, 0o600)


def _write(file: Path, content: bytes, mode: int = 0o644) -> None:
    """Create a file that nobody else can read in the meantime."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
