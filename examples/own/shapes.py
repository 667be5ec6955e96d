"""A small U-Net that segments generated discs and squares, measured by Dice."""

import numpy as np
import torch
from torch import nn

import poise


def load(images: int = 160, size: int = 32, scanners: int = 4) -> dict:
    """Return grey images (n, 1, s, s) and masks: 0 background, 1 disc, 2 square."""
    rng = np.random.default_rng(0)
    grid = np.indices((size, size))
    masks = np.zeros((images, size, size), dtype=np.int64)
    for mask in masks:
        disc, square = np.abs(grid - rng.integers(6, size - 6, (2, 2, 1, 1)))
        mask[(disc**2).sum(axis=0) < 30] = 1
        mask[square.max(axis=0) < 5] = 2
    scanner = np.arange(images) % scanners
    light = (0.8 + 0.1 * scanner)[:, None, None]
    grey = light * masks / 2 + 0.1 * rng.normal(size=masks.shape)
    return {"data": (grey[:, None].astype(np.float32), masks), "keys": scanner}


def conv(inputs: int, outputs: int) -> nn.Module:
    """Return a convolution with ReLU that keeps the size."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.ReLU())


class UNet(nn.Module):
    """One level down, one level up, with a skip connection."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down, self.low = conv(1, width), conv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join, self.head = conv(2 * width, width), nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, 3, s, s)."""
        fine = self.down(x)
        coarse = self.up(self.low(nn.functional.max_pool2d(fine, 2)))
        return self.head(self.join(torch.cat([fine, coarse], dim=1)))


def main(rounds: int = 10, **options: int) -> poise.Run:
    """Train on four scanners and print Dice on the test images of each."""
    fed = poise.federation(load, "by-key", options=options, client_test_share=0.2)
    task = poise.Task(module=UNet, metrics=["dice"])
    metrics = ["client_test_dice", "own_dice"]
    solver = poise.solvers.Adam(lr=0.005, epochs=4, batch_size=8)
    run = poise.train(fed, task, solver, rounds=rounds, metrics=metrics)
    print("dice", run.metric("client_test_dice")[-1].round(3))
    return run


if __name__ == "__main__":
    main()
