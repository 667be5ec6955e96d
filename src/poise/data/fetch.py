"""Download data sets from their official addresses, and verify their checksums."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from poise.core.errors import DataError
from poise.data.catalogue import CATALOGUE, DataFile, DatasetEntry, entry
from poise.data.files import check, checksum, folders, locate

Progress = Callable[[int, int], None]
"""Called with (bytes so far, total bytes of the data set; 0 if unknown)."""

_CHUNK = 1 << 16
_TIMEOUT = 30.0


class _Response(Protocol):
    status: int

    def read(self, amount: int) -> bytes: ...


@dataclass(frozen=True)
class DatasetStatus:
    """One line of `listing`: a data set, and whether its files are present."""

    name: str
    about: str
    present: bool
    folder: str
    size: int
    fetchable: bool
    licence: str


def listing() -> list[DatasetStatus]:
    """Return all data sets with files, and the folder that holds each; reads no file.

    >>> [line.name for line in listing()]
    ['cifar10', 'fashion-mnist', 'heart-disease', 'leaf', 'mnist', 'shakespeare', 'usps']
    """
    lines = []
    for _, data in sorted(CATALOGUE.items()):
        if data.folder:
            lines.append(_status_of_user_files(data))
        else:
            lines.append(_status_of_variants(data))
    return lines


def _status_of_variants(data: DatasetEntry) -> DatasetStatus:
    """Return the status of the first complete variant, or of the one to download."""
    for files in data.variants:
        at = locate(files)
        if at is not None:
            return _status(data, at, size=sum(file.size for file in files))
    files = data.variants[data.fetched or 0]
    return _status(data, None, size=sum(file.size for file in files))


def _status_of_user_files(data: DatasetEntry) -> DatasetStatus:
    """Return the status of a data set that the user makes: present with its folder."""
    for place in folders():
        folder = place / data.folder
        if folder.is_dir():
            total = sum(path.stat().st_size for path in folder.rglob("*.json"))
            return _status(data, place, size=total)
    return _status(data, None, size=0)


def _status(data: DatasetEntry, at: Path | None, size: int) -> DatasetStatus:
    """Return a line of the listing; ``at`` is the folder with the data set."""
    return DatasetStatus(
        name=data.name,
        about=data.about,
        present=at is not None,
        folder=str(at or ""),
        size=size,
        fetchable=data.fetched is not None,
        licence=data.licence,
    )


def verify(name: str, folder: str | Path | None = None) -> list[Path]:
    """Compare the files of a data set with their checksums, and return their paths.

    A missing, truncated or altered file raises `DataError` with its name.
    """
    data = entry(name)
    if data.folder:
        raise DataError(
            f"{name} cannot be verified: you made its files yourself, so there are no "
            "checksums"
        )
    places = _data_folders(folder)
    for files in data.variants:
        for place in places:
            if any((place / file.path).is_file() for file in files):
                return [check(place, file) for file in files]
    raise DataError(
        f"{name}: {' or '.join(map(str, places))} holds none of its files",
        _by_hand(data.name, places[0]),
    )


def fetch(
    name: str, folder: str | Path | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download the missing files of a data set, check all, and return their paths.

    `fetch` writes a file to ``….part``, compares size and checksum, and then renames
    it. An interrupted download continues where it stopped.

    Args:
        name: of the data set.
        folder: the data folder; None is ``$POISE_DATA``, or the user's cache folder.
        progress: called with (bytes so far, total bytes) after each chunk.
    """
    data = entry(name)
    target = _data_folders(folder)[0]
    if data.folder:
        raise DataError(
            f"{name} cannot be downloaded: you make its files yourself", data.by_hand
        )
    if data.fetched is None:
        raise DataError(
            f"{name} cannot be downloaded: its file was derived from others",
            _by_hand(name, target),
        )
    files = data.variants[data.fetched]
    total = sum(file.size for file in files)
    done = 0
    paths = []
    for file in files:

        def report(bytes_: int, before: int = done) -> None:
            if progress is not None:
                progress(before + bytes_, total)

        try:
            paths.append(_fetch_file(target, file, report=report))
        except OSError as error:
            raise DataError(
                f"{name}: {target / file.path}: {error}", _by_hand(name, target)
            ) from error
        done += paths[-1].stat().st_size
    return paths


def _fetch_file(folder: Path, file: DataFile, report: Callable[[int], None]) -> Path:
    """Return the path of a file, downloaded from the first address that works."""
    path = folder / file.path
    if path.is_file() and checksum(path, file.algorithm) == file.digest:
        report(path.stat().st_size)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for address in file.addresses:
        try:
            return download(address, path, file=file, report=report)
        except (
            URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
            DataError,
        ) as error:
            failures.append(f"{address}: {error}")
    raise OSError("; ".join(failures))


def download(
    address: str, path: Path, file: DataFile, report: Callable[[int], None]
) -> Path:
    """Download ``address`` to ``path``; continue a ``.part`` file if possible.

    A finished part with a wrong checksum is deleted, so that the next try starts
    afresh.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise DataError(f"{address}: not an http address")
    part = path.with_name(path.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    if not file.size or have > file.size:
        have = 0
    if not (file.size and have == file.size):
        request = Request(address)
        if have:
            request.add_header("Range", f"bytes={have}-")
        try:
            with urlopen(request, timeout=_TIMEOUT) as response:
                _store(response, part, have=have, report=report)
        except HTTPError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)
            raise
    size = part.stat().st_size
    digest = checksum(part, file.algorithm)
    if file.size and size < file.size:
        raise DataError(
            f"the connection ended after {size} of {file.size} bytes",
            "try again: the download continues there",
        )
    if digest != file.digest:
        part.unlink()
        raise DataError(
            f"{file.algorithm} {digest}, expected {file.digest}",
            "the server has another file",
        )
    os.replace(part, path)
    return path


def _store(
    response: _Response, part: Path, have: int, report: Callable[[int], None]
) -> None:
    """Write a response to disk; append it if the server sends only the rest."""
    resumed = have > 0 and response.status == http.client.PARTIAL_CONTENT
    mode: Literal["ab", "wb"] = "wb"
    done = 0
    if resumed:
        mode = "ab"
        done = have
    stream: BinaryIO
    with part.open(mode) as stream:
        report(done)
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            done += len(chunk)
            report(done)
        stream.flush()
        os.fsync(stream.fileno())


def _data_folders(folder: str | Path | None) -> list[Path]:
    """Return the given data folder, or the usual ones."""
    if folder is None:
        return folders()
    return [Path(folder)]


def _by_hand(name: str, folder: Path) -> str:
    """Return a hint that names the files to copy into the folder without a network."""
    data = entry(name)
    lines = []
    for file in data.variants[data.fetched or 0]:
        origin = f", from {file.addresses[0]}" if file.addresses else ""
        lines.append(f"{file.path} ({file.checksum}{origin})")
    return f"without a network, put into {folder}: {'; '.join(lines)}"
