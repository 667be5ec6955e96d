"""What a user would write instead, and the same samples through one model: no federated learning at
all.
"""

from __future__ import annotations

import copy
import time

import torch
import torch.nn.functional as F
from torch import nn


def plain_loop(
    model: nn.Module,
    clients: list[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    batch: int,
    lr: float,
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
) -> dict[str, torch.Tensor]:
    """One round as a PyTorch user writes it first: copy the model, loop over batches, average."""
    results = []
    for x, y in clients:
        local = copy.deepcopy(model)
        optimiser = optimizer(local.parameters(), lr=lr)  # type: ignore[call-arg]
        order = torch.randperm(len(x))
        for k in range(steps):
            rows = order[k * batch : (k + 1) * batch]
            optimiser.zero_grad()
            F.cross_entropy(local(x[rows]), y[rows]).backward()
            optimiser.step()
        results.append(local.state_dict())
    return {
        name: torch.stack([r[name].float() for r in results]).mean(dim=0)
        for name in results[0]
    }


def one_model(model: nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int) -> float:
    """Seconds to push all of x through one model, forward and backward, in batches of this size."""
    parameters = list(model.parameters())
    began = time.perf_counter()
    for start in range(0, len(x), batch):
        loss = F.cross_entropy(
            model(x[start : start + batch]), y[start : start + batch]
        )
        torch.autograd.grad(loss, parameters)
    return time.perf_counter() - began


def lower_bound(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    total: int,
    batches: tuple[int, ...],
) -> float:
    """Seconds for ``total`` samples through one model at the best batch size: no federated learning
    at all.
    """
    one_model(model, x[:64], y[:64], 64)
    return min(one_model(model, x, y, batch) for batch in batches) * total / len(x)
