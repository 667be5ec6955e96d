"""Architectures by name; each function builds a module for samples and a number of outputs."""

from collections.abc import Callable

from torch import nn

from poise.tasks.models.convolutional import cnn, cnn_small
from poise.tasks.models.dense import logistic, mlp
from poise.tasks.models.recurrent import lstm
from poise.tasks.models.residual import resnet20

MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn": cnn,
    "cnn-small": cnn_small,
    "logistic": logistic,
    "lstm": lstm,
    "mlp": mlp,
    "resnet20": resnet20,
}

__all__ = ["MODELS", "cnn", "cnn_small", "logistic", "lstm", "mlp", "resnet20"]
