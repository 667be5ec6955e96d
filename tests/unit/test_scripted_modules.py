"""Modules of ``torch.jit``: the same steps as the plain module, and no warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.core.vectors import Layout
from poise.tasks.copies import copy_of

LR = 0.3


def plain() -> nn.Module:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    made[0].bias.requires_grad_(False)
    return made


def scripted() -> nn.Module:
    return torch.jit.script(plain())


def traced() -> nn.Module:
    return torch.jit.trace(plain(), torch.zeros(3, 4))


FORMS = [scripted, traced]


@pytest.mark.parametrize("make", FORMS)
def test_the_parameters_of_a_copy_are_trainable(make: Callable[[], nn.Module]) -> None:
    original = make()
    made = copy_of(original)
    for name, parameter in made.named_parameters():
        assert parameter.is_leaf
        assert parameter.requires_grad is (name != "0.bias")
    assert Layout.of_module(made) == Layout.of_module(plain())
    with torch.no_grad():
        dict(made.named_parameters())["2.bias"].fill_(1.5)
    assert dict(made.named_parameters())["2.bias"].tolist() == [1.5, 1.5]
    assert 1.5 not in dict(original.named_parameters())["2.bias"].tolist()


@pytest.mark.parametrize("make", FORMS)
def test_a_run_makes_the_steps_of_pytorch_without_warnings(
    make: Callable[[], nn.Module],
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    fed = poise.federation((x[:16], y[:16]), [np.arange(16)], test=(x[16:], y[16:]))
    solver = poise.solvers.SGD(lr=LR, steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        run = poise.train(fed, poise.Task(module=make()), solver, rounds=2)
    theirs = plain()
    moving = [p for p in theirs.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(moving, lr=LR)
    for _ in range(6):
        optimiser.zero_grad()
        outputs = theirs(torch.from_numpy(x[:16]))
        nn.functional.cross_entropy(outputs, torch.from_numpy(y[:16])).backward()
        optimiser.step()
    expected = torch.cat([p.detach().flatten() for p in moving]).numpy()
    assert np.abs(run.model - expected).max() < 1e-6
    right = theirs(torch.from_numpy(x[16:])).argmax(1).numpy() == y[16:]
    assert run.metric("accuracy")[-1] == pytest.approx(right.mean())
