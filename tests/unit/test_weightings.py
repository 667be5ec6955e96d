"""Loss-based weightings against numbers worked by hand, limits, and properties."""

from __future__ import annotations

from math import exp, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poise
from poise.clocks import Asynchronous, Synchronous
from poise.core.capabilities import LongRun
from poise.core.errors import InvalidOption, UpdateRefused
from poise.core.traits import WeightingTraits, traits_of
from poise.core.types import Setting
from poise.weightings import (
    Anneal,
    Discount,
    Exp,
    Max,
    Min,
    Proportional,
    SoftMax,
    SoftMin,
    Switch,
    TimeBased,
)

BASE = np.array([0.2, 0.3, 0.5])
BEFORE = np.array([1.0, 3.0, 2.0])
AFTER = np.array([0.5, 1.0, 1.9])
SOFT = [SoftMax(0.7), SoftMin(0.7), Exp(0.7)]


def weigh(weighting, base=BASE, before=BEFORE, after=AFTER, **more):
    return weighting.coefficients(
        np.asarray(base), loss_before=before, loss_after=after, **more
    )


@pytest.mark.parametrize(
    ("loss", "values", "reports"),
    [
        ("before", [1.0, 3.0, 2.0], {"loss_before"}),
        ("after", [0.5, 1.0, 1.9], {"loss_after"}),
        ("mean", [0.75, 2.0, 1.95], {"loss_before", "loss_after"}),
    ],
)
def test_the_loss_of_a_weighting_by_hand(loss, values, reports) -> None:
    raised = BASE * np.exp(np.array(values) / 0.5)
    soft = SoftMax(0.5, loss=loss)
    assert weigh(soft) == pytest.approx(raised / raised.sum(), rel=1e-12)
    assert soft.needs == reports
    worst = np.eye(3)[int(np.argmax(values))]
    np.testing.assert_array_equal(weigh(Max(1, loss=loss)), worst)
    best = np.eye(3)[int(np.argmin(values))]
    np.testing.assert_array_equal(weigh(Min(1, loss=loss)), best)


def test_only_the_loss_before_work_has_the_closed_forms_of_the_papers() -> None:
    assert traits_of(SoftMax(0.5), WeightingTraits).tilt is not None
    for loss in ("after", "mean"):
        assert traits_of(SoftMax(0.5, loss=loss), WeightingTraits).tilt is None


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(
        InvalidOption, match="loss must be 'before' or 'after' or 'mean', not 'during'"
    ):
        SoftMax(0.5, loss="during")


def test_by_hand() -> None:
    raised = [0.2 * exp(1 / 0.5), 0.3 * exp(3 / 0.5), 0.5 * exp(2 / 0.5)]
    assert weigh(SoftMax(0.5)) == pytest.approx(
        np.array(raised) / sum(raised), rel=1e-12
    )
    lowered = [0.2 * exp(-1 / 0.5), 0.3 * exp(-3 / 0.5), 0.5 * exp(-2 / 0.5)]
    assert weigh(SoftMin(0.5)) == pytest.approx(
        np.array(lowered) / sum(lowered), rel=1e-12
    )
    # [Exp-α 2023, eq. 3] with sizes 10, 20, 30: s = 3 * n / 60 = 0.5, 1, 1.5
    moved = [
        0.2 * exp(0.5 * -0.5 / 0.2),
        0.3 * exp(-2.0 / 0.2),
        0.5 * exp(1.5 * -0.1 / 0.2),
    ]
    sized = weigh(Exp(0.2), sizes=np.array([10, 20, 30]))
    assert sized == pytest.approx(np.array(moved) / sum(moved), rel=1e-12)


def test_max_and_min_share_ties_and_take_shares_of_the_cohort() -> None:
    losses = np.array([1.0, 2.0, 2.0, 0.5])
    quarter = np.full(4, 0.25)
    assert weigh(Max(1), quarter, losses).tolist() == [0, 0.5, 0.5, 0]
    assert weigh(Max(3), quarter, losses) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weigh(Max(0.5), quarter, losses).tolist() == [0, 0.5, 0.5, 0]
    assert weigh(Min(2), quarter, losses).tolist() == [0.5, 0, 0, 0.5]
    assert weigh(Max(99), quarter, losses) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("weighting", SOFT, ids=repr)
@given(shift=st.floats(-1e3, 1e3))
def test_a_constant_added_to_all_losses_changes_nothing(
    weighting, shift: float
) -> None:
    moved = weigh(weighting, before=BEFORE + shift, after=AFTER + shift)
    assert moved == pytest.approx(weigh(weighting), rel=1e-9)


@pytest.mark.parametrize("make", [SoftMax, SoftMin, Exp], ids=lambda f: f.__name__)
def test_limits(make) -> None:
    assert weigh(make(1e9)) == pytest.approx(weigh(Proportional()), rel=1e-8)
    if make is not Exp:
        cold = weigh(make(1e-4))
        assert cold == pytest.approx(
            weigh(Max(1) if make is SoftMax else Min(1)), abs=1e-12
        )


@pytest.mark.parametrize("weighting", [*SOFT, Max(2), Min(2)], ids=repr)
@given(
    losses=st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    improved=st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
)
def test_weights_are_shares_whatever_the_losses(weighting, losses, improved) -> None:
    found = weigh(weighting, before=np.array(losses), after=np.array(improved))
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0, rel=1e-12)
    order = np.array([2, 0, 1])
    again = weigh(
        weighting, BASE[order], np.array(losses)[order], np.array(improved)[order]
    )
    assert again == pytest.approx(found[order], rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("weighting", SOFT, ids=repr)
def test_equal_losses_give_the_base_weights(weighting) -> None:
    same = np.full(3, 700.0)
    assert weigh(weighting, before=same, after=same) == pytest.approx(BASE, rel=1e-12)


@pytest.mark.parametrize("weighting", [*SOFT, Max(1), Min(1)], ids=repr)
def test_a_loss_that_is_not_finite_is_refused_by_client(weighting) -> None:
    bad = np.array([1.0, np.nan, 2.0])
    with pytest.raises(UpdateRefused, match="client 17"):
        weigh(weighting, before=bad, after=bad, clients=np.array([4, 17, 9]))
    with pytest.raises(InvalidOption, match="loss_before"):
        weighting.coefficients(BASE)


def test_floors() -> None:
    clients = np.array([0, 1, 2])
    assert weigh(Max(1, floor=(0.0, 2.5, 0.0)), clients=clients).tolist() == [
        0,
        0,
        1,
    ]  # gaps 1, 0.5, 2
    lowest = np.array(
        [0.9, 0.1, np.inf]
    )  # gaps 0.1, 2.9, and 0 for a client never seen before
    assert weigh(
        Max(1, floor="running_min"), clients=clients, lowest_loss=lowest
    ).tolist() == [
        0,
        1,
        0,
    ]
    assert weigh(SoftMax(0.7, floor=5.0)) == pytest.approx(weigh(SoftMax(0.7)))
    with pytest.raises(InvalidOption, match="client"):
        weigh(Max(1, floor=(0.0,)), clients=clients)


def test_switch_by_round_and_by_accuracy() -> None:
    by_round = Switch([(20, SoftMin(0.2)), (None, Proportional())])
    assert weigh(by_round, round=19) == pytest.approx(weigh(SoftMin(0.2)))
    assert weigh(by_round, round=20).tolist() == BASE.tolist()
    by_score = Switch([(0.8, Max(1)), (inf, Proportional())])
    assert weigh(by_score, round=99, reached={"accuracy": 0.79}).tolist() == [0, 1, 0]
    assert weigh(by_score, round=1, reached={"accuracy": 0.8}).tolist() == BASE.tolist()
    assert weigh(by_score, round=0, reached={}).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [(1, 2)],
        [(3, Proportional())],
        [(None, Max()), (None, Min())],
        [(2.5, Max())],
    ],
)
def test_switch_refuses_stages_that_make_no_sense(stages) -> None:
    with pytest.raises(InvalidOption, match="Switch"):
        Switch(stages)


def test_anneal_is_a_straight_line_between_the_two() -> None:
    mixed = Anneal(Max(1), Proportional(), over=4)
    for n, t in ((0, 0.0), (1, 0.25), (4, 1.0), (9, 1.0)):
        assert weigh(mixed, round=n) == pytest.approx(
            (1 - t) * weigh(Max(1)) + t * BASE
        )


def test_a_run_asks_the_clients_for_what_its_weighting_needs_and_remembers_the_lowest_loss() -> (
    None
):
    quad = poise.quadratics([[0.0], [4.0], [10.0]])
    solver = poise.solvers.SGD(lr=0.1, steps=2)
    run = poise.train(quad, quad.task, solver, weighting=Exp(0.5), rounds=5)
    c = run.contributions
    assert not np.isnan(c["loss_before"]).any()
    assert not np.isnan(c["loss_after"]).any()
    plain = poise.train(quad, quad.task, solver, rounds=5)
    assert np.isnan(plain.contributions["loss_before"]).all()
    worst = poise.train(quad, quad.task, solver, weighting=Max(1), rounds=3)
    assert (
        worst.weights.argmax(axis=1) == 2
    ).all()  # the optimum at 10 is the farthest from 0


def test_switch_by_accuracy_in_a_run_stays_switched() -> None:
    fed = poise.federation("digits", partition="iid", clients=10)
    stages = Switch([(0.5, Max(1)), (None, Proportional())])
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.5, epochs=1, batch_size=20),
        weighting=stages,
        rounds=12,
    )
    reached = np.flatnonzero(run.metric("accuracy") >= 0.5)[0]
    alone = (run.weights > 0).sum(axis=1) == 1
    assert alone[: reached + 1].all()
    assert not alone[reached + 1 :].any()
    assert len(alone) > reached + 1


def test_exp_without_scale_ignores_sizes_and_agrees_for_equal_ones() -> None:
    base, before, after = (
        np.array([0.5, 0.3, 0.2]),
        np.array([2.0, 2.0, 2.0]),
        np.array([1.9, 1.5, 1.0]),
    )
    reports = {"loss_before": before, "loss_after": after}
    unequal, equal = np.array([10, 20, 30]), np.array([7, 7, 7])
    plain = Exp(0.5, scale="none").coefficients(base, sizes=unequal, **reports)
    by_hand = base * np.exp((after - before) / 0.5)
    assert plain == pytest.approx(by_hand / by_hand.sum())
    assert not np.allclose(plain, Exp(0.5).coefficients(base, sizes=unequal, **reports))
    assert plain == pytest.approx(Exp(0.5).coefficients(base, sizes=equal, **reports))
    with pytest.raises(InvalidOption, match="scale must be 'size' or 'none'"):
        Exp(0.5, scale="sizes")  # type: ignore[arg-type]


def test_estimated_times_by_hand() -> None:
    # four aggregations so far (n = 3); the clients answered in 1, 2 and 4 of them: p_i * 4 / k_i
    answers = {"round": 3, "participations": np.array([1, 2, 4])}
    timed = TimeBased(times="estimated").coefficients(
        np.array([0.2, 0.3, 0.5]), **answers
    )
    assert timed == pytest.approx([0.8, 0.6, 0.5], rel=1e-12)


def test_estimated_times_share_one_weight_between_the_rows_of_a_client() -> None:
    # client 7 brings two updates in aggregation 2 (n = 1), its first: 0.6 * 2 / 1 in two halves
    timed = TimeBased(times="estimated").coefficients(
        np.array([0.6, 0.4, 0.6]),
        round=1,
        clients=np.array([7, 2, 7]),
        participations=np.array([1, 2, 1]),
    )
    assert timed == pytest.approx([0.6, 0.4, 0.6], rel=1e-12)


def test_a_client_that_answers_has_answered_at_least_once() -> None:
    with pytest.raises(InvalidOption, match="participations must be at least 1"):
        TimeBased(times="estimated").coefficients(
            np.ones(2), participations=np.array([1, 0])
        )


@pytest.mark.parametrize("weighting", [*SOFT, Max(1), Min(1)], ids=repr)
def test_weightings_declare_whether_they_are_continuous(weighting) -> None:
    """A tie that breaks by very little moves all the weight of `Max` and `Min`."""
    tie, broken = np.array([1.0, 1.0]), np.array([1.0, 1.0 + 1e-9])
    before = weigh(weighting, [0.5, 0.5], tie, tie / 2)
    after = weigh(weighting, [0.5, 0.5], broken, broken / 2)
    continuous = np.allclose(before, after, atol=1e-6)
    assert traits_of(weighting, WeightingTraits).continuous == continuous


def test_a_switch_ends_with_its_last_stage() -> None:
    last = SoftMax(0.7)
    assert Switch([(3, Max(1)), (0.5, Min(1)), (None, last)]).finally_used == last
    assert Switch([(None, last)]).finally_used == last


def test_the_mean_of_discounted_coefficients_is_known_if_no_update_is_stale() -> None:
    setting = Setting(2, np.array([1, 3]), np.array([0.25, 0.75]))
    base, always = np.array([0.25, 0.75]), np.ones(2)
    waits = LongRun(setting, Synchronous(), base, always)
    hurries = LongRun(setting, Asynchronous(), base, always)
    mean = Discount(Proportional()).mean_coefficients(waits)
    assert mean is not None
    assert mean.tolist() == [0.25, 0.75]
    assert Discount(Proportional()).mean_coefficients(hurries) is None
    assert Discount(SoftMax(1.0)).mean_coefficients(waits) is None
