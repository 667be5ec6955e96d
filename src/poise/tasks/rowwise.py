"""The row path: one client at a time through the module itself.

On a CPU, stacking the convolutions and recurrences of different clients gains nothing;
one client per core does. Each worker thread has its own copy of the module, in
channels-last memory if there are convolutions (a step of `cnn` then took 27 ms instead
of 46, on one core).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from poise.core.trees import Inputs, first, mapped, row_of
from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.calls import called
from poise.tasks.copies import copy_of
from poise.tasks.dense import hooked
from poise.tasks.layers import Dropout, use_generator
from poise.tasks.layouts import same_in_channels_last
from poise.tasks.losses import LOSSES, PerSample
from poise.tasks.module_outputs import each_tensor

_global_generator = threading.Lock()
TOGETHER = 64  # samples per step over all clients of a call
VALUES = 1_000_000  # parameters of all models of a call
OURS = ("torch.nn.", "poise.tasks.")


class RowKernel:
    """Forward and backward passes of any module, row by row."""

    def __init__(
        self,
        module: nn.Module,
        loss: str | PerSample,
        example: Inputs,
        dtype: torch.dtype,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.autocast = autocast
        self.layout = Layout.of_module(module)
        self.loss = loss
        self.dtype = dtype
        self._format = torch.contiguous_format
        self._template = copy_of(module).to(dtype).train()
        images = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
        # activations of a forward pass should stay in the cache
        if images:
            self.block = 32
        else:
            self.block = 256
        if images and same_in_channels_last(self._template, self._input(example)):
            self._format = torch.channels_last
            self._template.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._local = threading.local()
        self._stateless = all(
            type(layer).__module__.startswith(OURS) and not hooked(layer)
            for layer in module.modules()
        )
        self._global_draws = self._draws_from_the_process(example)
        self.random = self._global_draws or any(
            isinstance(layer, Dropout) for layer in module.modules()
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, without the threads' copies of the module."""
        return {name: value for name, value in vars(self).items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state; threads make new copies of the module."""
        vars(self).update(state, _local=threading.local())

    def rows(self, batch_size: int) -> int:
        """Return how many clients to put into one call; 1 if each needs a copy of the module."""
        if not self._stateless:
            return 1
        return max(1, min(TOGETHER // batch_size, VALUES // self.layout.size))

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
        module, tensors = self._thread_copy(training=True)
        moving = [tensors[entry.name] for entry in self.layout.parameters]
        for k, count in enumerate(counts.tolist()):
            self._load(tensors, rows[k])
            stream = generators[k] if generators is not None else None
            own = row_of(x, k, count)
            gradients = self._gradient(module, moving, own, y[k, :count], stream)
            for entry, gradient in zip(self.layout.parameters, gradients, strict=True):
                place = out[k, entry.start : entry.stop].view(entry.shape)
                if gradient is None:
                    place.zero_()
                else:
                    place.copy_(gradient)
            # The forward pass may have changed buffers and parameters.
            self._store(tensors, rows[k])

    def descend(
        self,
        start: Vector,
        batches: Iterable[tuple[Inputs, torch.Tensor]],
        rate: float,
        stream: torch.Generator | None,
        out: Vector,
    ) -> None:
        """Write ``start`` after one plain gradient step per batch into ``out``."""
        module, tensors = self._thread_copy(training=True)
        moving = [tensors[entry.name] for entry in self.layout.parameters]
        self._load(tensors, start)
        for x, y in batches:
            gradients = self._gradient(module, moving, x, y, stream)
            with torch.no_grad():
                for place, gradient in zip(moving, gradients, strict=True):
                    if gradient is not None:
                        place.sub_(gradient, alpha=rate)
        self._store(tensors, out)

    def outputs(self, theta: Vector, x: Inputs) -> torch.Tensor:
        """See `Kernel.outputs`."""
        module, tensors = self._thread_copy(training=False)
        self._load(tensors, theta)
        with torch.no_grad():
            outputs = called(module, self._input(x))
        # outputs of ``torch.jit.script`` may have a gradient even now
        detached: torch.Tensor = each_tensor(torch.Tensor.detach, outputs)
        return detached

    def run(self, module: nn.Module, x: Inputs) -> Any:
        """Return the outputs of a module for these inputs in the kernel's precision."""
        return called(module, self._input(x))

    def begin(self) -> None:
        """Make a fresh copy of the module, so that no state passes between clients inside it.

        Layers of PyTorch and of poise keep all state in their tensors, which are loaded
        for each client. They need no copy, which would take a millisecond or two and
        block other threads.
        """
        if self._stateless and hasattr(self._local, "module"):
            return
        self._local.module = copy_of(self._template)
        self._local.tensors = self._local.module.state_dict(keep_vars=True)
        self._local.training = True

    def _thread_copy(self, training: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
        """Return this thread's copy of the module and its named tensors."""
        if not hasattr(self._local, "module"):
            self.begin()
        module: nn.Module = self._local.module
        if self._local.training != training:
            module.train(training)
            self._local.training = training
        tensors: dict[str, torch.Tensor] = self._local.tensors
        return module, tensors

    def _load(self, tensors: dict[str, torch.Tensor], row: Vector) -> None:
        with torch.no_grad():
            for entry in self.layout.entries:
                place = tensors[entry.name]
                value = row[entry.start : entry.stop].view(entry.shape)
                place.copy_(value if place.is_floating_point() else value.round())

    def _store(self, tensors: dict[str, torch.Tensor], row: Vector) -> None:
        with torch.no_grad():
            for entry in self.layout.entries:
                row[entry.start : entry.stop].view(entry.shape).copy_(
                    tensors[entry.name]
                )

    def _gradient(
        self,
        module: nn.Module,
        moving: list[torch.Tensor],
        x: Inputs,
        y: torch.Tensor,
        stream: torch.Generator | None,
    ) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the mean loss on a batch; None for tensors without influence."""
        with torch.enable_grad():
            with self._precision(first(x).device):
                value = self.mean_loss(self._forward(module, self._input(x), stream), y)
            return torch.autograd.grad(value, moving, allow_unused=True)

    def _precision(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context of mixed precision; nothing without it."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.autocast)

    def _input(self, x: Inputs) -> Inputs:
        if isinstance(x, torch.Tensor):
            return self._part(x)
        parts: Inputs = mapped(self._part, x)
        return parts

    def _part(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.dtype) if x.is_floating_point() else x
        if x.dim() == 4:
            return x.contiguous(memory_format=self._format)
        return x

    def mean_loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch."""
        if self.loss == "cross-entropy" and labels.dim() == 1:
            return F.cross_entropy(outputs, labels)
        function = LOSSES[self.loss] if isinstance(self.loss, str) else self.loss
        return function(outputs, labels).mean()

    def _forward(
        self, module: nn.Module, x: Inputs, stream: torch.Generator | None
    ) -> torch.Tensor:
        """Run a training pass with random numbers from the client's stream."""
        use_generator(stream)
        if stream is None or not self._global_draws:
            return called(module, x)
        with _global_generator, torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=stream)))
            return called(module, x)

    def _draws_from_the_process(self, example: Inputs) -> bool:
        """Whether a training pass draws from the process-wide generator, as ``nn.Dropout`` does."""
        module = copy_of(self._template).train()
        use_generator(torch.Generator().manual_seed(0))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            before = torch.get_rng_state()
            called(module, self._input(example))
            return not torch.equal(before, torch.get_rng_state())
