"""What a client does: an ordinary ClientApp, which also tells the loss of the model that it
received.
"""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

from digits_app.task import model, partition

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some epochs of SGD on the client's own samples."""
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = partition(
        int(context.node_config["partition-id"]),
        int(context.node_config["num-partitions"]),
    )
    with torch.no_grad():
        loss_before = float(cross_entropy(net(x), y))  # what FedSoftMax weighs by
    optimiser = torch.optim.SGD(
        net.parameters(), lr=float(context.run_config["learning-rate"])
    )
    for _ in range(int(context.run_config["local-epochs"])):
        for rows in torch.randperm(len(y)).split(16):
            optimiser.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(y), "loss-before": loss_before})
    return Message(
        RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}),
        reply_to=message,
    )
