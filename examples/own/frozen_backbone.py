"""A backbone that was trained before, frozen, with a head that clients train."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import poise

WEIGHTS = Path(__file__).with_name("data") / "backbone.pt"


def load(public: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return 400 public images of digits, or all others, which belong to clients."""
    x, y = load_digits(return_X_y=True)
    chosen = slice(400) if public else slice(400, None)
    return (x[chosen] / 16).astype(np.float32), y[chosen]


def backbone() -> nn.Module:
    """Return a network from images to 64 features."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())


def pretrain(steps: int = 150) -> None:
    """Train the backbone on the public images, in plain PyTorch, and save it."""
    torch.manual_seed(0)
    x, y = map(torch.from_numpy, load(public=True))
    body, head = backbone(), nn.Linear(64, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.003)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(body(x)), y).backward()
        optimizer.step()
    WEIGHTS.parent.mkdir(exist_ok=True)
    torch.save(body.state_dict(), WEIGHTS)


def make() -> nn.Module:
    """Return the frozen backbone with a new head."""
    body = backbone().requires_grad_(False)
    body.load_state_dict(torch.load(WEIGHTS))
    return nn.Sequential(body, nn.Linear(64, 10))


def main(rounds: int = 15) -> poise.Run:
    """Train the head on ten clients; only the head travels."""
    pretrain()
    fed = poise.federation(load, "dirichlet", clients=10, alpha=0.5, test_share=0.2)
    solver = poise.solvers.SGD(lr=0.2, epochs=1, batch_size=16)
    run = poise.train(fed, poise.Task(module=make), solver, rounds=rounds)
    print("accuracy", run.metric("accuracy").round(3), "numbers sent", run.model.size)
    return run


if __name__ == "__main__":
    main()
