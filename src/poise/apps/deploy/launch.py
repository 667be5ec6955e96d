"""Start a program of Flower, fixed and guarded: ``python -m poise.apps.deploy.launch PROGRAM``.

1. Flower's database times out after five seconds, whatever its address says. While the
   SuperLink writes a large reply on a busy machine, other nodes would get HTTP 500.
   Here the timeout is longer.
2. A SuperNode whose main loop fails (one HTTP 500 is enough) prints the error but never
   exits, because it waits for its other threads. A supervisor would consider it
   running. Here an uncaught error ends the process.
3. The SuperLink accepts runs from anybody who reaches its port, and any app. Here it
   starts with the guard of `poise.apps.deploy.guard`, and ``flwr`` with its token.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from poise.apps.deploy.folder import MARK
from poise.apps.deploy.guard import act_as_operator, guard_superlink

DATABASE_TIMEOUT = 120  # seconds that the SuperLink waits for its own database


def extend_database_timeout() -> None:
    """Set the timeout of Flower's database; call before Flower reads the setting."""
    constant: Any = import_module("flwr.supercore.constant")
    settings = {
        **dict(constant.SQLITE_PRAGMAS),
        "busy_timeout": str(1000 * DATABASE_TIMEOUT),
    }
    constant.SQLITE_PRAGMAS = tuple(settings.items())


def _guard(name: str) -> None:
    """Prepare the programs that the guard concerns; all others stay as they are."""
    guards = {"flower-superlink": guard_superlink, "flwr": act_as_operator}
    if name in guards:
        guards[name](Path(os.environ[MARK]) / "server")


def main(arguments: list[str]) -> None:
    """Run the program; an uncaught error ends the process despite other threads."""
    sys.argv = arguments
    extend_database_timeout()
    try:
        _guard(Path(arguments[0]).name)
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
