"""Personal layers: the entries of the model that stay with each client."""

from poise.personal.batch_norm import BatchNorm
from poise.personal.layers import Layers

__all__ = ["BatchNorm", "Layers"]
