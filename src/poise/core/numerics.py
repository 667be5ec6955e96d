"""Whether matrix products round the same wherever their memory starts."""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path

import torch

MODES = {1: "off", 2: "auto", 3: "compatible"}

HINT = (
    "import poise before PyTorch multiplies its first matrix, or set MKL_CBWR=AVX2 in the "
    "environment"
)


@cache
def mkl_mode() -> str:
    """Return MKL's reproducibility mode: ``off`` is no guarantee; empty without MKL.

    Importing `poise` sets a fixed code path (``MKL_CBWR``), but MKL reads the setting
    only at its first call.
    """
    # makes MKL read its setting, if it has not yet
    torch.ones(64, 64) @ torch.ones(64, 64)
    try:
        library = ctypes.CDLL(
            os.fspath(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
        )
        mode = int(library.mkl_serv_cbwr_get(-1))
    except (OSError, AttributeError):
        return ""
    return MODES.get(mode, str(mode))


def warn_if_not_reproducible() -> None:
    """Warn if the bits of a run could depend on where its memory starts."""
    if mkl_mode() == "off":
        message = (
            "MKL was used before poise was imported: another machine may not reproduce this run to "
            "the bit"
        )
        warnings.warn(f"{message} ({HINT})", stacklevel=3)
