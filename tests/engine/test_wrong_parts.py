"""Custom parts that break their protocol: one clear error each, before or in the round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.channels import TopK
from poise.core.errors import IncompatibleParts, InvalidOption, UpdateRefused
from poise.core.protocols import Encoded
from poise.core.types import AttackerView, ForgedUpdate
from poise.engine.validation import check_direction
from poise.personal import BatchNorm
from poise.solvers import SGD, Scaffold

QUAD = poise.quadratics([[0.0, 1.0], [2.0, 3.0]])


def train(**options: Any) -> Any:
    return poise.train(QUAD, QUAD.task, SGD(lr=0.5, steps=1), rounds=2, **options)


class Fits:
    def fit(self, setting: Any) -> None: ...


class Combines(Fits):
    def __init__(self, direction: Any) -> None:
        self.direction = direction

    def combine(self, deltas: torch.Tensor, weights: np.ndarray) -> Any:
        return self.direction


@pytest.mark.parametrize(
    ("direction", "message"),
    [
        (
            torch.zeros(3, dtype=torch.float64),
            r"Combines: the direction of round 0 is \(3,\) torch.float64",
        ),
        (torch.zeros(2), r"is \(2,\) torch.float32, the model \(2,\) torch.float64"),
        (np.zeros(2), "is ndarray"),
        (None, "is NoneType"),
    ],
)
def test_a_direction_that_is_not_like_the_model(direction: Any, message: str) -> None:
    with pytest.raises(IncompatibleParts, match=message):
        train(aggregator=Combines(direction))


def test_a_direction_that_is_not_finite_names_the_aggregator() -> None:
    with pytest.raises(
        UpdateRefused, match="round 0: the direction of Combines is not finite"
    ):
        train(aggregator=Combines(torch.full((2,), float("nan"), dtype=torch.float64)))


class Forgetful(Fits):
    """Declares that clients keep a vector, and returns none."""

    keeps = ("rest",)

    def encode(self, deltas: torch.Tensor, kept: Any, streams: Any) -> Encoded:
        return Encoded({"buffers": deltas})

    def decode(self, payload: Any, size: int) -> torch.Tensor:
        rows: torch.Tensor = payload["buffers"]
        return rows


def test_a_channel_must_return_what_it_declares_to_keep() -> None:
    with pytest.raises(
        IncompatibleParts, match="Forgetful: encode returned nothing to keep"
    ):
        train(channel=Forgetful())


def test_a_payload_may_have_any_names() -> None:
    class Whole(Forgetful):
        keeps = ()

    task = poise.task("mlp", hidden=4, norm=True)
    fed = poise.federation("digits", clients=3, samples=60)
    solver = SGD(lr=0.1, steps=2, batch_size=8)
    runs = [
        poise.train(fed, task, solver, rounds=2, channel=c) for c in (Whole(), None)
    ]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()


class Short(Fits):
    clients, works = (1,), False

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        return ForgedUpdate(torch.tensor(7.0))


def test_a_forged_update_must_have_the_models_shape() -> None:
    with pytest.raises(
        IncompatibleParts,
        match=r"Short: client 1 sends an update of shape \(\) instead of \(2,\)",
    ):
        train(attacks=[Short()])


class Names(Fits):
    def __init__(self, *names: str) -> None:
        self.given = names

    def names(self, module: nn.Module) -> Iterable[str]:
        return self.given


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("1.wieght",),
            "Names: the model has no entry '1.wieght' .did you mean '1.weight'",
        ),
        ((), "no entry of the model would stay"),
        (("1.weight", "1.bias"), "every trained parameter would stay"),
    ],
)
def test_personal_entries_must_be_of_the_model(
    names: tuple[str, ...], words: str
) -> None:
    fed = poise.federation("digits", clients=3, samples=60)
    with pytest.raises(IncompatibleParts, match=words):
        poise.train(
            fed,
            poise.task("logistic"),
            SGD(lr=0.1, steps=1),
            rounds=1,
            personal=Names(*names),
        )


def test_a_part_that_lacks_a_member_is_named() -> None:
    class Weighs(Fits):
        def coefficients(self, updates: Any) -> Any:
            return updates.base_weights

    with pytest.raises(
        InvalidOption,
        match=r"Weighs is no weighting yet: it has no needs .*protocols\.Weighting",
    ):
        train(weighting=Weighs())
    with pytest.raises(
        InvalidOption, match="Fits is no sampler yet: it has no needs, draw"
    ):
        train(sampler=Fits())
    with pytest.raises(InvalidOption, match="3 is not a part for the slot channel"):
        train(channel=3)


def test_an_old_weighting_without_keywords_is_recognised_by_its_argument() -> None:
    class Old(Fits):
        needs = frozenset[str]()

        def coefficients(self, base: np.ndarray, **reports: Any) -> np.ndarray:
            return base

    class New(Fits):
        needs = frozenset[str]()

        def coefficients(self, updates: Any, **more: Any) -> np.ndarray:
            assert not more
            weights: np.ndarray = updates.base_weights
            return weights

    with pytest.warns(FutureWarning, match="is deprecated"):
        train(weighting=Old())
    train(weighting=New())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"channel": TopK(0.05)}, marks=pytest.mark.thorough),
        pytest.param({"personal": BatchNorm()}, marks=pytest.mark.thorough),
        {"personal": BatchNorm(), "channel": TopK(0.1)},
        {"solver": Scaffold(lr=0.1, steps=1, batch_size=8)},
    ],
    ids=["top-k", "personal", "both", "scaffold"],
)
def test_explain_counts_the_bytes_that_the_run_records(options: dict[str, Any]) -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    task = poise.task("mlp", hidden=4, norm=True)
    given = {"solver": SGD(lr=0.1, steps=1, batch_size=8), **options, "rounds": 3}
    explanation = poise.explain(fed, task, estimate=False, **given)
    records: list[Any] = []
    poise.train(fed, task, callbacks=[records.append], **given)
    assert explanation.bytes_up == sum(r.bytes_up for r in records)
    assert explanation.bytes_down == sum(r.bytes_down for r in records)


def test_a_direction_whose_sum_overflows_is_accepted() -> None:
    """The check looks at the sum first: only a sum that is not finite costs a second look."""
    aggregator = poise.aggregators.WeightedSum()
    theta = torch.zeros(2)
    huge = torch.full((2,), 3e38)  # finite in single precision; the sum is not
    check_direction(huge, theta, aggregator, round=0)
    for bad in (torch.inf, -torch.inf, torch.nan):
        with pytest.raises(
            UpdateRefused, match="round 0: the direction of WeightedSum"
        ):
            check_direction(torch.tensor([bad, 1.0]), theta, aggregator, round=0)
    with pytest.raises(UpdateRefused, match="not finite"):
        check_direction(
            torch.tensor([torch.inf, -torch.inf]), theta, aggregator, round=0
        )
