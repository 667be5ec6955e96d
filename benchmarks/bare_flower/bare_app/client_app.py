"""An ordinary ClientApp: the model in, some epochs of SGD, the model out."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

from bare_app.task import BATCH, EPOCHS, LR, model, samples

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = samples(
        Path(os.environ["POISE_NODE"]) / "mine.npz"
    )  # the file that poise reads on this node
    optimiser = torch.optim.SGD(net.parameters(), lr=LR)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(
        RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}),
        reply_to=message,
    )
