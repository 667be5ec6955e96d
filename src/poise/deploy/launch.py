"""Run a program of Flower so that it ends when its main thread does: ``python -m poise.deploy.launch PROGRAM …``.

A SuperNode whose loop fails (one answer 500 of the SuperLink is enough) prints the error, but lives on: its other
threads are waited for, for ever. Whoever tends it would take it for a node at work.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback


def main(words: list[str]) -> None:
    """Become the program; an error that nobody caught ends the process, whatever its other threads do."""
    sys.argv = words
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
