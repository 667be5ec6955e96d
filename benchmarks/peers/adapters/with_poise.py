"""poise: one run whose rounds wait for the driver, with its ledger on disk as in any run."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from talk import Arrays, Exported, Talk, read

import poise
from poise.core.types import Cohort


@dataclass(frozen=True)
class Listed:
    """The clients that the file names for each round, all with the same weight."""

    cohorts: np.ndarray
    needs = frozenset[str]()

    def fit(self, setting: Any) -> None:
        """Any federation of that many clients will do."""

    def draw(
        self, setting: Any, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        """The cohort of this round."""
        clients = self.cohorts[round % len(self.cohorts)]
        return Cohort(clients, np.full(len(clients), 1 / len(clients)))


def main(file: str, seed: str = "0") -> None:
    """Train until the driver has enough; the seed is that of the batches, for all else is in the
    file.
    """
    talk, data = Talk(), read(file)
    rows = np.arange(data.y.size).reshape(data.y.shape)
    text = {"vocabulary": 100} if data.tokens else {}
    flat = data.x.reshape(-1, *data.x.shape[2:])
    fed = poise.federation(
        (flat, data.y.reshape(-1)),
        list(rows),
        classes=100 if text else 10,
        importance="equal",
        **text,
    )
    task = poise.task(data.model)
    layout = task.bind(fed, "cpu").layout
    start = layout.flatten(
        {name: torch.from_numpy(value) for name, value in data.weights.items()},
        torch.float32,
    )
    with tempfile.TemporaryDirectory() as folder:
        pause = Pause(talk, Path(folder) / "run", layout)
        poise.train(
            fed,
            task,
            poise.solvers.SGD(lr=data.lr, steps=data.steps, batch_size=data.batch),
            sampler=_sampler(data),
            rounds=10**9,
            evaluate_every=10**9,
            out=pause.path,
            start=start.numpy(),
            stop=pause,
            seed=int(seed),
        ).close()


def _sampler(data: Exported) -> Any:
    return (
        poise.samplers.Full() if data.clients == len(data.y) else Listed(data.cohorts)
    )


class Pause:
    """Asked before each round: waits for the driver where a block is over; true where it has
    enough.
    """

    def __init__(self, talk: Talk, path: Path, layout: Any) -> None:
        self.talk, self.path, self.layout, self.left, self.over = (
            talk,
            path,
            layout,
            0,
            False,
        )

    def __call__(self) -> bool:
        if self.over:  # a run that was stopped asks once more, to say so
            return True
        self.left -= 1
        if self.left > 0:
            return False
        if self.left == 0:
            self.talk.done()
        else:
            self.talk.ready(poise=poise.__version__, torch=torch.__version__)
        self.left = self.talk.block(self.model)
        self.over = self.left == 0
        return self.over

    def model(self) -> Arrays:
        """The newest model, as the ledger has it."""
        theta = torch.from_numpy(poise.open_run(self.path).model.copy())
        return {name: view.numpy() for name, view in self.layout.views(theta).items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
