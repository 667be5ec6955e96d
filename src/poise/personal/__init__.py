"""Which entries of a model stay with each client: personal layers."""

from poise.personal.batch_norm import BatchNorm
from poise.personal.layers import Layers

__all__ = ["BatchNorm", "Layers"]
