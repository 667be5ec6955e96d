"""The layout of a model as text: names, shapes and types of its tensors.

The ledger of a run has this text, and so has the header of every model file.
"""

from __future__ import annotations

import json

import torch

from poise.core.vectors import Layout

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bfloat16,
        torch.bool,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    )
}
"""The types that a text can name."""


def layout_text(layout: Layout) -> str:
    """Return the text of a layout; the trained tensors come first.

    >>> layout_text(Layout.of_module(torch.nn.Linear(3, 2)))
    '[["weight", [2, 3], "float32"], ["bias", [2], "float32"]]'
    """
    entries = [
        (entry.name, list(entry.shape), str(entry.dtype).removeprefix("torch."))
        for entry in layout.entries
    ]
    return json.dumps(entries)


def layout_of(text: str, trainable: int) -> Layout:
    """Return the layout of a text; raises `ValueError` for any other text.

    >>> layout = Layout.of_module(torch.nn.BatchNorm1d(4))
    >>> layout_of(layout_text(layout), layout.trainable) == layout
    True
    """
    entries = json.loads(text)
    if not isinstance(entries, list):
        raise ValueError("the names of a model are not a list")
    shapes = [_entry(entry) for entry in entries]
    layout = Layout.of_entries(shapes, trainable)
    if layout.trainable != trainable:
        raise ValueError(f"no tensor of the model ends at entry {trainable}")
    return layout


def _entry(entry: object) -> tuple[str, tuple[int, ...], torch.dtype]:
    """Return name, shape and type of one tensor."""
    match entry:
        case [str(name), list(shape), str(kind)] if kind in DTYPES:
            if all(type(size) is int and 0 <= size < 2**40 for size in shape):
                return name, tuple(shape), DTYPES[kind]
    raise ValueError(f"{entry!r:.60} is not a tensor's name, shape and type")
