"""The lower bound: as many samples through one model at the best batch size; no federated learning at all."""

from __future__ import annotations

import sys

import torch
from baselines import one_model
from models import with_weights
from talk import Talk, read

BATCHES = (64, 256, 1024)


def main(file: str, threads: str) -> None:
    """Compute gradients until the driver has enough."""
    talk, data = Talk(), read(file)
    torch.set_num_threads(int(threads))
    model, total = with_weights(data.model, data.weights), data.clients * data.steps * data.batch
    features = data.features(data.x[: data.clients])
    x, y = torch.from_numpy(features.reshape(-1, *features.shape[2:])), torch.from_numpy(data.y[: data.clients])
    x, y = x[:total], y.reshape(-1)[:total]
    probe = min(total, 2048)
    one_model(model, x[:probe], y[:probe], BATCHES[-1])
    best = min(BATCHES, key=lambda batch: one_model(model, x[:probe], y[:probe], batch))

    def rounds(count: int) -> None:
        for _ in range(count):
            one_model(model, x, y, best)

    talk.ready(torch=torch.__version__, threads=int(threads), batch=best)
    talk.serve(rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
