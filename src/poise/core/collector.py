"""Import modules without collecting garbage: imports allocate much and drop little."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports(freeze: bool = False) -> Iterator[None]:
    """Pause the garbage collector inside the block.

    After PyTorch, one collection takes as long as the import of poise. ``freeze`` takes
    everything that exists at the end out of later collections, too; it is for programs
    that own their process.

    >>> with imports():
    ...     gc.isenabled()
    False
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if freeze:
            gc.freeze()
        if collecting:
            gc.enable()
