"""How a peer talks to the driver: it says when it is ready, then does blocks of rounds when told
to.

Needs NumPy alone, since it is read in every peer's own environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Exported:
    """The data of a work: see `export`."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    cohorts: np.ndarray
    weights: Arrays
    model: str
    steps: int
    batch: int
    lr: float
    clients: int

    @property
    def tokens(self) -> bool:
        """Whether samples are text."""
        return self.model == "lstm"

    def features(self, x: np.ndarray) -> np.ndarray:
        """What a model takes: images in [0, 1] as floats, or token numbers."""
        return (
            x.astype(np.int64)
            if self.tokens
            else x.astype(np.float32) / np.float32(255)
        )

    def cohort(self, n: int) -> np.ndarray:
        """Who works in round n."""
        return self.cohorts[n % len(self.cohorts)]


def read(file: str | Path) -> Exported:
    """The data of a work from its file."""
    with np.load(file) as found:
        weights = {
            name[2:]: found[name] for name in found.files if name.startswith("w:")
        }
        arrays = {
            name: found[name] for name in ("x", "y", "test_x", "test_y", "cohorts")
        }
        return Exported(**arrays, weights=weights, **json.loads(str(found["about"])))


class Talk:
    """The peer's end. What libraries print goes to stderr; the driver's pipe is kept for
    answers.
    """

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = 0.0

    def ready(self, **about: Any) -> None:
        """Everything is loaded; ``about`` names versions and the configuration."""
        self._say({"ready": about})

    def block(self, model: Callable[[], Arrays] | None = None) -> int:
        """Wait for the order to do so many rounds; 0 is the end. The model is handed out on the
        way, if asked for.
        """
        for line in sys.stdin:
            order, _, value = line.strip().partition(" ")
            if order == "go":
                self._began = time.perf_counter()
                return int(value)
            if order == "model" and model is not None:
                np.savez(value, **model())
                self._say({"model": value})
            else:
                break
        return 0

    def done(self) -> None:
        """The block is finished."""
        self._say({"seconds": time.perf_counter() - self._began})

    def serve(
        self, rounds: Callable[[int], None], model: Callable[[], Arrays] | None = None
    ) -> None:
        """Do blocks until the driver has enough."""
        while count := self.block(model):
            rounds(count)
            self.done()

    def _say(self, what: dict[str, Any]) -> None:
        self._pipe.write(json.dumps(what) + "\n")
        self._pipe.flush()
