"""How the aggregated direction is applied: server optimisers."""

from poise.servers.adagrad import Adagrad
from poise.servers.adam import Adam
from poise.servers.add import Add
from poise.servers.momentum import Momentum
from poise.servers.yogi import Yogi

__all__ = ["Adagrad", "Adam", "Add", "Momentum", "Yogi"]
