"""Outputs in tuples, lists, dicts and classes: the user's loss gets them as they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing import SampleFederation


class Named(NamedTuple):
    scores: torch.Tensor
    hidden: torch.Tensor


@dataclass
class Record:
    scores: torch.Tensor
    note: str = "plain"


@dataclass(slots=True)
class Slots:
    scores: torch.Tensor


class Answer(OrderedDict[str, Any]):
    """A dict with its entries as attributes, as libraries of language models return."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


FORMS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], Any]]] = {
    "a named tuple": (lambda s: Named(s, s.detach()), lambda o: o.scores),
    "a dataclass": (lambda s: Record(s), lambda o: o.scores),
    "a dataclass with slots": (lambda s: Slots(s), lambda o: o.scores),
    "a dict with attributes": (
        lambda s: Answer(scores=s, loss=None),
        lambda o: o.scores,
    ),
    "a list": (lambda s: [s, s.detach()], lambda o: o[0]),
    "as of nn.LSTM": (lambda s: (s, (s.detach(), s.detach())), lambda o: o[0]),
    "with None": (lambda s: (s, None), lambda o: o[0]),
}


class Wrapped(nn.Module):
    def __init__(self, form: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        return self.form(self.layer(x))


@pytest.mark.parametrize("name", FORMS)
def test_outputs_of_any_form_train_as_the_plain_tensor_does(name: str) -> None:
    form, scores = FORMS[name]
    federation = SampleFederation.random([7, 4, 9], shape=(6,), classes=3)
    plain = nn.Linear(6, 3)
    wrapped = Wrapped(form)
    wrapped.layer.load_state_dict(plain.state_dict())

    def loss(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores(outputs), labels, reduction="none")

    def right(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        return (scores(outputs).argmax(1) == labels).float()

    solver = SGD(lr=0.2, epochs=1, batch_size=4)
    task = Task(module=wrapped, loss=loss, metrics={"right": right}, path="rows")
    found = poise.train(federation, task, solver, rounds=2)
    wanted = poise.train(federation, Task(module=plain, path="rows"), solver, rounds=2)
    np.testing.assert_allclose(found.model, wanted.model, atol=1e-6)
