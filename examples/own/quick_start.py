"""The network of Flower's and PyTorch's CIFAR-10 tutorials, with local Adam."""

import torch
import torch.nn.functional as F
from torch import nn

import poise


class Net(nn.Module):
    """The network of the tutorials, unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ten logits per image."""
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def main(samples: int = 5000, rounds: int = 8) -> poise.Run:
    """Train on ten clients and print the accuracy of each on its own test images."""
    fed = poise.federation(
        "cifar10",
        clients=10,
        samples=samples,
        test_samples=1000,
        normalize="symmetric",
        client_test_share=0.2,
    )
    solver = poise.solvers.Adam(lr=0.001, epochs=1, batch_size=32)
    metrics = ["client_test_accuracy"]
    run = poise.train(
        fed, poise.Task(module=Net), solver, rounds=rounds, metrics=metrics
    )
    print("accuracy", run.metric("accuracy").round(3))
    print("per client", run.metric("client_test_accuracy")[-1].round(2))
    return run


if __name__ == "__main__":
    main()
