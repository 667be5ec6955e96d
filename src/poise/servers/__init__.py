"""Server optimisers: how the server applies the aggregated direction to the model."""

from poise.servers.adaptive import Adagrad, Adam, Yogi
from poise.servers.add import Add
from poise.servers.momentum import Momentum
from poise.servers.noisy import Noisy

__all__ = ["Adagrad", "Adam", "Add", "Momentum", "Noisy", "Yogi"]
