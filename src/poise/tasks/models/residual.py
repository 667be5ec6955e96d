"""ResNet-20 for 32x32 images [He 2016], the network of [Exp-α 2023]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from poise.core.errors import require
from poise.core.samples import Samples


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm around an identity shortcut.

    Where the block halves the image, the shortcut takes every second pixel and pads the
    new channels with zeros, so that it has no parameters (option A of the ResNet
    paper).
    """

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.stride = 1 if inside == outside else 2
        self.grow = outside - inside
        self.conv1 = nn.Conv2d(inside, outside, 3, self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(shortcut + residual)."""
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.grow:
            x = F.pad(
                x[:, :, ::2, ::2],
                (0, 0, 0, 0, self.grow // 2, self.grow - self.grow // 2),
            )
        return F.relu(x + residual)


def resnet20(samples: Samples, outputs: int, width: int = 16) -> nn.Module:
    """Build three stages of three blocks with ``width``, 2 ``width``, 4 ``width`` channels.

    Source: [Exp-α 2023, §4].
    """
    shape = samples.shape
    require(
        len(shape) == 3 and not samples.tokens and min(shape[1:]) >= 8,
        (
            "resnet20 takes images (channels, height, width), not samples of shape "
            f"{shape}"
        ),
        where="model",
    )
    require(
        isinstance(width, int) and width > 0,
        f"resnet20: width must be above 0, not {width}",
        where="width",
    )
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for outside in (width, 2 * width, 4 * width):
        for _ in range(3):
            layers.append(Block(channels, outside))
            channels = outside
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)
    )
