"""Images as arrays, and folders with one subfolder of images per class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import DataError, InvalidOption, require
from poise.data.blocks import room
from poise.data.own.encoding import Read

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def pixels(image: Image, colour: bool) -> NDArray[Any]:
    """Return an image as bytes, (channels, height, width): 3 channels, or 1."""
    values = np.asarray(image.convert("RGB" if colour else "L"))
    if colour:
        return values.transpose(2, 0, 1)
    return values[None]


def is_grey(image: Image) -> bool:
    """Return whether an image has grey values only."""
    return image.mode in ("1", "L", "LA", "I", "I;16", "F")


def same_size(images: Iterable[Image], title: str) -> NDArray[Any]:
    """Return images of one size as one array, (n, channels, height, width)."""
    given = list(images)
    colour = not all(is_grey(image) for image in given)
    arrays = [pixels(image, colour) for image in given]
    shapes = sorted({array.shape[1:] for array in arrays})
    if len(shapes) > 1:
        raise DataError(
            f"{title}: images of {_sizes(shapes)} pixels", "resize them to one size"
        )
    return np.stack(arrays)


def _sizes(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(f"{height}x{width}" for height, width in shapes[:2])


def read_images(data: Sequence[Path], size: Sequence[int] | None = None) -> list[Read]:
    """Return the images of folders with one subfolder per class.

    All folders share the classes and the form of images: bytes (1, h, w) if all images
    are grey, else (3, h, w).

    Args:
        data: the folders.
        size: resize all images to (height, width), bilinear.
    """
    require(
        size is None or (len(size) == 2 and all(isinstance(k, int) for k in size)),
        f"size = {size!r} must be (height, width)",
        where="size",
    )
    files = [_files(folder) for folder in data]
    names = tuple(sorted({file.parent.name for part in files for file in part}))
    forms = [_form(file) for part in files for file in part]
    colour = not all(grey for _, grey in forms)
    if size is None:
        shapes = sorted({shape for shape, _ in forms})
        if len(shapes) > 1:
            raise DataError(
                f"{data[0]}: images of {_sizes(shapes)} pixels",
                "add size=(height, width) to resize them",
                where=("size",),
            )
        size = shapes[0]
    return [_read(part, names, colour=colour, size=size) for part in files]


def _files(folder: Path) -> list[Path]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [
        file
        for path in classes
        for file in sorted(path.iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise DataError(
            f"{folder} has no subfolders with images",
            "make one subfolder per class, or put x.npy and y.npy there",
        )
    return files


def _open(file: Path) -> Image:
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidOption(
            f"{file}: images need Pillow", "pip install 'poise[images]'"
        ) from error
    try:
        return Image.open(file)
    except (OSError, SyntaxError) as error:
        raise DataError(f"{file} cannot be read as an image") from error


def _form(file: Path) -> tuple[tuple[int, int], bool]:
    """Return height and width of an image, and whether it is grey."""
    with _open(file) as image:
        return (image.height, image.width), is_grey(image)


def _read(
    files: Sequence[Path], names: Sequence[str], *, colour: bool, size: Sequence[int]
) -> Read:
    height, width = size
    x = room((len(files), 3 if colour else 1, height, width), np.uint8)
    for row, file in enumerate(files):
        with _open(file) as image:
            try:
                if (image.height, image.width) == (height, width):
                    x[row] = pixels(image, colour)
                else:
                    mode = image.convert("RGB" if colour else "L")
                    x[row] = pixels(mode.resize((width, height), 2), colour)
            except (OSError, SyntaxError, ValueError) as error:
                raise DataError(f"{file} cannot be read as an image") from error
    numbers = {name: number for number, name in enumerate(names)}
    y = np.array([numbers[file.parent.name] for file in files], dtype=np.int64)
    return Read(x, y, class_names=tuple(names), offered={"label": y})
