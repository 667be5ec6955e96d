"""The process of a job: ``python -m poise.apps.experiments.sweep_worker``."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from dataclasses import asdict
from typing import IO, Any

from poise.apps.experiments.sweep_jobs import RunOrder, Stop, advance
from poise.core.errors import PoiseError


def main() -> None:
    """Serve orders from stdin; prints of users' code go to stderr, answers to stdout."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


def serve(commands: IO[str], answers: IO[str]) -> None:
    """Advance the runs that another process orders, until it closes ``commands``.

    The process ends at once if the other one has gone: its ledgers can be resumed.
    """
    setup = json.loads(commands.readline())
    sys.path += [folder for folder in setup["path"] if folder not in sys.path]
    _keep_to_cores(setup["number"], setup["jobs"])
    orders: queue.Queue[RunOrder] = queue.Queue()
    stopping = threading.Event()

    def listen() -> None:
        for line in commands:
            message = json.loads(line)
            if "stop" in message:
                stopping.set()
            else:
                orders.put(RunOrder(**message["order"]))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        _serve_one(orders.get(), answers, stopping.is_set)


def _serve_one(order: RunOrder, answers: IO[str], stop: Stop) -> None:
    """Advance one run, and report its rounds and its end."""

    def answer(message: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(message) + "\n")
            answers.flush()
        except BrokenPipeError:  # the other process has gone
            os._exit(0)

    ending: dict[str, Any] = {"ready": True}
    try:
        advance(order, lambda news: answer({"news": asdict(news)}), stop)
    except PoiseError as error:
        ending = {"error": f"{order.name}: {error.message}", "hint": error.hint}
    except Exception as error:
        traceback.print_exc()
        ending = {
            "error": f"{order.name}: {type(error).__name__}: {error}",
            "hint": "the traceback is above; repeat the command to continue",
        }
    answer(ending)


def _keep_to_cores(number: int, jobs: int) -> None:
    """Use this worker's share of the cores, where the system can say which those are."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[number % len(cores) :: jobs]
    os.sched_setaffinity(0, mine or cores)


if __name__ == "__main__":
    main()
