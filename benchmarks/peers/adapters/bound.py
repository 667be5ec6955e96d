"""The lower bound: as many samples through one model at the best batch size and layout; no federated learning."""

from __future__ import annotations

import sys
from itertools import product

import torch
from baselines import one_model
from models import with_weights
from talk import Talk, read

BATCHES = (64, 256, 1024)


def main(file: str, threads: str) -> None:
    """Compute gradients until the driver has enough."""
    talk, data = Talk(), read(file)
    torch.set_num_threads(int(threads))
    total = data.clients * data.steps * data.batch
    features = data.features(data.x[: data.clients])
    x, y = torch.from_numpy(features.reshape(-1, *features.shape[2:])), torch.from_numpy(data.y[: data.clients])
    x, y = x[:total], y.reshape(-1)[:total]
    models = [with_weights(data.model, data.weights, layout) for layout in ("", "c")[: 1 + (data.model == "cnn")]]
    probe = min(total, 2048)
    one_model(models[0], x[:probe], y[:probe], BATCHES[-1])
    model, best = min(product(models, BATCHES), key=lambda way: one_model(way[0], x[:probe], y[:probe], way[1]))

    def rounds(count: int) -> None:
        for _ in range(count):
            one_model(model, x, y, best)

    talk.ready(torch=torch.__version__, batch=best, channels_last=model is not models[0])
    talk.serve(rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
