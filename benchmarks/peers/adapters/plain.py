"""The plain PyTorch loop of `benchmarks/baselines.py`, with this many threads; ``c`` puts channels
last.
"""

from __future__ import annotations

import sys

import torch
from baselines import plain_loop
from models import weights_of, with_weights
from talk import Talk, read


def main(file: str, variant: str) -> None:
    """Train until the driver has enough."""
    talk, data = Talk(), read(file)
    torch.set_num_threads(int(variant.rstrip("c")))
    x, y = torch.from_numpy(data.features(data.x)), torch.from_numpy(data.y)
    model, done = with_weights(data.model, data.weights, variant), 0

    def rounds(count: int) -> None:
        nonlocal done
        for n in range(done, done + count):
            clients = [(x[i], y[i]) for i in data.cohort(n)]
            model.load_state_dict(
                plain_loop(model, clients, data.steps, data.batch, data.lr)
            )
        done += count

    talk.ready(torch=torch.__version__)
    talk.serve(rounds, lambda: weights_of(model))


if __name__ == "__main__":
    main(*sys.argv[1:])
