"""Memory that one local step frees is kept for the next."""

from __future__ import annotations

import ctypes
import os
import sys

SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
KEPT = 2**28  # free bytes at the end of the main heap that are not given back
LARGEST = 2**25  # bytes of a block that still comes from a heap: the most that the library takes


def keep_freed_memory() -> bool:
    """Ask the C library not to give freed memory back to the system at once; whether it took that.

    The activations of a step are a few blocks of megabytes that are freed when it ends. By default
    the GNU library then gives the end of its heap back, and the next step waits for the system to
    clear the same pages anew. A process that has its own settings keeps them, and where there is
    another C library nothing happens.
    """
    own = any(os.environ.get(name) for name in SETTINGS) or "glibc.malloc." in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    if sys.platform != "linux" or own:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
