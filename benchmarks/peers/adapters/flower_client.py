"""The client's side of the Flower app, imported by Ray's workers: data is read once in each of
them.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from models import build, laid_out
from talk import Exported, read
from torch import nn

app = ClientApp()


@cache
def _loaded(
    file: str, variant: str
) -> tuple[Exported, torch.Tensor, torch.Tensor, nn.Module]:
    """What a worker keeps: the data as tensors and a module to fill."""
    torch.set_num_threads(1)  # one worker per core
    data = read(file)
    return (
        data,
        torch.from_numpy(data.features(data.x)),
        torch.from_numpy(data.y),
        laid_out(build(data.model), variant),
    )


@app.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch of the client that the message names."""
    order = message.content["config"]
    data, all_x, all_y, model = _loaded(str(order["file"]), str(order["variant"]))
    x, y = all_x[int(order["client"])], all_y[int(order["client"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=data.lr)
    for rows in torch.randperm(len(x)).split(data.batch):
        optimiser.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(content=RecordDict(content), reply_to=message)
