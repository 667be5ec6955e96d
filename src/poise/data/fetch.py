"""Downloading data sets from their official addresses, and comparing files with their checksums."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from poise.core.errors import DataError
from poise.data.catalogue import CATALOGUE, Entry, File, entry
from poise.data.files import check, checksum, folders, locate

Progress = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all; 0 if unknown) of the whole data set."""

_CHUNK = 1 << 16
_TIMEOUT = 30.0


class _Response(Protocol):
    status: int

    def read(self, amount: int) -> bytes: ...


@dataclass(frozen=True)
class Listed:
    """One line of `listing`: a data set, and whether it is here."""

    name: str
    about: str
    present: bool
    folder: str
    size: int
    fetchable: bool
    licence: str


def listing() -> list[Listed]:
    """All data sets that are read from files, and where each was found; nothing is read.

    >>> [line.name for line in listing()]
    ['cifar10', 'fashion-mnist', 'heart-disease', 'leaf', 'mnist', 'shakespeare', 'usps']
    """
    lines = []
    for _, data in sorted(CATALOGUE.items()):
        if data.folder:
            lines.append(_own_making(data))
            continue
        found = next(((files, at) for files in data.variants if (at := locate(files))), None)
        files, at = found or (data.variants[data.fetched or 0], None)
        total = sum(file.size for file in files)
        lines.append(_listed(data, at, size=total))
    return lines


def _own_making(data: Entry) -> Listed:
    """A data set whose files the user makes; present where its folder is."""
    at = next((place for place in folders() if (place / data.folder).is_dir()), None)
    total = sum(path.stat().st_size for path in (at / data.folder).rglob("*.json")) if at else 0
    return _listed(data, at, size=total)


def _listed(data: Entry, at: Path | None, size: int) -> Listed:
    """A line of the listing; ``at`` is the folder that the data set was found in."""
    return Listed(
        name=data.name,
        about=data.about,
        present=at is not None,
        folder="" if at is None else str(at),
        size=size,
        fetchable=data.fetched is not None,
        licence=data.licence,
    )


def verify(name: str, folder: str | Path | None = None) -> list[Path]:
    """Compare all files of a data set that are here with their checksums; the paths that were
    right.

    A missing, truncated or altered file raises `DataError` and is named.
    """
    data = entry(name)
    if data.folder:
        raise DataError(
            f"{name} cannot be verified: its files are of your own making, there are no checksums"
        )
    places = [Path(folder)] if folder is not None else folders()
    for files in data.variants:
        for place in places:
            if any((place / file.path).is_file() for file in files):
                return [check(place, file) for file in files]
    raise DataError(
        f"{name}: none of its files are in {' or '.join(map(str, places))}",
        _by_hand(data.name, places[0]),
    )


def fetch(
    name: str, folder: str | Path | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download what is missing of a data set, and check everything; the paths of its files.

    A file is written to ``….part``, compared with its size and checksum, and only then renamed. An
    interrupted download goes on where it stopped.

    Args:
        name: of the data set.
        folder: the data folder; None is ``$POISE_DATA``, or the user's cache folder.
        progress: called now and then with (bytes so far, bytes in all).
    """
    data = entry(name)
    target = Path(folder) if folder is not None else folders()[0]
    if data.folder:
        raise DataError(
            f"{name} cannot be downloaded: its files are of your own making", data.by_hand
        )
    if data.fetched is None:
        raise DataError(
            f"{name} cannot be downloaded: its file was derived from others", _by_hand(name, target)
        )
    files = data.variants[data.fetched]
    total, done = sum(file.size for file in files), 0
    paths = []
    for file in files:

        def report(bytes_: int, before: int = done) -> None:
            if progress is not None:
                progress(before + bytes_, total)

        try:
            paths.append(_bring(target, file, report))
        except OSError as error:
            raise DataError(
                f"{name}: {target / file.path}: {error}", _by_hand(name, target)
            ) from error
        done += paths[-1].stat().st_size
    return paths


def _bring(folder: Path, file: File, report: Callable[[int], None]) -> Path:
    """One file: already there, or from the first address that gives it."""
    path = folder / file.path
    if path.is_file() and checksum(path, file.algorithm) == file.digest:
        report(path.stat().st_size)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for address in file.addresses:
        try:
            return download(address, path, file, report)
        except (
            URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
            DataError,
        ) as error:
            failures.append(f"{address}: {error}")
    raise OSError("; ".join(failures))


def download(address: str, path: Path, file: File, report: Callable[[int], None]) -> Path:
    """Download ``address`` to ``path``, going on from a ``.part`` file if the server can.

    A finished part that does not have the right checksum is deleted, so that the next try starts
    afresh.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise DataError(f"{address}: not an http address")
    part = path.with_name(path.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    if not file.size or have > file.size:
        have = 0
    if not (file.size and have == file.size):
        request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urlopen(request, timeout=_TIMEOUT) as response:
                _store(response, part, have, report)
        except HTTPError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)
            raise
    size, found = part.stat().st_size, checksum(part, file.algorithm)
    if file.size and size < file.size:
        raise DataError(
            f"the connection ended after {size} of {file.size} bytes",
            "try again: it goes on from there",
        )
    if found != file.digest:
        part.unlink()
        raise DataError(
            f"{file.algorithm} {found}, expected {file.digest}", "the server has another file"
        )
    os.replace(part, path)
    return path


def _store(response: _Response, part: Path, have: int, report: Callable[[int], None]) -> None:
    """Write a response to disk, behind what is there if the server sends the rest only."""
    resumed = have > 0 and response.status == http.client.PARTIAL_CONTENT
    stream: BinaryIO
    with part.open("ab" if resumed else "wb") as stream:
        done = have if resumed else 0
        report(done)
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            done += len(chunk)
            report(done)
        stream.flush()
        os.fsync(stream.fileno())


def _by_hand(name: str, folder: Path) -> str:
    """What to do without a network."""
    data = entry(name)
    files = data.variants[data.fetched or 0]
    lines = [
        f"{file.path} ({file.checksum}{''.join(f', from {a}' for a in file.addresses[:1])})"
        for file in files
    ]
    return f"without a network, put into {folder}: {'; '.join(lines)}"
