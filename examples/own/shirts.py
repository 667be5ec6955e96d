"""A CNN with batch norm, dropout and augmentation on Fashion-MNIST."""

import torch
from torch import nn

import poise


def block(inputs: int, outputs: int) -> list[nn.Module]:
    """Return a convolution with batch norm that halves the image."""
    conv = nn.Conv2d(inputs, outputs, 3, padding=1)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


def make(width: int = 16, dropout: float = 0.2) -> nn.Module:
    """Return the CNN."""
    return nn.Sequential(
        *block(1, width),
        *block(width, 2 * width),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * 7 * 7, 10),
    )


def augment(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirror half of the images and change the brightness of all."""
    mirrored = torch.rand(len(x), 1, 1, 1, generator=generator) < 0.5
    brightness = 0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, generator=generator)
    return torch.where(mirrored, x.flip(-1), x) * brightness


def main(samples: int = 3000, rounds: int = 8) -> poise.Run:
    """Train on five clients with different classes and print the accuracy."""
    fed = poise.federation(
        "fashion-mnist",
        "dirichlet",
        alpha=1.0,
        clients=5,
        samples=samples,
        test_samples=1000,
    )
    task = poise.Task(module=make, transform=augment)
    solver = poise.solvers.SGD(lr=0.05, momentum=0.9, epochs=1, batch_size=32)
    run = poise.train(fed, task, solver, rounds=rounds)
    print("accuracy", run.metric("accuracy").round(3))
    return run


if __name__ == "__main__":
    main()
