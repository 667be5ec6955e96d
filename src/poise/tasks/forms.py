"""The form of a sample as text: enough to make a model without the data.

The ledger of a run has the text. It names shapes, numbers of classes and tokens, and how
stored values become inputs of the model, and nothing of single samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import torch

from poise.core.samples import Samples, SeveralInputs

COUNTS = ("classes", "vocabulary", "element_classes")
"""The numbers of a form."""

STORED = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
    )
}
"""The types of stored values."""

MOST_NUMBERS = 16
"""Numbers of a scale or a shift that a form names, for example one per channel."""

MOST_VALUES = 2**31
"""Maximum number of values of one sample."""


def form_text(samples: Samples) -> str:
    """Return the form of these samples.

    >>> form_text(Samples(torch.zeros(4, 3), torch.zeros(4).long(), classes=2))
    '{"shapes": [[3]], "stored": ["float32"], "plain": true, "classes": 2}'
    """
    pools = samples.pools
    form: dict[str, Any] = {
        "shapes": [list(pool.shape) for pool in pools],
        "stored": [str(pool.raw.dtype).removeprefix("torch.") for pool in pools],
        "plain": all(pool.plain for pool in pools),
    }
    if not form["plain"]:
        form["scales"] = [_numbers(pool.scale) for pool in pools]
        form["shifts"] = [_numbers(pool.shift) for pool in pools]
    form |= {name: vars(samples)[name] for name in COUNTS if vars(samples)[name]}
    vocabularies = [pool.vocabulary for pool in pools]
    if any(pool.tokens for pool in pools):
        form["tokens"] = [pool.tokens for pool in pools]
        form["vocabularies"] = vocabularies
    if samples.target_shape:
        form["target"] = list(samples.target_shape)
        form["multi_label"] = samples.multi_label
    if samples.labels.is_floating_point():
        form["numbers"] = True
    if isinstance(samples, SeveralInputs):
        form["names"] = list(samples.names)
    return json.dumps(form)


def _numbers(value: torch.Tensor | float) -> Any:
    """Return a scale or a shift as plain numbers; None for one per pixel.

    >>> _numbers(0.5), _numbers(torch.zeros(3, 1, 1)), _numbers(torch.zeros(3, 8, 8))
    (0.5, [[[0.0]], [[0.0]], [[0.0]]], None)
    """
    if not isinstance(value, torch.Tensor):
        return float(value)
    return value.tolist() if value.numel() <= MOST_NUMBERS else None


class SampleForm(NamedTuple):
    """The form of a sample.

    Args:
        samples: two samples of zeros with this form.
        plain: whether a model takes the stored values as they are.
        scaling: how stored values become those of each input, in words; empty where
            that is not a number for all values.
    """

    samples: Samples
    plain: bool
    scaling: tuple[str, ...] = ()


def form_of(text: str) -> SampleForm:
    """Return the form that a text describes; raises `ValueError` for any other text.

    >>> form = form_of('{"shapes": [[3]], "stored": ["float32"], "classes": 2}')
    >>> form.samples.shape, form.samples.outputs, form.plain
    ((3,), 2, True)
    """
    form = json.loads(text)
    if not isinstance(form, dict):
        raise ValueError("the form of a sample is not a table")
    shapes = [_shape(shape) for shape in form["shapes"]]
    labels = torch.zeros(
        (2, *_shape(form.get("target", []))),
        dtype=torch.float32 if form.get("numbers") else torch.int64,
    )
    counts = {name: _count(form.get(name, 0)) for name in COUNTS}
    parts = [
        _zeros(form, k, shape, labels=labels, counts=counts)
        for k, shape in enumerate(shapes)
    ]
    samples = parts[0]
    if "names" in form:
        samples = SeveralInputs.of(tuple(parts), tuple(map(str, form["names"])))
    scales = zip(form.get("scales", ()), form.get("shifts", ()), strict=True)
    scaling = tuple(scaling_words(scale, shift) for scale, shift in scales)
    if scaling and len(scaling) != len(parts):
        raise ValueError("the form of a sample has too few or too many scales")
    return SampleForm(samples, bool(form.get("plain", True)), scaling)


def scaling_words(scale: object, shift: object) -> str:
    """Return in words how stored values become inputs; empty for several numbers.

    >>> scaling_words(0.0625, 0.0), scaling_words(1 / 255, -0.5)
    ('divide it by 16', 'divide it by 255 and add -0.5')
    >>> scaling_words(0.3, 0.0), scaling_words(1.0, 2.0), scaling_words(None, None)
    ('multiply it by 0.3', 'add 2', '')
    """
    if not isinstance(scale, float) or not isinstance(shift, float) or scale == 0:
        return ""
    steps = []
    divisor = round(1 / scale, 3)
    if scale != 1 and divisor.is_integer() and abs(divisor) > 1:
        steps.append(f"divide it by {divisor:g}")
    elif scale != 1:
        steps.append(f"multiply it by {scale:g}")
    if shift:
        steps.append(f"add {shift:g}")
    return " and ".join(steps)


def _zeros(
    form: Mapping[str, Any],
    k: int,
    shape: tuple[int, ...],
    *,
    labels: torch.Tensor,
    counts: Mapping[str, int],
) -> Samples:
    """Return two zeros of the k-th input."""
    tokens = bool(form["tokens"][k]) if "tokens" in form else False
    given = dict(counts)
    if tokens:
        given["vocabulary"] = _count(form["vocabularies"][k])
    return Samples(
        torch.zeros((), dtype=STORED[form["stored"][k]]).expand(2, *shape),
        labels,
        tokens=tokens,
        multi_label=bool(form.get("multi_label")),
        **given,
    )


def _shape(sizes: object) -> tuple[int, ...]:
    """Return a shape; raises for sizes that no sample has."""
    whole = isinstance(sizes, list) and all(type(n) is int and n >= 0 for n in sizes)
    if not isinstance(sizes, list) or not whole or prod(sizes) > MOST_VALUES:
        raise ValueError(f"{sizes!r:.60} is not the shape of a sample")
    return tuple(sizes)


def _count(number: object) -> int:
    """Return a number of classes or tokens."""
    if type(number) is not int or not 0 <= number <= MOST_VALUES:
        raise ValueError(f"{number!r:.60} is not a number of classes or tokens")
    return number
