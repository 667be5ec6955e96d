"""The batched path: dense models of many clients in one batched matrix product.

Row k of the stack is client k's model; a linear layer is one ``baddbmm`` over all
clients. The backward pass is written by hand and stores gradients in the caller's stack
without a copy. Activations other than ReLU go through autograd, one layer at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from poise.core.batches import Batch
from poise.core.trees import Inputs
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
# bytes of parameters, gradients and samples that one call should touch
CACHE = 8 * 2**20


@dataclass(frozen=True)
class Linear:
    """The slices of a linear layer in the parameter vector."""

    weight: slice
    bias: slice | None
    inside: int
    outside: int

    def of(self, rows: Stack) -> Views:
        """Return views of this layer in every row."""
        weight = rows[:, self.weight].view(len(rows), self.outside, self.inside)
        bias = None if self.bias is None else rows[:, self.bias]
        return Views(weight, bias)


@dataclass(eq=False)
class Views:
    """A linear layer of c clients: views of their rows, or copies of these.

    Each view is created once for all steps. Workers are threads of one interpreter and
    wait for each other at every PyTorch call, even for a view; in small models that
    dominates a step.
    """

    weight: torch.Tensor  # (c, outside, inside)
    bias: torch.Tensor | None  # (c, outside)

    def copied(self) -> Views:
        """Return a copy whose weights lie one client after the other.

        PyTorch updates such weights in one call, and views of rows client by client.
        """
        bias = self.bias
        if bias is not None:
            bias = bias.clone(memory_format=torch.contiguous_format)
        return Views(self.weight.clone(memory_format=torch.contiguous_format), bias)

    def first(self, clients: int) -> Views:
        """Return the layer of the first clients."""
        if clients == len(self.weight):
            return self
        bias = None if self.bias is None else self.bias[:clients]
        return Views(self.weight[:clients], bias)

    def put(self, into: Views) -> None:
        """Copy weights and bias into other views."""
        into.weight.copy_(self.weight)
        if self.bias is not None and into.bias is not None:
            into.bias.copy_(self.bias)

    @cached_property
    def transposed(self) -> torch.Tensor:
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
        if h.shape[1] > self.weight.shape[1]:
            # The wider side goes last: tall and narrow products take twice the time.
            return _linear(self.column, self.weight, right=h.transpose(1, 2)).transpose(
                1, 2
            )
        return _linear(self.row, h, right=self.transposed)

    def set(self, h: torch.Tensor, dz: torch.Tensor) -> None:
        """Store the gradients in the views, from the layer's input and its output's gradient."""
        torch.bmm(dz.transpose(1, 2), h, out=self.weight)
        if self.bias is not None:
            torch.sum(dz, 1, out=self.bias)

    def descend(self, h: torch.Tensor, dz: torch.Tensor, rate: float) -> None:
        """Step against the gradients without storing them."""
        self.weight.baddbmm_(dz.transpose(1, 2), h, alpha=-rate)
        if self.bias is not None:
            self.bias.sub_(dz.sum(1), alpha=rate)


def _linear(
    bias: torch.Tensor | None, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Return ``left @ right + bias`` for each client."""
    if bias is None:
        return torch.bmm(left, right)
    return torch.baddbmm(bias, left, right)


class DenseKernel:
    """Forward and backward passes of stacked chains of dense layers."""

    block = 4096
    random = False

    def __init__(
        self,
        module: nn.Module,
        loss: str,
        dtype: torch.dtype,
        layers: list[tuple[str, nn.Module]] | None = None,
    ) -> None:
        self.layout = Layout.of_module(module)
        self.loss = loss
        self.dtype = dtype
        self.layers: list[Linear | nn.Module] = []
        where = {
            entry.name: slice(entry.start, entry.stop) for entry in self.layout.entries
        }
        for name, layer in layers or leaves(module):
            if isinstance(layer, nn.Linear):
                prefix = f"{name}." if name else ""
                bias = where[f"{prefix}bias"] if layer.bias is not None else None
                self.layers.append(
                    Linear(
                        where[f"{prefix}weight"],
                        bias,
                        layer.in_features,
                        layer.out_features,
                    )
                )
            elif isinstance(layer, ELEMENTWISE):
                self.layers.append(_out_of_place(layer))
        self.first = next(
            k for k, layer in enumerate(self.layers) if isinstance(layer, Linear)
        )
        linear = [layer for layer in self.layers if isinstance(layer, Linear)]
        self.widths = linear[0].inside + sum(layer.outside for layer in linear)
        numbers = sum(
            layer.inside * layer.outside + layer.outside * (layer.bias is not None)
            for layer in linear
        )
        self._layers_are_all = numbers == self.layout.size

    @staticmethod
    def takes(
        module: nn.Module,
        dimensions: int,
        chain: list[tuple[str, nn.Module]] | None = None,
    ) -> bool:
        """Whether a module is a plain chain of dense layers for samples of this many dimensions.

        ``chain`` are the layers in the order of the module's own ``forward``.

        Modules whose layers could behave differently (a subclass, a hook, a
        parametrisation, a layer or weight used twice, frozen parameters) take the row
        path, which runs the module itself.
        """
        layers = [layer for _, layer in chain or leaves(module)]
        linear = [layer for layer in layers if type(layer) is nn.Linear]
        known = (nn.Linear, nn.Flatten, nn.Identity, *ELEMENTWISE)
        parameters = [id(p) for layer in linear for p in layer.parameters()]
        return (
            all(type(layer) in known for layer in layers)
            and len(linear) > 0
            and len({id(layer) for layer in layers}) == len(layers)
            and len(set(parameters)) == len(parameters)
            and all(p.requires_grad for p in module.parameters())
            and not any(hooked(m) for m in module.modules())
            and _flat(layers, dimensions)
        )

    def begin(self) -> None:
        """Do nothing: this kernel keeps no state between clients."""

    def rows(self, batch_size: int) -> int:
        """Return the number of clients that fit into the cache, between 4 and 64."""
        size = torch.finfo(self.dtype).bits // 8
        bytes_per_client = size * (2 * self.layout.size + batch_size * self.widths)
        return int(min(64, max(4, CACHE // bytes_per_client)))

    def gradients(
        self,
        rows: Stack,
        x: Inputs,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
        generators: list[torch.Generator] | None,
        out: Stack,
    ) -> None:
        """See `Kernel.gradients`."""
        assert isinstance(x, torch.Tensor)
        into = self._bound(out)
        for k, h, dz in self._back(self._bound(rows), x, y, counts, full):
            into[k].set(h, dz)

    def descend(
        self,
        start: Stack,
        batches: Iterable[tuple[Inputs, torch.Tensor, Batch]],
        rate: float,
        out: Stack,
    ) -> None:
        """Write ``start`` after plain gradient steps on every batch into ``out``."""
        if not self._layers_are_all:  # buffers, and layers that the module does not use
            out.copy_(start)
        copies: list[Any] = [
            layer.of(start).copied() if isinstance(layer, Linear) else layer
            for layer in self.layers
        ]
        layers = copies
        active = len(start)
        for x, y, batch in batches:
            assert isinstance(x, torch.Tensor)
            if len(y) < active:  # the last clients have finished
                active = len(y)
                layers = [
                    layer.first(active) if isinstance(layer, Views) else layer
                    for layer in copies
                ]
            for k, h, dz in self._back(layers, x, y, batch.counts, batch.full):
                layers[k].descend(h, dz, rate)
        for layer, place in zip(copies, self._bound(out), strict=True):
            if isinstance(layer, Views):
                layer.put(place)

    def _bound(self, rows: Stack) -> list[Any]:
        return [
            layer.of(rows) if isinstance(layer, Linear) else layer
            for layer in self.layers
        ]

    def _back(
        self,
        layers: list[Any],
        x: torch.Tensor,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield each linear layer's number, input and output gradient, last layer first.

        The caller may change a layer after it was yielded.
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

    def outputs(self, theta: Vector, x: Inputs) -> torch.Tensor:
        """See `Kernel.outputs`."""
        assert isinstance(x, torch.Tensor)
        h = x.reshape(1, len(x), -1).to(self.dtype)
        for layer in self._bound(theta[None]):
            h = layer.forward(h)
        return h[0]

    def _loss_gradient(
        self, z: torch.Tensor, y: torch.Tensor, counts: torch.Tensor, full: bool
    ) -> torch.Tensor:
        """Return the gradient of each row's mean loss by the outputs, zero at padding."""
        share = (
            1.0 / z.shape[1]
            if full
            else 1.0 / counts.to(z.device, z.dtype)[:, None, None]
        )
        if self.loss == "cross-entropy":
            dz = _error(z, y)
            dz.mul_(share)
        elif self.loss == "double-softmax":
            layer = torch.softmax(z, 2)
            above = _error(layer, y)
            dz = layer * (above - (layer * above).sum(2, keepdim=True))
            dz.mul_(share)
        elif self.loss == "bce":
            dz = (torch.sigmoid(z) - y.reshape(z.shape).to(z.dtype)).mul_(
                share / z.shape[2]
            )
        else:
            dz = (z - y.reshape(z.shape).to(z.dtype)).mul_(2.0 * share / z.shape[2])
        if not full:
            padding = torch.arange(z.shape[1])[None, :] >= counts[:, None]
            dz.masked_fill_(padding.to(z.device)[:, :, None], 0.0)
        return dz


def leaves(module: nn.Module, name: str = "") -> list[tuple[str, nn.Module]]:
    """Return the layers of nested ``nn.Sequential`` in order; any other module is one leaf."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    prefix = f"{name}." if name else ""
    layers: list[tuple[str, nn.Module]] = []
    for key, child in module._modules.items():
        if child is not None:
            layers += leaves(child, prefix + key)
    return layers


def _error(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the cross-entropy by the logits: softmax(z) - onehot(y)."""
    dz = torch.softmax(z, 2)
    return dz.scatter_(2, y.unsqueeze(2), -1.0, reduce="add")


def _flat(layers: list[nn.Module], dimensions: int) -> bool:
    """Whether samples reach the first dense layer as vectors, and no layer flattens them later."""
    flattens = [k for k, layer in enumerate(layers) if type(layer) is nn.Flatten]
    standard = all(
        layers[k].start_dim == 1 and layers[k].end_dim == -1 for k in flattens
    )
    return standard and (flattens == [0] or (not flattens and dimensions == 1))


def hooked(module: nn.Module) -> bool:
    """Whether a hook or a parametrisation can change the behaviour of a module."""
    return has_hooks(module) or hasattr(module, "parametrizations")


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks of its forward or backward pass."""
    return any(
        (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
    )


def _out_of_place(layer: nn.Module) -> nn.Module:
    """Return a copy of a layer that does not overwrite its input."""
    copied = copy.deepcopy(layer)
    if hasattr(copied, "inplace"):
        copied.inplace = False  # type: ignore[assignment]
    return copied


def _through(layer: nn.Module, h: torch.Tensor, dz: torch.Tensor) -> torch.Tensor:
    """Return the gradient at the input of an elementwise layer from that at its output."""
    if type(layer) is nn.ReLU:
        back: torch.Tensor = torch.ops.aten.threshold_backward.default(dz, h, 0)
        return back
    with torch.enable_grad():
        at = h.detach().requires_grad_()
        return torch.autograd.grad(layer(at), at, dz)[0]
