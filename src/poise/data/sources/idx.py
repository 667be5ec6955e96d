"""`idx_pools`: pools of the four IDX files of MNIST and Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from poise.core.samples import Samples
from poise.data.catalogue import DataFile
from poise.data.files import check, check_labels, read_idx
from poise.data.sources.images import image_pools


@lru_cache(maxsize=4)
def idx_pools(
    folder: Path, files: Sequence[DataFile], normalize: str
) -> tuple[Samples, Samples]:
    """Return training (60,000) and test (10,000) pools of 28x28 images; cached.

    Args:
        folder: a data folder that holds the files.
        files: training images, training labels, test images, test labels.
        normalize: see `image_pools`.
    """
    paths = [check(folder, file) for file in files]
    images = read_idx(paths[0], (60_000, 28, 28))
    labels = read_idx(paths[1], (60_000,))
    test_images = read_idx(paths[2], (10_000, 28, 28))
    test_labels = read_idx(paths[3], (10_000,))
    return image_pools(
        (images[:, None], check_labels(paths[1], labels, classes=10)),
        (test_images[:, None], check_labels(paths[3], test_labels, classes=10)),
        top=255,
        normalize=normalize,
    )
