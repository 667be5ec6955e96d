"""Ed25519 keys that sign evidence; they lie outside of run folders.

The folder is ``$POISE_KEYS``, or ``poise/keys`` in the user's configuration folder. A
private key is ``NAME.key`` (PKCS 8, mode 0600), its public key ``NAME.pub``.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from poise.core.disk import flush_folder, make_folder
from poise.core.errors import InvalidOption, PoiseError, require

FOLDER = "POISE_KEYS"
DEFAULT = "default"
PREFIX = "ed25519:"
MAX_BYTES = 1 << 14  # a key file is far smaller


class KeyUnusable(PoiseError):
    """A key is missing, unreadable, of another kind, or readable by others."""


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 public key; its id is its 32 bytes, so signatures name their key."""

    raw: bytes

    @property
    def id(self) -> str:
        """The id of the key: ``ed25519:`` and 64 hexadecimal digits."""
        return f"{PREFIX}{self.raw.hex()}"

    @classmethod
    def of_id(cls, text: str) -> PublicKey:
        """Return the key with this id; raises `ValueError` for other texts."""
        if not re.fullmatch(PREFIX + "[0-9a-f]{64}", text):
            raise ValueError(f"{text!r} is not the id of an Ed25519 key")
        return cls(bytes.fromhex(text.removeprefix(PREFIX)))

    @property
    def pem(self) -> bytes:
        """The key as a PEM file, as OpenSSL reads it."""
        return Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key signed the message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A private key with its name."""

    name: str
    private: Ed25519PrivateKey

    @cached_property
    def public(self) -> PublicKey:
        """The public key."""
        raw = self.private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        return PublicKey(raw)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self.private.sign(message)


def keys_folder() -> Path:
    """Return the folder of the user's keys."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "poise" / "keys"


def key_names(folder: Path | None = None) -> list[str]:
    """Return the names of the user's keys."""
    place = folder or keys_folder()
    return sorted(file.stem for file in place.glob("*.key"))


def new_key(name: str = DEFAULT, folder: Path | None = None) -> SigningKey:
    """Make a key pair; raises where the name is taken."""
    _check_name(name)
    place = folder or keys_folder()
    key = SigningKey(name, Ed25519PrivateKey.generate())
    private = key.private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        make_folder(place, mode=0o700)
        _write_new(place / f"{name}.key", private, mode=0o600)
        (place / f"{name}.pub").unlink(missing_ok=True)
        _write_new(place / f"{name}.pub", key.public.pem, mode=0o644)
        flush_folder(place)  # a signature on the disk must not outlive its key
    except FileExistsError as error:
        raise InvalidOption(
            f"{place} has a key {name!r} already",
            "choose another name: a replaced key could not sign as before",
        ) from error
    except OSError as error:
        raise KeyUnusable(
            f"cannot make a key in {place}: {error.strerror}",
            f"name a folder that you can write in the variable {FOLDER}",
        ) from error
    return key


def load_key(name: str = DEFAULT, folder: Path | None = None) -> SigningKey:
    """Read a private key; raises where other users can read the file."""
    _check_name(name)
    file = (folder or keys_folder()) / f"{name}.key"
    content = read_key_file(file)
    if file.stat().st_mode & 0o077:
        raise KeyUnusable(
            f"{file} is readable by other users", f"run: chmod 600 {file}"
        )
    try:
        private = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{file} is not a private key without a password") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyUnusable(f"{file} is not an Ed25519 key", "make one: poise keys new")
    return SigningKey(name, private)


def signing_key() -> SigningKey:
    """Return the user's default key; the first use makes it, and says so."""
    folder = keys_folder()
    if not (folder / f"{DEFAULT}.key").exists():
        try:
            key = new_key(DEFAULT, folder)
        except InvalidOption:  # another process made it in the meantime
            return load_key(DEFAULT, folder)
        warnings.warn(
            f"made a key that signs your evidence: {folder / DEFAULT}.key; keep a copy, "
            "and give its public key (poise keys export) to those who verify",
            stacklevel=2,
        )
        return key
    return load_key(DEFAULT, folder)


def read_public_key(file: Path) -> PublicKey:
    """Read a public key from a PEM file, or from a file with its id."""
    content = read_key_file(file)
    try:
        text = content.decode().strip()
        if text.startswith(PREFIX):
            return PublicKey.of_id(text)
        public = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(
            f"{file} is not a public key", "export one: poise keys export"
        ) from error
    if not isinstance(public, Ed25519PublicKey):
        raise KeyUnusable(f"{file} is not an Ed25519 key")
    return PublicKey(
        public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    )


def read_key_file(file: Path) -> bytes:
    """Read a key file; a pipe must be one of the shell's, which somebody writes to."""
    try:
        if file.is_fifo() and not file.is_relative_to("/dev"):
            raise KeyUnusable(f"{file} is a pipe", "name the file of a key")
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES)
    except OSError as error:
        raise KeyUnusable(
            f"cannot read {file}: {error.strerror}", "list your keys: poise keys list"
        ) from error


def _write_new(file: Path, content: bytes, *, mode: int) -> None:
    """Write a file whole under a name that is not taken; raises `FileExistsError`."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(part, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.link(part, file)
    finally:
        part.unlink()


def _check_name(name: str) -> None:
    """Raise where a name cannot be the name of a key file."""
    require(
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name) is not None,
        f"{name!r} cannot be the name of a key",
        "use letters, digits, '-', '_' and '.'",
    )


__all__ = [
    "KeyUnusable",
    "PublicKey",
    "SigningKey",
    "key_names",
    "keys_folder",
    "load_key",
    "new_key",
    "read_public_key",
    "signing_key",
]
