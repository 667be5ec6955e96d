"""The four IDX files in which MNIST and Fashion-MNIST are published."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from poise.core.samples import Samples
from poise.data.catalogue import File
from poise.data.files import check, check_labels, read_idx
from poise.data.sources.images import image_pools


@lru_cache(maxsize=4)
def idx_pools(folder: Path, files: Sequence[File], normalize: str) -> tuple[Samples, Samples]:
    """Training (60,000) and test (10,000) pool of 28x28 images, read strictly and kept for the
    process.

    Args:
        folder: a data folder that holds the files.
        files: training images, training labels, test images, test labels.
        normalize: see `image_pools`.
    """
    paths = [check(folder, file) for file in files]
    images, labels = read_idx(paths[0], (60_000, 28, 28)), read_idx(paths[1], (60_000,))
    test_images, test_labels = (read_idx(paths[2], (10_000, 28, 28)), read_idx(paths[3], (10_000,)))
    return image_pools(
        (images[:, None], check_labels(paths[1], labels, 10)),
        (test_images[:, None], check_labels(paths[3], test_labels, 10)),
        255,
        normalize,
    )
