"""The functional path: small modules of any kind, 32 clients in one pass.

`torch.func` turns the module into a function of its parameters, and ``vmap`` runs that
function for a stack of clients. One autograd pass over the sum of the clients' losses
gives all gradients. Both passes are recorded once per batch width as a graph of plain
operations, so that a step costs no more Python than one client's.

Every call has exactly `LANES` rows; missing clients are copies of the first one. The
bits of a client then do not depend on the clients beside it: PyTorch may compute the
last few numbers of a tensor in another way, but a multiple of 32 leaves no such rest.
Batches that are shorter than the others of a call run alone, on the row path. Large
batches never come here: the oracle gives them to the row kernel `alone`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from poise.core.batches import Batch
from poise.core.trees import Inputs, first, leaves, mapped
from poise.core.vectors import Stack, Vector
from poise.tasks.calls import called
from poise.tasks.copies import copy_of
from poise.tasks.losses import PerSample
from poise.tasks.operations import StepCost
from poise.tasks.rowwise import RowKernel
from poise.tasks.stacking import StackedCalls

LANES = 32
"""Rows of every call: twice the numbers that a processor handles at once, or more."""

Graph: TypeAlias = Callable[..., tuple[torch.Tensor, ...]]


class FunctionalKernel:
    """Forward and backward passes of stacked modules."""

    random = False

    def __init__(
        self,
        module: nn.Module,
        loss: str | PerSample,
        example: Inputs,
        dtype: torch.dtype,
        cost: StepCost | None,
    ) -> None:
        self.alone = RowKernel(module, loss, example, dtype)
        self.layout = self.alone.layout
        self.block = self.alone.block
        self.dtype = dtype
        self.cost = cost
        self._module = copy_of(module).to(dtype).train()
        self._graphs: dict[Any, Graph] = {}
        self._tracing = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which records its own graphs."""
        kept = {k: v for k, v in vars(self).items() if k != "_tracing"}
        return {**kept, "_graphs": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        vars(self).update(state, _tracing=threading.Lock())

    def together(self, width: int) -> bool:
        """Whether batches of this many samples run in a stack; None as cost means always."""
        return self.cost is None or self.cost.small(width)

    def rows(self, batch_size: int) -> int:
        """Return how many clients to put into one call."""
        return LANES if self.together(batch_size) else self.alone.rows(batch_size)

    def begin(self) -> None:
        """Prepare the row path."""
        self.alone.begin()

    def outputs(self, theta: Vector, x: Inputs) -> torch.Tensor:
        """See `Kernel.outputs`."""
        return self.alone.outputs(theta, x)

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
        for a in range(0, len(rows), LANES):
            part = slice(a, a + LANES)
            stack = self._lanes(rows[part])
            own = _rows_of(x, part)
            found = self._stack(stack, own, y[part], counts[part], full)
            for entry, gradient in zip(self.layout.parameters, found, strict=True):
                place = out[part, entry.start : entry.stop]
                place.copy_(gradient[: len(place)].reshape(place.shape))

    def descend(
        self,
        start: Stack,
        batches: Iterable[tuple[Inputs, torch.Tensor, Batch]],
        rate: float,
        out: Stack,
    ) -> None:
        """Write ``start`` after plain gradient steps on every batch into ``out``."""
        parts = [slice(a, a + LANES) for a in range(0, len(start), LANES)]
        stacks = [self._lanes(start[part]) for part in parts]
        for x, y, batch in batches:
            for part, stack in zip(parts, stacks, strict=True):
                counts = batch.counts[part]
                if len(counts):  # else all clients of this stack have finished
                    own = _rows_of(x, part)
                    found = self._stack(stack, own, y[part], counts, batch.full)
                    self._descend(stack, found, len(counts), rate)
        for part, stack in zip(parts, stacks, strict=True):
            out[part] = stack[: len(out[part])]

    def _descend(
        self, stack: Stack, found: list[torch.Tensor], active: int, rate: float
    ) -> None:
        """Step against the gradients of the active rows; the other rows stay."""
        views = self.layout.views(stack)
        for entry, gradient in zip(self.layout.parameters, found, strict=True):
            gradient[active:] = 0.0
            views[entry.name].sub_(gradient, alpha=rate)

    def stacked(self, stack: Stack, x: Inputs, y: torch.Tensor) -> Stack:
        """Return the gradients of `LANES` rows on full batches, (LANES, trainable)."""
        given = [self._cast(leaf) for leaf in (*leaves(x), y)]
        found = self._graph(stack, x, given)(self._tensors(stack), given)
        return torch.cat([gradient.reshape(LANES, -1) for gradient in found], dim=1)

    def _lanes(self, rows: Stack) -> Stack:
        """Return a copy of the rows, filled up with copies of the first row."""
        return _filled(rows).clone()

    def _stack(
        self,
        stack: Stack,
        x: Inputs,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
    ) -> list[torch.Tensor]:
        """Return the gradients of the parameters, (LANES, …) each, for the rows of a batch."""
        width = first(x).shape[1]
        short = [] if full else (counts < width).nonzero()[:, 0].tolist()
        if len(short) < len(y):
            given = [_filled(self._cast(leaf)) for leaf in (*leaves(x), y)]
            found = list(self._graph(stack, x, given)(self._tensors(stack), given))
        else:
            shapes = [entry.shape for entry in self.layout.parameters]
            found = [stack.new_zeros(LANES, *shape) for shape in shapes]
        for k in short:
            self._alone(stack, x, y, counts, k, found)
        return found

    def _alone(
        self,
        stack: Stack,
        x: Inputs,
        y: torch.Tensor,
        counts: torch.Tensor,
        k: int,
        found: list[torch.Tensor],
    ) -> None:
        """Write the gradient of row k, computed by the row path."""
        row = slice(k, k + 1)
        gradient = stack.new_empty(1, self.layout.trainable)
        own = _rows_of(x, row)
        self.alone.gradients(
            stack[row], own, y[row], counts[row], False, None, out=gradient
        )
        for entry, place in zip(self.layout.parameters, found, strict=True):
            place[k] = gradient[0, entry.start : entry.stop].view(entry.shape)

    def _cast(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype) if x.is_floating_point() else x

    def _tensors(self, stack: Stack) -> list[torch.Tensor]:
        """Return all tensors of the stacked modules; integers are rounded."""
        values = []
        for entry, view in zip(
            self.layout.entries, self.layout.views(stack).values(), strict=True
        ):
            whole = not entry.dtype.is_floating_point
            values.append(view.round().to(entry.dtype) if whole else view)
        return values

    def _graph(self, stack: Stack, x: Inputs, given: list[torch.Tensor]) -> Graph:
        """Return the recorded passes for batches of these shapes."""
        key = tuple((leaf.shape, leaf.dtype) for leaf in given)
        if key not in self._graphs:
            with self._tracing:
                if key not in self._graphs:
                    self._graphs[key] = self._traced(stack, x, given)
        return self._graphs[key]

    def _traced(self, stack: Stack, x: Inputs, given: list[torch.Tensor]) -> Graph:
        names = [entry.name for entry in self.layout.entries]
        trained = len(self.layout.parameters)
        whole = _Called(self._module)

        def one(values: list[torch.Tensor], *data: torch.Tensor) -> torch.Tensor:
            *parts, labels = data
            tensors = dict(zip(names, values, strict=True))
            outputs = functional_call(whole, _inside(tensors), (_like(x, parts),))
            return self.alone.mean_loss(outputs, labels)

        def passes(
            values: list[torch.Tensor], data: list[torch.Tensor]
        ) -> tuple[torch.Tensor, ...]:
            moving = [value.detach().requires_grad_() for value in values[:trained]]
            with torch.enable_grad(), StackedCalls():
                losses = vmap(one, randomness="error")(
                    [*moving, *values[trained:]], *data
                )
                return torch.autograd.grad(losses.sum(), moving, materialize_grads=True)

        graph = make_fx(passes)(self._tensors(stack), given)
        if _loops(graph):
            raise RuntimeError("an operation would run client by client")
        return cast(Graph, _without_detach(graph))


class _Called(nn.Module):
    """A module that takes all its inputs as one argument."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Inputs) -> Any:
        """Return the outputs for a tensor, a tuple or a dict."""
        return called(self.module, x)


def _inside(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors by their names in `_Called`."""
    return {f"module.{name}": value for name, value in tensors.items()}


def _rows_of(x: Inputs, part: slice) -> Inputs:
    """Return these rows of the inputs."""
    rows: Inputs = mapped(lambda leaf: leaf[part], x)
    return rows


def _like(x: Inputs, parts: list[torch.Tensor]) -> Inputs:
    """Return the parts in the form of x."""
    values = iter(parts)
    formed: Inputs = mapped(lambda _: next(values), x)
    return formed


def _filled(rows: torch.Tensor) -> torch.Tensor:
    """Return at most `LANES` rows, filled up to `LANES` with copies of the first one."""
    missing = LANES - len(rows)
    if not missing:
        return rows
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])


def _loops(graph: GraphModule) -> bool:
    """Whether ``vmap`` takes the rows apart, as it does for operations without a rule."""
    select = torch.ops.aten.select.int
    apart = [n for n in graph.graph.nodes if n.target is select and n.args[1] == 0]
    return len(apart) >= LANES


def _without_detach(graph: GraphModule) -> GraphModule:
    """Return the graph without ``detach``, which has no effect outside of autograd."""
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph
