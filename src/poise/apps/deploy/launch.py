"""Run a program of Flower so that one long reply cannot stop the others: ``python -m
poise.apps.deploy.launch PROGRAM …``.

Flower's database gives up after five seconds, whatever its address says; while somebody's gigabyte
is written on a busy machine, the others then get answers 500. And a SuperNode whose loop fails (one
such answer is enough) prints the error, but lives on: its other threads are waited for, for ever.
Whoever tends it would take it for a node at work.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from importlib import import_module
from typing import Any

PATIENCE = 120  # seconds that the SuperLink waits for its own database


def be_patient() -> None:
    """Set how long connections to Flower's database wait for their turn; before anything of Flower
    reads it.
    """
    constant: Any = import_module("flwr.supercore.constant")
    settings = {**dict(constant.SQLITE_PRAGMAS), "busy_timeout": str(1000 * PATIENCE)}
    constant.SQLITE_PRAGMAS = tuple(settings.items())


def main(words: list[str]) -> None:
    """Become the program; an error that nobody caught ends the process, whatever its other threads
    do.
    """
    sys.argv = words
    be_patient()
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
