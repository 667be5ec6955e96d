"""`cifar10`: the official binary archive, or a class-balanced subset of it."""

from __future__ import annotations

import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require, suggest
from poise.core.samples import Samples
from poise.data.catalogue import CIFAR10_ARCHIVE, CIFAR10_SUBSET
from poise.data.files import check, check_labels, home, locate, read_npz
from poise.data.sources.images import image_pools, public_mean
from poise.data.sources.source import Source

_RECORD = 1 + 3 * 32 * 32
_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6))
_TEST = ("cifar-10-batches-bin/test_batch.bin",)
_FILES = {"full": CIFAR10_ARCHIVE, "subset": CIFAR10_SUBSET}
_NOTES = {
    "full": "CIFAR-10, official binary archive, 50,000 + 10,000",
    "subset": "CIFAR-10, subset of 20,000 + 4,000: scores are not comparable with those on the "
    "full set",
}


def cifar10(normalize: str = "unit", version: str = "auto", size: int = 32) -> Source:
    """CIFAR-10, 32x32 colour images of ten classes.

    Args:
        normalize: ``unit`` (x/255), ``symmetric`` (x/127.5 - 1), ``standard`` (per
            channel), ``centred`` (x/255 minus the mean test image), ``inverted`` (1 -
            x/255) or ``raw`` (0 … 255).
        version: ``full`` (50,000 + 10,000), ``subset`` (20,000 + 4,000: the first 2,000
            and 400 of each class), or ``auto`` (the full set if its archive is present,
            else the subset). The notes of the source name the version.
        size: edge of the images in pixels, 32, 16 or 8; smaller ones are means of
            blocks of pixels.

    >>> cifar10(version="subset").notes  # doctest: +NEEDS_DATA
    'CIFAR-10, subset of 20,000 + 4,000: scores are not comparable with those on the full set'

    Source: [Krizhevsky 2009]; used in [Exp-α 2023, §4], [Buttaci 2024, §3.4], [Fraboni
    2023, §3.6], [Fraboni 2023, §4.5] (16x16).
    """
    if version not in ("auto", *_NOTES):
        raise InvalidOption(
            f"cifar10: unknown version {version!r}",
            suggest(version, ("auto", *_NOTES)),
            where=("version",),
        )
    require(
        size in (32, 16, 8), f"cifar10: size = {size} is not 32, 16 or 8", where="size"
    )
    if version == "auto":
        version = "full"
        if locate([CIFAR10_ARCHIVE]) is None and locate([CIFAR10_SUBSET]) is not None:
            version = "subset"
    folder = home("cifar10", [_FILES[version]])
    train, test = _pools(folder, version, normalize, size)
    notes = _NOTES[version]
    if size != 32:
        notes += f"; images reduced to {size}x{size}"
    mean = public_mean(normalize)
    return Source("cifar10", train, test, notes=notes, public_mean=mean)


@lru_cache(maxsize=2)
def _pools(
    folder: Path, version: str, normalize: str, size: int
) -> tuple[Samples, Samples]:
    (x, y), (x_test, y_test) = _images(folder, version)
    return image_pools(
        (reduced(x, size), y), (reduced(x_test, size), y_test), 255, normalize
    )


def reduced(images: NDArray[Any], size: int) -> NDArray[Any]:
    """Reduce images (n, C, h, h) to means of h/size pixels, in whole grey values.

    >>> reduced(np.array([[[[0, 4], [8, 8]]]], np.uint8), 1).item()
    5
    """
    n, channels, edge, _ = images.shape
    if edge == size:
        return images
    block = edge // size
    sums = images.reshape((n, channels, size, block, size, block)).sum(
        axis=(3, 5), dtype=np.uint32
    )
    return np.asarray((2 * sums + block**2) // (2 * block**2), dtype=images.dtype)


_Images = tuple[NDArray[Any], NDArray[np.int64]]


def _images(folder: Path, version: str) -> tuple[_Images, _Images]:
    """Return images (n, 3, 32, 32) and labels, for training and for the test."""
    if version == "full":
        path = check(folder, CIFAR10_ARCHIVE)
        return read_batches(path, _TRAIN), read_batches(path, _TEST)
    path = check(folder, CIFAR10_SUBSET)
    arrays = {
        "x_train": ((20_000, 32, 32, 3), "u1"),
        "y_train": ((20_000,), "u1"),
        "x_test": ((4_000, 32, 32, 3), "u1"),
        "y_test": ((4_000,), "u1"),
    }
    held = read_npz(path, arrays)

    def images(part: str) -> _Images:
        labels = check_labels(path, held[f"y_{part}"], classes=10)
        return held[f"x_{part}"].transpose(0, 3, 1, 2), labels

    return images("train"), images("test")


def read_batches(
    path: Path, members: tuple[str, ...]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels of these batches of the binary archive.

    A record is one byte of label and 3 x 1024 bytes of red, green and blue.
    """
    blocks = []
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in members:
                stream = archive.extractfile(member)
                blocks.append(np.frombuffer(stream.read() if stream else b"", np.uint8))
    except (tarfile.TarError, KeyError, OSError, EOFError) as error:
        raise DataError(
            f"{path}: not the CIFAR-10 binary archive: {error}", "fetch it again"
        ) from error
    for member, block in zip(members, blocks, strict=True):
        if not len(block) or len(block) % _RECORD:
            raise DataError(
                f"{path}: {member} holds {len(block)} bytes, expected records of {_RECORD}"
            )
    records = np.concatenate(blocks).reshape(-1, _RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), check_labels(path, records[:, 0], 10)
