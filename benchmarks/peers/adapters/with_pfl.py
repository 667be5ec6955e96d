"""pfl-research: its FederatedAveraging on the simulated backend, in one process or in several under torchrun.

pfl goes through a client's samples in the same order in every round; it does not shuffle them.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from itertools import chain, cycle

import torch
import torch.nn.functional as F
from models import weights_of, with_weights
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
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

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> Metrics:
        """Nothing is measured in a round."""
        return Metrics()


def federated(data: Exported) -> FederatedDataset:
    """Clients with their tensors, sampled in the order of the file."""
    x, y = torch.from_numpy(data.features(data.x)), torch.from_numpy(data.y)
    users = [PyTorchTensorDataset((x[i], y[i]), user_id=str(i)) for i in range(len(y))]
    order = cycle(chain.from_iterable(data.cohorts.tolist()))
    return FederatedDataset(lambda user: users[user], lambda: next(order))


def main(file: str) -> None:
    """Train until the driver has enough; the first process talks, the others follow."""
    rank = int(os.environ.get("RANK", "0"))
    talk, data = Talk() if rank == 0 else None, read(file)
    torch.set_num_threads(1 if "RANK" in os.environ else len(os.sched_getaffinity(0)))
    module = WithLoss(with_weights(data.model, data.weights))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    samples = federated(data)
    backend = SimulatedBackend(samples, samples)
    train = NNTrainHyperParams(local_batch_size=data.batch, local_num_epochs=1, local_learning_rate=data.lr)

    def rounds(count: int) -> None:
        params = NNAlgorithmParams(
            central_num_iterations=count, evaluation_frequency=10**9, train_cohort_size=data.clients, val_cohort_size=0
        )
        FederatedAveraging().run(params, backend, model, train, train, send_metrics_to_platform=False)

    if talk is not None:
        talk.ready(pfl=version("pfl"), torch=version("torch"), processes=pytorch_ops.distributed.world_size)
    while count := _told(talk.block(lambda: weights_of(module.inner)) if talk is not None else 0):
        rounds(count)
        if talk is not None:
            talk.done()


def _told(count: int) -> int:
    """The number of rounds that the first process was told, in all of them."""
    if not torch.distributed.is_initialized():
        return count
    told = torch.tensor(count)
    torch.distributed.broadcast(told, 0)
    return int(told)


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["1"]) and "RANK" not in os.environ:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", sys.argv[2]]
        os.execv(sys.executable, [*launch, __file__, sys.argv[1]])
    main(sys.argv[1])
