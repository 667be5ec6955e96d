"""Keep the memory that one local step frees, so that the next step can use it again."""

from __future__ import annotations

import ctypes
import os
import sys

SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
M_TRIM_THRESHOLD = -1  # as in malloc.h
M_MMAP_THRESHOLD = -3  # as in malloc.h
KEPT = 2**28  # free bytes that stay at the end of the main heap
# bytes of the largest block that comes from a heap; the library allows no more
LARGEST = 2**25


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory; return whether it accepted the settings.

    The activations of a step are a few blocks of megabytes, which the step frees when
    it ends. By default the GNU library returns the end of its heap to the system, and
    the next step waits for the system to clear the same pages again. Settings in the
    environment take precedence, and with another C library nothing happens.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    set_by_user = (
        any(os.environ.get(name) for name in SETTINGS) or "glibc.malloc." in tunables
    )
    if sys.platform != "linux" or set_by_user:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
