"""Clients that report impossible losses or send huge updates, and runs that diverge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.attacks import Scaled
from poise.core.errors import InvalidOption, UpdateRefused
from poise.core.history import History
from poise.core.round_updates import RoundUpdates
from poise.core.types import AttackerView, Contribution, ForgedUpdate, Record, Setting
from poise.engine.validation import Limits, refusals, validated
from poise.solvers import SGD
from poise.weightings import Exp, Max, Min, SoftMax, SoftMin

CLIENTS = 4
STEP = SGD(lr=0.1, steps=1)


@dataclass(frozen=True)
class ClaimsLoss:
    """The last client does no work and claims a loss."""

    loss: float
    clients: tuple[int, ...] = (CLIENTS - 1,)
    works = False

    def fit(self, setting: Setting) -> None:
        """Accept every federation."""

    def answer(self, view: AttackerView, seed: int) -> ForgedUpdate:
        return ForgedUpdate(torch.zeros_like(view.received), loss=self.loss)


def quadratic_run(**options: Any) -> Any:
    federation = poise.quadratics([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 2.0]])
    return poise.train(federation, federation.task, STEP, rounds=3, **options)


def digits_run(**options: Any) -> Any:
    federation = poise.federation("digits", "iid", clients=CLIENTS, samples=80)
    return poise.train(federation, poise.task("logistic"), STEP, rounds=3, **options)


WEIGHTINGS = [Max(1), Min(1), SoftMax(0.2), SoftMin(0.2), Exp(0.2)]


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("claim", [1e308, -1e308, -0.5, np.nan, np.inf])
@pytest.mark.parametrize("train", [quadratic_run, digits_run])
def test_an_impossible_loss_is_refused_by_client_and_value(
    weighting: Any, claim: float, train: Any
) -> None:
    options = {"weighting": weighting, "attacks": [ClaimsLoss(claim)]}
    with pytest.raises(UpdateRefused) as error:
        train(**options)
    assert f"client {CLIENTS - 1} sent a loss" in str(error.value)
    assert f"{claim:g}" in str(error.value)
    run = train(**options, bad_updates="drop")
    assert [client for _, client, _ in run.refusals] == [CLIENTS - 1] * 3
    assert not run.weights[:, CLIENTS - 1].any()
    assert np.allclose(run.weights.sum(axis=1), 1)


def test_a_loss_of_your_own_may_be_negative() -> None:
    def shifted(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, labels, reduction="none") - 9

    federation = poise.federation("digits", "iid", clients=CLIENTS, samples=80)
    task = poise.task("logistic", loss=shifted)
    run = poise.train(federation, task, STEP, rounds=2, weighting=SoftMax(1.0))
    assert (run.contributions["loss_before"] < 0).all()
    assert run.refusals == []


def cohort(losses: Any = None, norms: Any = None, steps: Any = None) -> RoundUpdates:
    count = 5
    given = RoundUpdates.of_columns(
        np.full(count, 0.2),
        stack=torch.ones(count, 3, dtype=torch.float64),
        norms=np.ones(count) if norms is None else np.array(norms),
        steps=np.ones(count, dtype=int) if steps is None else np.array(steps),
    )
    if losses is None:
        return given
    return replace(given, loss_before=np.array(losses))


def bad_rows(updates: RoundUpdates, limits: Limits) -> list[int]:
    theta = torch.zeros(3, dtype=torch.float64)
    return [refusal.client for refusal in refusals(updates, theta, limits)]


def test_a_loss_is_compared_with_the_median_of_its_cohort() -> None:
    # the median is 3, and 100 ** 2 times 3 is 30000
    losses = [1.0, 2.0, 3.0, 30000.0, 30001.0]
    assert bad_rows(cohort(losses), Limits(0.0, max_ratio=100.0)) == [4]
    assert bad_rows(cohort(losses), Limits(0.0)) == []
    # a median below 1 counts as 1: most clients may have learned their data by heart
    losses = [0.0, 0.0, 1e-9, 10000.0, 10001.0]
    assert bad_rows(cohort(losses), Limits(0.0, max_ratio=100.0)) == [4]
    assert bad_rows(cohort([1.0, 1.0, 1.0, 1e12, 1.1e12]), Limits(0.0)) == [4]


def test_a_loss_at_its_lowest_value_passes() -> None:
    assert bad_rows(cohort([0.0, 0.0, 0.0, 0.0, -1e-9]), Limits(0.0)) == []
    assert bad_rows(cohort([0.0, 0.0, 0.0, 0.0, -1e-3]), Limits(0.0)) == [4]
    assert bad_rows(cohort([0.0, 0.0, 0.0, 0.0, -1e-3]), Limits()) == []


def test_a_loss_beyond_single_precision_is_refused() -> None:
    given = cohort([1e300] * 5)
    single = replace(given, stack=given.stack.float())
    found = refusals(single, torch.zeros(3), Limits())
    assert len(found) == 5
    assert "beyond the largest number" in found[0].reason
    assert refusals(given, torch.zeros(3, dtype=torch.float64), Limits()) == ()


def test_a_length_is_compared_with_the_median_of_its_cohort() -> None:
    limits = Limits(max_ratio=100.0)
    norms = [1.0, 2.0, 3.0, 300.0, 301.0]  # the median is 3
    assert bad_rows(cohort(norms=norms), limits) == [4]
    assert bad_rows(cohort(norms=norms), Limits()) == []
    # five times the steps of the median client: five times the length
    assert bad_rows(cohort(norms=norms, steps=[1, 1, 1, 1, 5]), limits) == []
    # clients that did not move have no say, and two updates have no median
    assert bad_rows(cohort(norms=[0.0, 0.0, 0.0, 1.0, 300.0]), limits) == []
    assert bad_rows(cohort(norms=[0.0, 0.0, 1.0, 1.0, 300.0]), limits) == [4]


def alone(norm: float, client: int = 9, **columns: Any) -> RoundUpdates:
    """The update of one client, as in an asynchronous run."""
    return RoundUpdates.of_columns(
        [1.0],
        clients=np.array([client]),
        stack=torch.ones(1, 3, dtype=torch.float64),
        norms=np.array([norm]),
        **columns,
    )


def reasons(updates: RoundUpdates, history: History, length: float = 0.0) -> list[str]:
    """Why the update is refused, where the model is so long."""
    theta = torch.tensor([length, 0.0, 0.0], dtype=torch.float64)
    found = refusals(updates, theta, Limits(0.0, max_ratio=100.0), history)
    return [refusal.reason for refusal in found]


def test_a_single_update_is_compared_with_the_last_ones_of_the_others() -> None:
    history = History(last_norm={0: 1.0, 1: 2.0, 2: 0.0})
    assert reasons(alone(150.0), history) == []  # the median of 1, 2 and 150 is 2
    assert "longer than 200 " in reasons(alone(201.0), history)[0]
    # clients that did not move have no say: here are two lengths, which have no median
    two = History(last_norm={0: 1.0, 2: 0.0})
    assert reasons(alone(201.0), two) == []
    # a client's own past does not count beside its present: again two lengths
    assert reasons(alone(201.0, client=1), history) == []
    # five times the steps of the median client: five times the length
    stepped = History(last_norm={0: 1.0, 1: 2.0}, last_steps={0: 1, 1: 1})
    assert reasons(alone(900.0, steps=np.array([5])), stepped) == []
    assert reasons(alone(900.0, steps=np.array([1])), stepped) != []


def test_a_fast_client_is_no_majority() -> None:
    history = History()
    for round in range(50):  # tiny updates, so that those of the others look long
        contribution = Contribution(
            client=5,
            version=round,
            occurrence=0,
            base=1.0,
            coefficient=1.0,
            norm=1e-9,
            samples=1,
            steps=1,
        )
        history.add(Record(round, float(round), (contribution,), {}, 0, 0))
    assert reasons(alone(1.0), history) == []
    history.last_norm[6] = 1.0
    assert reasons(alone(1.0), history) == []


def test_a_client_that_is_drawn_often_is_no_majority() -> None:
    # three rows of client 0 in a cohort of five: the lengths are 1, 2 and 500
    given = cohort(norms=[500.0, 500.0, 500.0, 1.0, 2.0])
    drawn = replace(given, clients=np.array([0, 0, 0, 1, 2]))
    assert bad_rows(drawn, Limits(max_ratio=100.0)) == [0, 0, 0]


def test_without_a_median_an_update_is_compared_with_the_model() -> None:
    assert reasons(alone(1e4), History()) == []
    assert "longer than 10000 " in reasons(alone(1.1e4), History())[0]
    assert reasons(alone(1.1e4), History(), length=2.0) == []
    theta = torch.zeros(3, dtype=torch.float64)
    assert refusals(alone(1e15), theta, Limits()) == ()  # in simulation, any length


def test_a_single_loss_is_compared_with_the_last_ones_of_the_others() -> None:
    history = History(last_loss={0: 1.0, 1: 2.0})
    high = alone(1.0, loss_before=np.array([2.1e4]))
    assert "the median loss" in reasons(high, history)[0]
    assert reasons(alone(1.0, loss_before=np.array([1.9e4])), history) == []
    assert reasons(high, History()) == []


def test_a_refused_length_names_client_and_value() -> None:
    given = cohort(norms=[1.0, 1.0, 1.0, 1.0, 1e15])
    theta = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(
        UpdateRefused, match=r"client 4 sent an update of length 1e\+15"
    ):
        validated(given, theta, drop=False, limits=Limits(max_ratio=100.0))


CAPPED = [Max(1, cap=0.4), Min(1, cap=0.4), SoftMax(0.1, cap=0.4)]
CAPPED += [SoftMin(0.1, cap=0.4)]


@pytest.mark.parametrize("weighting", CAPPED, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("claim", [1e300, 0.0])
def test_no_claim_takes_more_than_the_cap(weighting: Any, claim: float) -> None:
    base = np.array([0.1, 0.2, 0.3, 0.4])
    losses = np.array([claim, 10.0, 11.0, 12.0])
    weights = weighting.coefficients(base, loss_before=losses)
    assert weights.sum() == pytest.approx(1)
    assert weights.max() <= 0.4 * (1 + 1e-9)
    assert (weights >= 0).all()


def test_a_capped_weight_goes_to_the_others_by_base_weight() -> None:
    base = np.array([0.1, 0.2, 0.3, 0.4])
    losses = np.array([50.0, 1.0, 2.0, 3.0])
    # by hand: 0.4 for client 0; 0.6 for the others as 2 : 3 : 4
    weights = Max(1, cap=0.4).coefficients(base, loss_before=losses)
    assert weights.tolist() == pytest.approx([0.4, 0.6 * 2 / 9, 0.2, 0.6 * 4 / 9])
    # 0.25 for client 0 leaves 1/6, 1/4 and 1/3: client 3 gets 0.25 too, and what is
    # left over goes to 1 and 2 as 2 : 3, which brings 2 above 0.25; all end at 0.25
    weights = Max(1, cap=0.25).coefficients(base, loss_before=losses)
    assert weights.tolist() == pytest.approx([0.25] * 4)


def test_a_claimed_rise_of_the_loss_takes_no_more_than_the_cap() -> None:
    weights = Exp(0.2, cap=0.5).coefficients(
        np.array([0.25] * 4),
        loss_before=np.ones(4),
        loss_after=np.array([1e300, 0.5, 0.5, 0.5]),
        samples=np.ones(4),
    )
    assert weights.tolist() == pytest.approx([0.5, 1 / 6, 1 / 6, 1 / 6])


def test_an_inactive_cap_changes_no_bit() -> None:
    base = np.array([0.1, 0.2, 0.3, 0.4])
    losses = np.array([1.0, 1.1, 1.2, 1.3])
    for plain in (SoftMax(1.0), SoftMin(1.0), Max(2), Min(2)):
        capped = replace(plain, cap=0.9)
        expected = plain.coefficients(base, loss_before=losses)
        assert capped.coefficients(base, loss_before=losses).tolist() == (
            expected.tolist()
        )


@pytest.mark.parametrize("cap", [0.0, -1.0, 1.5, np.nan, np.inf])
def test_a_cap_is_a_share(cap: float) -> None:
    for make in (
        Max,
        Min,
        lambda cap: SoftMax(1.0, cap=cap),
        lambda cap: Exp(1, cap=cap),
    ):
        with pytest.raises(InvalidOption, match="cap"):
            make(cap=cap)


def test_explain_names_the_cap() -> None:
    federation = poise.quadratics([[0.0, 1.0], [1.0, 0.0], [9.0, 1.0], [1.0, 2.0]])

    def words(weighting: Any) -> str:
        found = poise.explain(
            federation, federation.task, STEP, weighting=weighting, rounds=3
        )
        return " ".join(map(str, found.remarks))

    assert "no cap=" in words(Max(1))
    assert "no client gets more than 40% of the weight" in words(Max(1, cap=0.4))


def test_a_diverged_run_says_so(tmp_path: Any) -> None:
    attack = Scaled((CLIENTS - 1,), fraction=1e15)
    with pytest.warns(UserWarning, match="diverged: the last loss is .*e"):
        run = quadratic_run(attacks=[attack], out=tmp_path / "run")
    assert run.meta["status"] == "diverged"
    assert any(event.startswith("diverged: ") for event in run.events)
    events = run.events
    run.close()
    # a resume with nothing left to do keeps the status and warns again
    federation = poise.quadratics([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [1.0, 2.0]])
    with pytest.warns(UserWarning, match="diverged"):
        again = poise.resume(tmp_path / "run", federation, federation.task)
    assert again.meta["status"] == "diverged"
    assert again.events == events


def test_a_learning_rate_that_is_too_high_diverges() -> None:
    federation = poise.quadratics([[0.0, 1.0], [1.0, 0.0]])
    step = SGD(lr=50.0, steps=1)
    with pytest.warns(UserWarning, match="diverged"):
        run = poise.train(federation, federation.task, step, rounds=8)
    assert run.meta["status"] == "diverged"


def test_large_losses_from_the_start_are_no_divergence() -> None:
    federation = poise.quadratics([[0.0, 1e6], [1e6, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = poise.train(federation, federation.task, STEP, rounds=3)
    assert run.metric("loss")[-1] > 1e9
    assert run.meta["status"] == "done"
