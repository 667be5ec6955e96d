"""Layouts: tied and frozen parameters, buffers of any type, views."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from poise.core.errors import InvalidOption
from poise.core.vectors import Layout, task_tensors


class Tied(nn.Module):
    """A small language model whose output layer shares the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_parameters_lie_one_after_the_other_and_views_see_the_vector() -> None:
    layout = Layout.of_module(
        nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 4))
    )
    assert layout.size == layout.trainable == 3 * 2 + 2 + 2 * 4 + 4
    assert [e.start for e in layout.entries[1:]] == [
        e.stop for e in layout.entries[:-1]
    ]
    vector = torch.arange(layout.size, dtype=torch.float32)
    views = layout.views(vector)
    views["0.weight"].mul_(-1)
    assert torch.equal(vector[:6], -torch.arange(6.0)), "a view writes into the vector"
    assert torch.equal(layout.flatten(views), vector)


def test_views_of_a_stack_have_one_row_per_client() -> None:
    layout = Layout.of_module(nn.Conv2d(2, 3, 2))
    stack = torch.randn(4, layout.size)
    views = layout.views(stack)
    assert views["weight"].shape == (4, 3, 2, 2, 2)
    assert torch.equal(views["weight"][2], layout.views(stack[2])["weight"])


def test_a_tied_parameter_is_there_once() -> None:
    layout = Layout.of_module(Tied())
    assert [e.name for e in layout.entries] == ["embedding.weight"]
    assert layout.size == layout.trainable == 15


def test_buffers_with_infinite_entries_are_no_part_of_the_vector() -> None:
    """The difference of two infinite entries is no number."""
    module = nn.Linear(3, 2)
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    module.register_buffer("scale", torch.ones(2))
    layout = Layout.of_module(module)
    assert [entry.name for entry in layout.entries] == ["weight", "bias", "scale"]
    assert list(task_tensors(module)) == ["mask"]


def test_frozen_parameters_are_no_part_of_the_vector() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    module[0].requires_grad_(False)
    layout = Layout.of_module(module)
    assert [e.name for e in layout.parameters] == ["1.weight", "1.bias"]
    assert layout.buffers == ()
    assert (layout.trainable, layout.size) == (3, 3)


def test_batch_norm_buffers_follow_the_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    layout = Layout.of_module(module)
    assert [e.name for e in layout.buffers] == [
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    assert layout.entries[-1].dtype == torch.int64
    assert layout.entries[-1].shape == ()
    module[1].num_batches_tracked.fill_(7)
    vector = layout.flatten(module.state_dict(keep_vars=True), torch.float64)
    assert vector.dtype == torch.float64
    assert vector[-1] == 7
    assert layout.views(vector)["1.num_batches_tracked"].shape == ()


def test_a_module_without_anything_to_train_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no trainable parameter"):
        Layout.of_module(nn.ReLU())


def test_a_layout_of_shapes() -> None:
    layout = Layout.of_shapes({"a": (2, 2), "b": ()})
    assert (layout.size, layout.trainable) == (5, 5)
    assert len(layout.parameters) == 2
    assert layout.buffers == ()
