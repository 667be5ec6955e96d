"""The lower bound: as many samples through one model at the best batch size and layout; no
federated learning.

With ``threads`` inside an operation, or (``w``) by two workers with one thread and half of the
samples each.
"""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import torch
from baselines import one_model
from models import with_weights
from talk import Talk, read

from poise.core.allocator import keep_freed_memory

BATCHES = (32, 64, 256, 1024, 4096)


def main(file: str, threads: str) -> None:
    """Compute gradients until the driver has enough."""
    talk, data = Talk(), read(file)
    keep_freed_memory()
    workers = 2 if threads == "w" else 1
    torch.set_num_threads(1 if workers == 2 else int(threads))
    total = data.clients * data.steps * data.batch
    features = data.features(data.x[: data.clients])
    x, y = (
        torch.from_numpy(features.reshape(-1, *features.shape[2:])),
        torch.from_numpy(data.y[: data.clients]),
    )
    x, y = x[:total], y.reshape(-1)[:total]
    models = [
        with_weights(data.model, data.weights, layout)
        for layout in ("", "c")[: 1 + (data.model == "cnn")]
    ]
    probe = min(total, BATCHES[-1])
    one_model(models[0], x[:probe], y[:probe], BATCHES[-1])
    model, best = min(
        product(models, BATCHES),
        key=lambda way: one_model(way[0], x[:probe], y[:probe], way[1]),
    )

    pool = ThreadPoolExecutor(workers)
    parts = list(
        zip(
            [copy.deepcopy(model) for _ in range(workers)],
            x.chunk(workers),
            y.chunk(workers),
            strict=True,
        )
    )

    def share(part: tuple[torch.nn.Module, torch.Tensor, torch.Tensor]) -> None:
        if workers > 1:
            torch.set_num_threads(1)  # a setting of each thread
        one_model(*part, best)

    def rounds(count: int) -> None:
        for _ in range(count):
            if workers == 1:
                share(parts[0])
            else:
                list(pool.map(share, parts))

    talk.ready(
        torch=torch.__version__, batch=best, channels_last=model is not models[0]
    )
    talk.serve(rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
