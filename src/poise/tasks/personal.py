"""Which entries of a model stay with each client."""

from __future__ import annotations

import torch
from torch import nn

from poise.core.errors import IncompatibleParts
from poise.core.vectors import Layout

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def batchnorm_positions(module: nn.Module, layout: Layout) -> torch.Tensor:
    """Positions of all batch-norm parameters and statistics in the vector (FedBN).

    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.BatchNorm1d(3))
    >>> len(batchnorm_positions(net, Layout.of_module(net)))
    13

    Source: B section 4.3 (Li et al. 2021).
    """
    inside = {
        f"{name}.{tensor}" if name else tensor
        for name, layer in module.named_modules()
        if isinstance(layer, NORMS)
        for tensor in layer.state_dict()
    }
    spans = [torch.arange(e.start, e.stop) for e in layout.entries if e.name in inside]
    if not spans:
        raise IncompatibleParts(
            "personal = 'batchnorm', but the model has no batch-norm layer", "choose a model that has, or leave it out"
        )
    return torch.cat(spans)
