"""pfl-research: its FederatedAveraging on the simulated backend, in one process or in several under
torchrun.

The variant says how many; ``c`` puts channels last. pfl goes through a client's samples in the same
order in every round; it does not shuffle them.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from itertools import chain, cycle
from typing import Any

import torch
import torch.nn.functional as F
from models import weights_of, with_weights
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from talk import Exported, Talk, read
from torch import nn


class WithLoss(nn.Module):
    """A module with the methods that pfl asks for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(self.inner(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """Nothing is measured in a round."""
        return {}


def federated(data: Exported) -> FederatedDataset:
    """Clients with their tensors, sampled in the order of the file."""
    x, y = torch.from_numpy(data.features(data.x)), torch.from_numpy(data.y)
    users = [PyTorchTensorDataset((x[i], y[i]), user_id=str(i)) for i in range(len(y))]
    order = cycle(chain.from_iterable(data.cohorts.tolist()))
    return FederatedDataset(lambda user: users[user], lambda: next(order))


class Pause(TrainingProcessCallback):
    """Waits for the driver where a block is over; the first process talks, the others follow."""

    def __init__(self, talk: Talk | None, module: WithLoss) -> None:
        self.talk, self.module = talk, module
        self.left = self._next()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """True where the driver has enough."""
        self.left -= 1
        if self.left == 0:
            if self.talk is not None:
                self.talk.done()
            self.left = self._next()
        return self.left == 0, Metrics()

    def _next(self) -> int:
        """The number of rounds that the first process is told, in all processes."""
        told = torch.tensor(
            self.talk.block(lambda: weights_of(self.module.inner))
            if self.talk is not None
            else 0
        )
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(told, 0)
        return int(told)


def main(file: str, variant: str) -> None:
    """Train until the driver has enough. pfl measures clients in the very first round, which is not
    counted.
    """
    talk, data = Talk() if os.environ.get("RANK", "0") == "0" else None, read(file)
    torch.set_num_threads(1)  # one process per core
    module = WithLoss(with_weights(data.model, data.weights, variant))
    model = PyTorchModel(
        module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)
    )
    samples = federated(data)
    if talk is not None:
        talk.ready(
            pfl=version("pfl"),
            torch=version("torch"),
            processes=get_ops().distributed.world_size,
        )
    pause = Pause(talk, module)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=data.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(samples, samples),
        model,
        NNTrainHyperParams(
            local_batch_size=data.batch, local_num_epochs=1, local_learning_rate=data.lr
        ),
        NNEvalHyperParams(local_batch_size=None),
        [pause],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    processes = sys.argv[2].rstrip("c")
    if processes != "1" and "RANK" not in os.environ:
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            processes,
        ]
        os.execv(sys.executable, [*launch, __file__, *sys.argv[1:]])
    main(*sys.argv[1:])
