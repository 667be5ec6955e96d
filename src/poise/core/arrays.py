"""`array_of`: a user's numbers as a NumPy array, or an error that says what is wrong."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from poise.core.errors import InvalidOption


def array_of(values: ArrayLike | torch.Tensor, name: str) -> NDArray[Any]:
    """Return the values as an array.

    Masked values and rows of different lengths raise `InvalidOption`, like everything
    else that is no array. Tensors may require gradients.

    >>> array_of([[1, 2], [3]], "x")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: x is no array: its rows have different lengths
    """
    # without the module there are no masked arrays, and importing it takes time
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(values).sum())
        if masked:
            raise InvalidOption(
                f"{name} has {masked} masked values",
                "fill them (x.filled(…)) or leave the rows out",
            )
        return np.asarray(values.data)
    if isinstance(values, torch.Tensor):
        values = values.detach()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError, MemoryError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "inhomogeneous" in reason:
            reason = "its rows have different lengths"
        raise InvalidOption(f"{name} is no array: {reason}") from error
    if array.dtype == object and array.ndim == 0:
        raise InvalidOption(
            f"{name} is no array but a {type(values).__name__}",
            "turn it into an array (of a sparse matrix: x.toarray())",
        )
    return array


__all__ = ["array_of"]
