"""The batched path: dense models of many clients in one batched matrix product.

Row k of the stack is client k's model; a linear layer is one ``baddbmm`` over all clients. The
backward pass is written out so that gradients land in the caller's stack without a copy;
activations other than ReLU go through autograd, one layer at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from poise.core.vectors import Layout, Stack, Vector

ELEMENTWISE = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.SELU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Hardtanh,
    nn.ReLU6,
)
CACHE = 8 * 2**20  # bytes of parameters, gradients and samples that one call should touch


@dataclass(frozen=True)
class Linear:
    """Where a linear layer lies in the vector."""

    weight: slice
    bias: slice | None
    inside: int
    outside: int

    def of(self, rows: Stack) -> Views:
        """This layer of every row."""
        weight = rows[:, self.weight].view(len(rows), self.outside, self.inside)
        return Views(weight, None if self.bias is None else rows[:, self.bias])


@dataclass(eq=False)
class Views:
    """A linear layer of c clients, as views of their rows.

    Each view is made once for all steps: workers are threads of one interpreter and meet at every
    call of PyTorch, if only for a view. In small models that is what a step costs.
    """

    weight: torch.Tensor  # (c, outside, inside)
    bias: torch.Tensor | None  # (c, outside)

    @cached_property
    def turned(self) -> torch.Tensor:
        """The weights as (c, inside, outside)."""
        return self.weight.transpose(1, 2)

    @cached_property
    def row(self) -> torch.Tensor | None:
        """The bias as (c, 1, outside)."""
        return None if self.bias is None else self.bias.unsqueeze(1)

    @cached_property
    def column(self) -> torch.Tensor | None:
        """The bias as (c, outside, 1)."""
        return None if self.bias is None else self.bias.unsqueeze(2)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(c, b, inside) -> (c, b, outside)."""
        if (
            h.shape[1] > self.weight.shape[1]
        ):  # the wider side last: tall and narrow products take twice the time
            return _added(self.column, self.weight, h.transpose(1, 2)).transpose(1, 2)
        return _added(self.row, h, self.turned)

    def set(self, h: torch.Tensor, dz: torch.Tensor) -> None:
        """Become the gradients, given the layer's input and its output's gradient."""
        torch.bmm(dz.transpose(1, 2), h, out=self.weight)
        if self.bias is not None:
            torch.sum(dz, 1, out=self.bias)

    def descend(self, h: torch.Tensor, dz: torch.Tensor, rate: float) -> None:
        """Step against the gradients, which are never written down."""
        self.weight.baddbmm_(dz.transpose(1, 2), h, alpha=-rate)
        if self.bias is not None:
            self.bias.sub_(dz.sum(1), alpha=rate)


def _added(bias: torch.Tensor | None, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The products, and the bias, which is the same along one dimension."""
    return torch.bmm(left, right) if bias is None else torch.baddbmm(bias, left, right)


Descend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], None]
"""One step on a batch: features, labels, how many of each row count, whether all do."""


class DenseKernel:
    """Forward and backward passes of stacked chains of dense layers."""

    block = 4096
    random = False

    def __init__(self, module: nn.Module, loss: str, dtype: torch.dtype) -> None:
        self.layout = Layout.of_module(module)
        self.loss = loss
        self.dtype = dtype
        self.layers: list[Linear | nn.Module] = []
        where = {entry.name: slice(entry.start, entry.stop) for entry in self.layout.entries}
        for name, layer in leaves(module):
            if isinstance(layer, nn.Linear):
                prefix = f"{name}." if name else ""
                bias = where[f"{prefix}bias"] if layer.bias is not None else None
                self.layers.append(
                    Linear(where[f"{prefix}weight"], bias, layer.in_features, layer.out_features)
                )
            elif isinstance(layer, ELEMENTWISE):
                self.layers.append(_out_of_place(layer))
        self.first = next(k for k, layer in enumerate(self.layers) if isinstance(layer, Linear))
        linear = [layer for layer in self.layers if isinstance(layer, Linear)]
        self.widths = linear[0].inside + sum(layer.outside for layer in linear)

    @staticmethod
    def takes(module: nn.Module, dimensions: int) -> bool:
        """Whether a module is a plain chain of dense layers, for samples of this many dimensions.

        Anything that could make a layer act otherwise (a subclass, a hook, a parametrisation, a
        layer or weight used twice, frozen parameters) sends it to the row path, which runs the
        module itself.
        """
        chain = leaves(module)
        layers = [layer for _, layer in chain]
        linear = [layer for layer in layers if type(layer) is nn.Linear]
        return (
            all(
                type(layer) in (nn.Linear, nn.Flatten, nn.Identity, *ELEMENTWISE)
                for layer in layers
            )
            and len(linear) > 0
            and len({id(layer) for layer in layers}) == len(layers)
            and len({id(p) for layer in linear for p in layer.parameters()})
            == sum(len(list(layer.parameters())) for layer in linear)
            and all(p.requires_grad for p in module.parameters())
            and not any(hooked(m) for m in module.modules())
            and _flat(layers, dimensions)
        )

    def begin(self) -> None:
        """Nothing is kept between clients."""

    def rows(self, batch_size: int) -> int:
        """As many clients as fit into the cache."""
        size = torch.finfo(self.dtype).bits // 8
        return int(
            min(64, max(4, CACHE // (size * (2 * self.layout.size + batch_size * self.widths))))
        )

    def gradients(
        self,
        rows: Stack,
        x: torch.Tensor,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
        generators: list[torch.Generator] | None,
        out: Stack,
    ) -> None:
        """See `Kernel.gradients`."""
        into = self._bound(out)
        for k, h, dz in self._back(self._bound(rows), x, y, counts, full):
            into[k].set(h, dz)

    def descender(self, rows: Stack, rate: float) -> Descend:
        """``rows <- rows - rate * gradients`` of the first rows, as many as a batch has, in one
        pass.
        """
        bound: dict[int, list[Any]] = {}

        def descend(x: torch.Tensor, y: torch.Tensor, counts: torch.Tensor, full: bool) -> None:
            if len(y) not in bound:
                bound[len(y)] = self._bound(rows[: len(y)])
            there = bound[len(y)]
            for k, h, dz in self._back(there, x, y, counts, full):
                there[k].descend(h, dz, rate)

        return descend

    def _bound(self, rows: Stack) -> list[Any]:
        return [layer.of(rows) if isinstance(layer, Linear) else layer for layer in self.layers]

    def _back(
        self, layers: list[Any], x: torch.Tensor, y: torch.Tensor, counts: torch.Tensor, full: bool
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Each linear layer's number, input and output's gradient, last first; a layer that was
        given may change.
        """
        h = x.reshape(*y.shape[:2], -1)
        h = h if h.dtype == self.dtype else h.to(self.dtype)
        inputs = []
        for layer in layers:
            inputs.append(h)
            h = layer.forward(h)
        dz = self._loss_gradient(h, y, counts, full)
        for k in range(len(layers) - 1, self.first - 1, -1):
            if isinstance(layers[k], Views):
                below = torch.bmm(dz, layers[k].weight) if k > self.first else dz
                yield k, inputs[k], dz
                dz = below
            else:
                dz = _through(layers[k], inputs[k], dz)

    def outputs(self, theta: Vector, x: torch.Tensor) -> torch.Tensor:
        """See `Kernel.outputs`."""
        h = x.reshape(1, len(x), -1).to(self.dtype)
        for layer in self._bound(theta[None]):
            h = layer.forward(h)
        return h[0]

    def _loss_gradient(
        self, z: torch.Tensor, y: torch.Tensor, counts: torch.Tensor, full: bool
    ) -> torch.Tensor:
        """Gradient of each row's mean loss with respect to the outputs, zero at padding."""
        share = 1.0 / z.shape[1] if full else 1.0 / counts.to(z.device, z.dtype)[:, None, None]
        if self.loss == "cross-entropy":
            dz = torch.softmax(z, 2)
            dz.scatter_(2, y.unsqueeze(2), -1.0, reduce="add")
            dz.mul_(share)
        else:
            dz = (z - y.reshape(z.shape).to(z.dtype)).mul_(2.0 * share / z.shape[2])
        if not full:
            padding = torch.arange(z.shape[1])[None, :] >= counts[:, None]
            dz.masked_fill_(padding.to(z.device)[:, :, None], 0.0)
        return dz


def leaves(module: nn.Module, name: str = "") -> list[tuple[str, nn.Module]]:
    """The layers of nested ``nn.Sequential`` in the order they act; any other module is one
    leaf.
    """
    if type(module) is not nn.Sequential:
        return [(name, module)]
    inner = [
        (f"{name}.{key}" if name else key, child)
        for key, child in module._modules.items()
        if child is not None
    ]
    return [leaf for key, child in inner for leaf in leaves(child, key)]


def _flat(layers: list[nn.Module], dimensions: int) -> bool:
    """Samples reach the first dense layer as vectors, and nothing flattens them later."""
    flattens = [k for k, layer in enumerate(layers) if type(layer) is nn.Flatten]
    standard = all(layers[k].start_dim == 1 and layers[k].end_dim == -1 for k in flattens)
    return standard and (flattens == [0] or (not flattens and dimensions == 1))


def hooked(module: nn.Module) -> bool:
    """Whether something is attached to a module that changes what it does."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks) or hasattr(module, "parametrizations")


def _out_of_place(layer: nn.Module) -> nn.Module:
    made = copy.deepcopy(layer)
    if hasattr(made, "inplace"):
        made.inplace = False  # type: ignore[assignment]
    return made


def _through(layer: nn.Module, h: torch.Tensor, dz: torch.Tensor) -> torch.Tensor:
    """The gradient before an elementwise layer from the one behind it."""
    if type(layer) is nn.ReLU:
        back: torch.Tensor = torch.ops.aten.threshold_backward.default(dz, h, 0)
        return back
    with torch.enable_grad():
        at = h.detach().requires_grad_()
        return torch.autograd.grad(layer(at), at, dz)[0]
