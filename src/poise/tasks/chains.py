"""Chains of dense layers behind a ``forward`` of the user's own, found by tracing.

`torch.fx` records the calls of ``forward``. If each call takes the result of the one
before and the dense kernel knows all of them, the module is the same function as a
``nn.Sequential`` of these layers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from poise.tasks.copies import copy_of
from poise.tasks.dense import ELEMENTWISE
from poise.tasks.stackable import state_of

Chain = list[tuple[str, nn.Module]]

FUNCTIONS: dict[Any, Callable[[], nn.Module]] = {
    torch.relu: nn.ReLU,
    torch.tanh: nn.Tanh,
    torch.sigmoid: nn.Sigmoid,
    F.relu: nn.ReLU,
    F.tanh: nn.Tanh,
    F.sigmoid: nn.Sigmoid,
    F.gelu: nn.GELU,
    F.silu: nn.SiLU,
    F.elu: nn.ELU,
    F.selu: nn.SELU,
    F.leaky_relu: nn.LeakyReLU,
    F.softplus: nn.Softplus,
    F.relu6: nn.ReLU6,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}
"""Activations as functions and methods, with default options."""

KNOWN = (nn.Linear, nn.Flatten, nn.Identity, *ELEMENTWISE)


def chain_of(module: nn.Module, shape: tuple[int, ...]) -> Chain | None:
    """Return the layers of a module that is a chain, by name; None for other modules.

    Both modes must give the same chain, and ``forward`` must not change attributes.
    """
    found = [_traced(module, mode, shape) for mode in (True, False)]
    if found[0] is None or found[1] is None:
        return None
    plain = [[(name, repr(layer)) for name, layer in chain] for chain in found if chain]
    if not plain or plain[0] != plain[-1]:
        return None
    own = dict(module.named_modules())
    chain = [(name, own.get(name, layer)) for name, layer in found[0]]
    inside = {id(p) for _, layer in chain for p in layer.parameters()}
    if inside != {id(p) for p in module.parameters()}:
        return None
    return chain


def _traced(module: nn.Module, training: bool, shape: tuple[int, ...]) -> Chain | None:
    copied = copy_of(module).train(training)
    before = state_of(copied)
    try:
        graph = fx.Tracer().trace(copied)
    except Exception:  # control flow by values, or anything else in the user's code
        return None
    if state_of(copied) != before:
        return None
    return _Reader(copied, shape).read(graph)


class _Reader:
    """Reads a graph from its input on, as long as it is a chain."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        self.layers = dict(module.named_modules())
        self.shape = shape
        self.chain: Chain = []
        self.at: fx.Node | None = None
        self.counts: list[fx.Node] = []  # the number of samples, as a value

    def read(self, graph: fx.Graph) -> Chain | None:
        for node in graph.nodes:
            if node.op == "output":
                return self.chain if node.args == (self.at,) else None
            if not self._take(node):
                return None
        return None

    def _take(self, node: fx.Node) -> bool:
        """Read one node; False if the chain ends there."""
        if node.op == "placeholder":
            alone = self.at is None
            self.at = node
            return alone
        if self._counts(node):
            self.counts.append(node)
            return True
        layer = self._layer(node)
        if layer is None or node.args[:1] != (self.at,):
            return False
        name = str(node.target) if node.op == "call_module" else f"({len(self.chain)})"
        self.chain.append((name, layer))
        self.at = node
        return True

    def _layer(self, node: fx.Node) -> nn.Module | None:
        """Return the layer that a node computes; None if the dense kernel has none."""
        rest = (*node.args[1:], *node.kwargs.values())
        if node.op == "call_module":
            layer = self.layers[str(node.target)]
            return layer if type(layer) in KNOWN and not rest else None
        if self._flattens(node):
            return nn.Flatten()
        make = FUNCTIONS.get(node.target)
        if make is None or any(value is not False for value in rest):
            return None
        if node.kwargs.keys() - {"inplace"}:
            return None
        return make()

    def _flattens(self, node: fx.Node) -> bool:
        """Whether a node makes one vector of each sample."""
        rest = node.args[1:]
        if len(rest) == 1 and isinstance(rest[0], tuple | list):
            rest = tuple(rest[0])
        if node.target in ("flatten", torch.flatten):
            start = node.kwargs.get("start_dim", rest[0] if rest else 0)
            last = node.kwargs.get("end_dim", rest[1] if len(rest) > 1 else -1)
            return (start, last) == (1, -1)
        if node.target not in ("view", "reshape", torch.reshape) or node.kwargs:
            return False
        if len(rest) != 2 or not (rest[0] in self.counts or rest[0] == -1):
            return False
        whole = prod(self.shape)
        if rest[0] == -1:
            return rest[1:] == (whole,)
        return rest[1:] in ((-1,), (whole,))

    def _counts(self, node: fx.Node) -> bool:
        """Whether a node is the number of samples, or the shape that it is taken from."""
        source = node.args[0] if node.args else None
        rest = node.args[1:]
        if node.target == "size":
            return source is self.at and rest == (0,)
        if node.target is getattr:
            return source is self.at and rest == ("shape",) and _only_first(node)
        if node.target is operator.getitem and isinstance(source, fx.Node):
            return source.target is getattr and rest == (0,)
        return False


def _only_first(shape: fx.Node) -> bool:
    """Whether a graph uses only the first entry of a shape."""
    return all(
        user.target is operator.getitem and user.args[1] == 0 for user in shape.users
    )
