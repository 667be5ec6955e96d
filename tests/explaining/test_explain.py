"""`poise.explain`: what it flags, with which reason and fix, and where it stays silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.aggregators import Median
from poise.channels import TopK
from poise.clocks import Asynchronous, Buffered, Exponential, FixedWindow, Trace
from poise.core.history import History
from poise.core.rng import generator
from poise.core.types import Cohort, Setting
from poise.samplers import (
    MD,
    Binomial,
    ClusteredBySimilarity,
    ClusteredBySize,
    Optimal,
    Poisson,
    PowerOfChoice,
    Uniform,
)
from poise.servers import Adam
from poise.solvers import SGD, FedFor, Perturbed, Prox, Scaffold
from poise.weightings import (
    Adjacency,
    Anneal,
    Clipped,
    Discount,
    Exp,
    Identical,
    Max,
    Proportional,
    SoftMax,
    SoftMin,
    Switch,
    TimeBased,
)

OPTIMA = np.array([[0.0, 1.0], [4.0, 2.0], [1.0, 1.0], [2.0, -3.0], [5.0, 5.0]])
SIZES = [1, 2, 3, 4, 10]
P = np.array(SIZES) / 20
TAU = [1.0, 0.7, 0.5, 0.25, 0.2]
FED = poise.quadratics(OPTIMA, curvature=[1.0, 2.0, 0.5, 1.0, 1.0], sizes=SIZES)
DIGITS = poise.federation(
    "digits",
    partition="dirichlet",
    alpha=0.3,
    clients=8,
    sizes=[40, 60, 80, 100, 120, 140, 160, 180],
    seed=1,
)
LOGISTIC = poise.task("logistic")


def explained(**parts: Any) -> Any:
    return poise.explain(
        FED, FED.task, **{"solver": SGD(lr=0.01, steps=2), **parts}, estimate=False
    )


SILENT: dict[str, dict[str, Any]] = {
    "full": {},
    "md": {"sampler": MD(2)},
    "size": {"sampler": ClusteredBySize(2)},
    "binomial": {"sampler": Binomial(2)},
    "poisson that fits": {"sampler": Poisson(2)},
    "optimal": {"sampler": Optimal(2)},
    "similarity": {"sampler": ClusteredBySimilarity(2)},
    "uniform over everyone": {"sampler": Uniform(5)},
    "fedfix": {"clock": FixedWindow(0.4, TAU), "weighting": TimeBased()},
    "fedfix, random times": {
        "clock": FixedWindow(0.4, Exponential(TAU)),
        "weighting": TimeBased(),
    },
    "asynchronous": {"clock": Asynchronous(TAU), "weighting": TimeBased()},
    "buffered": {"clock": Buffered(2, TAU), "weighting": TimeBased()},
    "estimated times": {
        "clock": Asynchronous(TAU),
        "weighting": TimeBased(times="estimated"),
        "sampler": Uniform(5),
    },
    "in the end": {"weighting": Switch([(5, SoftMax(0.2)), (None, Proportional())])},
    "annealed": {"weighting": Anneal(SoftMin(0.2), Proportional(), 10)},
    "adam": {"server": Adam(0.01)},
    "scaffold": {"solver": Scaffold(lr=0.01, steps=2)},
    "late is on time": {"weighting": Discount(Proportional())},
}


QUICK_SILENT = ["md", "fedfix", "estimated times", "annealed"]


@pytest.mark.parametrize("name", thorough_except(QUICK_SILENT, SILENT))
def test_silent_where_nothing_is_wrong(name: str) -> None:
    found = explained(**SILENT[name])
    assert found.warnings == ()
    assert found.unbiased
    assert found.chi2 <= 1e-12
    assert np.allclose(found.objective, P, atol=1e-9)


FLAGGED: dict[
    str, tuple[dict[str, Any], str, str, str]
] = {  # parts, what, a word of the reason, a word of the fix
    "uniform": (
        {"sampler": Uniform(2)},
        "uniform sampling",
        "Σ p² = 0.325 > 1/(N−m+1) = 0.25",
        "MD(2)",
    ),
    "absent": (
        {"sampler": Uniform(2, absent="keep")},
        "keep the old model",
        "E[ω_i] = 0.4 p_i",
        "Uniform(2)",
    ),
    "asynchronous": (
        {"clock": Asynchronous(TAU), "weighting": Identical()},
        "Asynchronous with Identical",
        "d_i = (Σ 1/τ_j) τ_i p_i",
        "TimeBased()",
    ),
    "fedfix": (
        {"clock": FixedWindow(0.4, TAU), "weighting": Identical()},
        "FixedWindow with Identical",
        "⌈τ_i/Δt⌉ p_i",
        "TimeBased()",
    ),
    "fedfix, proportional": (
        {"clock": FixedWindow(0.4, TAU)},
        "FixedWindow with Proportional",
        "⌈τ_i/Δt⌉ p_i",
        "TimeBased()",
    ),
    "fedbuff": (
        {"clock": Buffered(2, TAU), "weighting": Identical()},
        "Buffered with Identical",
        "d_i = p_i / f_i",
        "TimeBased()",
    ),
    "choice": (
        {"sampler": PowerOfChoice(2, 4)},
        "power-of-choice is biased",
        "largest loss",
        "MD(2)",
    ),
    "exp": (
        {"weighting": Exp(0.2)},
        "Exp minimises a surrogate",
        "improve most on their own data count less",
        "Proportional()",
    ),
    "soft max": (
        {"weighting": SoftMax(2.0)},
        "SoftMax minimises a surrogate",
        "larger losses count more",
        "temperature ≥",
    ),
    "soft min": (
        {"weighting": SoftMin(2.0)},
        "SoftMin minimises a surrogate",
        "smaller losses count more",
        "temperature ≥",
    ),
    "max": (
        {"weighting": Max(1)},
        "Max minimises a surrogate",
        "larger losses count more",
        "Proportional()",
    ),
    "poisson": (
        {"sampler": Poisson(4)},
        "cannot run",
        "m p = 2, above 1",
        "choose m <= 2, or MD(4)",
    ),
    "late": (
        {"clock": Asynchronous(TAU), "weighting": Discount(TimeBased())},
        "Asynchronous with Discount",
        "answer more often",
        "TimeBased()",
    ),
}


QUICK_FLAGGED = ["uniform", "asynchronous", "soft max", "poisson"]


@pytest.mark.parametrize("name", thorough_except(QUICK_FLAGGED, FLAGGED))
def test_flagged_with_reason_and_fix(name: str) -> None:
    parts, about, reason, fix = FLAGGED[name]
    found = explained(**parts)
    right = [r for r in found.remarks if about in r.about]
    assert len(right) == 1
    assert reason in right[0].reason
    assert fix in right[0].fix
    assert all(
        part in found.warnings[found.remarks.index(right[0])]
        for part in (about, reason, fix)
    )
    assert (
        name == "uniform" or found.unbiased is False
    )  # uniform sampling is noisy, not biased


def test_unequal_local_steps_are_flagged() -> None:
    found = poise.explain(
        DIGITS, LOGISTIC, SGD(lr=0.1, epochs=1, batch_size=16), estimate=False
    )
    assert [r.about for r in found.remarks] == ["unequal local steps"]
    steps = -(-DIGITS.sizes // 16)
    assert np.allclose(
        found.objective, DIGITS.importance * steps / (DIGITS.importance @ steps)
    )
    assert "steps=" in found.remarks[0].fix
    assert (
        poise.explain(
            DIGITS, LOGISTIC, SGD(lr=0.1, steps=3, batch_size=16), estimate=False
        ).warnings
        == ()
    )


@pytest.mark.thorough
def test_uniform_with_steady_weights_is_not_worth_a_word() -> None:
    equal = poise.quadratics(OPTIMA)
    assert (
        poise.explain(
            equal, equal.task, SGD(lr=0.1, steps=1), sampler=Uniform(2), estimate=False
        ).warnings
        == ()
    )
    some = poise.quadratics(OPTIMA[:4], sizes=[1, 2, 3, 4])
    found = poise.explain(
        some, some.task, SGD(lr=0.1, steps=1), sampler=Uniform(2), estimate=False
    )
    assert (
        "sum to 1 only on average" in found.warnings[0]
    )  # Σ p² = 0.3 <= 1/3, but the sum varies by 0.26
    assert np.sqrt(
        Uniform(2).statistics(some.importance).sum_variance
    ) == pytest.approx(0.258, abs=1e-3)


# estimates, against other ways to the same number -------------------------------------------------


def losses() -> np.ndarray:
    return np.asarray(FED.curvature / 2 * np.square(OPTIMA).sum(axis=1))


def test_soft_max_over_everyone_is_the_formula_at_the_first_losses() -> None:
    found = explained(weighting=SoftMax(20.0))
    raised = P * np.exp(losses() / 20)
    assert np.allclose(found.objective, raised / raised.sum(), rtol=1e-9)
    assert found.chi2 == pytest.approx(float((P**2 / found.objective).sum() - 1))
    assert found.weight_range == pytest.approx(
        ((found.objective / P).min(), (found.objective / P).max())
    )


@pytest.mark.parametrize(
    "sampler",
    thorough_except([Uniform(3)], [MD(2), Uniform(3), PowerOfChoice(2, 3)]),
    ids=lambda s: s.name,
)
def test_estimated_weights_lie_in_their_intervals(sampler: Any) -> None:
    """Against 10 000 cohorts drawn and weighed here; 5 standard errors of both sides together."""
    weighting = SoftMax(30.0)
    found = explained(sampler=sampler, weighting=weighting)
    setting, past = (
        Setting(5, np.array(SIZES), P),
        History(last_loss=dict(enumerate(losses().tolist()))),
    )
    rows = np.zeros((10_000, 5))
    for n, row in enumerate(rows):
        cohort = sampler.draw(setting, generator(1, "test", n), n, past)
        row[cohort.clients] = weighting.coefficients(
            cohort.weights, loss_before=losses()[cohort.clients]
        )
    error = rows.std(axis=0) / np.sqrt(len(rows)) + found.scheme.half_width / 1.96
    assert (np.abs(rows.mean(axis=0) - found.mean) <= 5 * error + 1e-12).all()
    assert found.scheme.half_width.max() < 0.05
    assert "estimated" in found.scheme.method


def test_estimates_say_so() -> None:
    found = explained(sampler=Uniform(2), weighting=SoftMax(5.0))
    assert any("simulated aggregations" in note for note in found.notes)
    low, high = found.chi2_interval
    assert 0 < low <= found.chi2 * 1.2
    assert high >= low


def test_times_of_traces_are_simulated() -> None:
    trace = Trace([(i, k * 0.5, TAU[i]) for i in range(5) for k in range(400)])
    found = explained(clock=Asynchronous(trace), weighting=Identical())
    assert found.scheme.method.startswith("estimated")
    assert found.remarks[0].fix == "use TimeBased(times='estimated')"


# the rest of an explanation -----------------------------------------------------------------------


@pytest.mark.thorough
def test_schedule_communication_and_time_are_those_of_the_run() -> None:
    """Over whole cycles of the schedule; what was counted may end within one, and is off by that
    share at most."""
    for clock, cycle in ((FixedWindow(0.4, TAU), 6), (Asynchronous(TAU), 94)):
        found = explained(clock=clock, weighting=TimeBased(), rounds=94 * 6)
        records: list[Any] = []
        run = poise.train(
            FED,
            FED.task,
            SGD(lr=0.001, steps=2),
            clock=clock,
            weighting=TimeBased(),
            rounds=94 * 6,
            callbacks=[records.append],
            evaluate_every=1000,
        )
        assert (found.rounds, found.window) == (94 * 6, cycle)
        share = cycle / found.scheme.schedule.aggregations
        assert found.time == pytest.approx(run.times[-1], rel=share)
        assert found.bytes_up == pytest.approx(
            sum(r.bytes_up for r in records), rel=share
        )
        assert found.bytes_down == pytest.approx(
            sum(r.bytes_down for r in records), rel=share
        )
    timed = explained(clock=FixedWindow(0.4, TAU), weighting=TimeBased(), time=8.0)
    assert (timed.rounds, timed.window) == (20, 6)
    assert np.allclose(timed.scheme.balance, np.array([3, 2, 2, 1, 1]) * P)


def test_conditions_and_statistics() -> None:
    found = explained(sampler=MD(4))
    held = {a.text.split(" [")[0]: a.holds for a in found.conditions}
    assert held["E[ω_i] = p_i"]
    assert held["every client takes part in every round"] is False
    data = found.as_data()
    assert data["sampler"]["Sigma"] == pytest.approx((1 - P @ P) / 4)
    assert data["sampler"]["gamma"] == pytest.approx(0.25)
    assert "unbiased: training minimises the requested objective" in str(found)


def test_bounds_on_a_convex_task_and_their_advice() -> None:
    solver = SGD(lr=0.01, steps=4, weight_decay=0.1)
    found = poise.explain(DIGITS, LOGISTIC, solver, rounds=50)
    assert set(found.terms) == {
        "loss gap of FedProx, fixed rate",
        "loss gap of FedProx, falling rate",
        "loss gap of FedProx, own rate",
        "mean squared gradient with sampled clients",
    }
    assert found.constants.convexity.value == 0.1
    assert any(text.startswith("local steps") for text in found.advice)
    soft = poise.explain(DIGITS, LOGISTIC, solver, weighting=SoftMax(1.0), rounds=50)
    assert list(soft.terms) == [
        "loss gap with skewed weights",
        "loss gap with weights that vary over time",
        "loss gap with skewed weights, own rate",
        "loss gap with weights that vary over time, own rate",
    ]
    assert "at the optimum of the requested objective" in soft.warnings[0]
    assert any(text.startswith("temperature") for text in soft.advice)
    assert (
        "Σ p²"
        in poise.explain(DIGITS, LOGISTIC, solver, sampler=MD(3), rounds=50).advice[0]
    )
    fix = {"clock": FixedWindow(0.5, "F80"), "weighting": TimeBased()}
    late = poise.explain(DIGITS, LOGISTIC, solver, **fix, rounds=50)  # type: ignore[arg-type]
    assert list(late.terms) == ["mean loss gap with stale updates"]
    assert any(text.startswith("window") for text in late.advice)


def test_turns_are_advised_where_the_weights_of_windows_sum_to_little_and_much() -> (
    None
):
    quad = poise.quadratics(np.arange(6.0).reshape(-1, 1))
    solver = SGD(lr=0.1, steps=1)

    two_speeds = [0.4, 0.4, 1.0, 1.0, 1.0, 1.0]

    def told(
        weighting: Any = TimeBased(),
        dt: float = 0.5,
        times: Any = two_speeds,
        **options: Any,
    ) -> list[str]:
        clock = FixedWindow(dt, times, **options)
        found = poise.explain(
            quad, quad.task, solver, clock=clock, weighting=weighting, rounds=20
        )
        return [text for text in found.advice if text.startswith("stagger")]

    # by hand: 2/6 in odd windows, 2/6 + 4 * 2/6 in even ones
    (text,) = told()
    assert "0.333 … 1.67" in text
    assert not told(stagger=True)
    assert not told(weighting=Identical())
    assert told(TimeBased("estimated"))
    # by hand: six clients of three windows, 6 * 3/6 in every third window, 0 in others
    (slow,) = told(dt=0.4, times=[1.0] * 6)
    assert "0 … 3;" in slow
    assert not told(dt=1.0, times=[1.0] * 6)


def test_populations_on_demand_are_probed() -> None:
    many = poise.federation(
        "digits",
        partition="imbalanced",
        clients=5000,
        on_demand=True,
        samples_per_client=40,
        ratios=[1.0, 0.01],
    )
    found = poise.explain(
        many,
        poise.task("mlp", hidden=8),
        SGD(lr=0.1, steps=3, batch_size=8),
        sampler=Uniform(10),
        weighting=Exp(0.05),
    )
    assert len(found.objective) == 5000
    assert any("of 5,000 clients" in note for note in found.notes)
    assert any("Exp minimises a surrogate" in w for w in found.warnings)


class Favourites:
    """A user's own sampler, which always asks the same two."""

    needs = frozenset[str]()

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def draw(self, setting: Setting, rng: Any, round: int, past: History) -> Cohort:
        return Cohort(np.array([0, 1]), np.array([0.5, 0.5]))


def test_a_biased_part_of_the_users_own_is_flagged() -> None:
    found = explained(sampler=Favourites())
    assert found.objective.tolist() == [0.5, 0.5, 0, 0, 0]
    assert "Favourites with Proportional" in found.warnings[0]
    assert found.chi2 == np.inf


@pytest.mark.thorough
def test_bounds_are_given_for_the_solvers_that_they_speak_of() -> None:
    names = {
        "sgd": [
            "loss gap of FedProx, fixed rate",
            "loss gap of FedProx, falling rate",
            "loss gap of FedProx, own rate",
            "mean squared gradient with sampled clients",
        ],
        "prox": [
            "loss gap of FedProx, fixed rate",
            "loss gap of FedProx, falling rate",
            "loss gap of FedProx, own rate",
        ],
        "perturbed": [
            "loss gap of the perturbed gradient, fixed rate",
            "loss gap of the perturbed gradient, falling rate",
            "loss gap of the perturbed gradient, own rate",
        ],
        "scaffold": [],
    }
    solvers = (
        SGD(lr=0.01, steps=2),
        Prox(0.1, lr=0.01, steps=2),
        Perturbed(0.5, lr=0.01, steps=2),
    )
    for solver in (*solvers, Scaffold(lr=0.01, steps=2)):
        found = poise.explain(FED, FED.task, solver, rounds=20)
        assert list(found.terms) == names[solver.name]  # type: ignore[attr-defined]
        assert found.terms_at(40).keys() == found.terms.keys()


def test_bounds_with_constant_weights_take_their_range() -> None:
    """[Mansour 2022, eq. 13] by hand: 8 L Gamma/(3 mu) (Pi/pi - 1), and (Pi - pi) Gamma in the
    error of [Exp-α 2023, Thm 1]."""
    optima = [[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0]]
    fed = poise.quadratics(optima, curvature=[1.0, 0.5, 1.0])
    solver = SGD(lr=0.02, steps=2)
    found = poise.explain(fed, fed.task, solver, weighting=Adjacency(), rounds=20)
    kappa = found.mean / fed.importance
    assert kappa.min() < 0.9, "the graph is not even"
    assert found.constants is not None
    spread = found.constants.heterogeneity.value
    skewed = found.terms["loss gap with skewed weights"]
    by_hand = 8 * spread / (3 * 0.5) * (kappa.max() / kappa.min() - 1)
    assert skewed["error"] == pytest.approx(by_hand, rel=1e-5)
    varying = found.terms["loss gap with weights that vary over time"]
    by_hand = 2 / 0.5 * spread * (kappa.max() - kappa.min())
    assert varying["error"] == pytest.approx(by_hand, rel=1e-5)
    far = found.constants.distance.value
    own = found.terms["loss gap with skewed weights, own rate"]
    left = (1 - 0.02 * 0.5 * (1 + 0.375 * kappa.min())) ** (2 * 20)  # E T steps
    assert own["start"] == pytest.approx(left * far / 2)
    own = found.terms["loss gap with weights that vary over time, own rate"]
    left = (1 - 0.02 * 0.5) ** (2 * 20)
    assert own["start"] == pytest.approx(left * far / 2)
    squared = found.constants.gradient.value
    assert own["drift"] == pytest.approx(8 * 0.02**2 * squared * (1 - left) / 0.01 / 2)
    ranges = [a for a in skewed.assumptions if a.text.startswith("κ_i")]
    assert [a.holds for a in ranges] == [True]
    assert not any("bounds with weights" in note for note in found.notes)
    only_one = poise.explain(fed, fed.task, solver, weighting=Max(1), rounds=20)
    assert "loss gap with skewed weights" not in only_one.terms, "pi is 0"
    largest = only_one.terms["loss gap with weights that vary over time"]
    by_hand = 2 / 0.5 * spread * (only_one.mean / fed.importance).max()
    assert largest["error"] == pytest.approx(by_hand, rel=1e-5)
    assert any("bounds with weights: they assume" in note for note in only_one.notes)


def test_bounds_say_whether_their_learning_rate_is_that_of_the_run() -> None:
    """L = 1: [Buttaci 2024, Thm 4.1] has the rate 1/(2 L E) = 1/4, Lemma B.1 any up to 1/2."""
    fed = poise.quadratics([[0.0], [4.0]])

    def broken(rate: float, **options: Any) -> dict[str, bool]:
        solver = SGD(lr=rate, steps=2, **options)
        found = poise.explain(fed, fed.task, solver, rounds=20)
        return {
            name: any("rate" in a.text and a.holds is False for a in terms.assumptions)
            for name, terms in found.terms.items()
            if "FedProx" in name
        }

    fixed, falling, own = (f"loss gap of FedProx, {x} rate" for x in RATES)
    assert broken(0.25) == {fixed: False, falling: True, own: False}
    assert broken(0.1) == {fixed: True, falling: True, own: False}
    assert broken(0.6) == {fixed: True, falling: True, own: True}
    assert broken(0.25, decay=0.9) == {fixed: True, falling: False}


def test_weights_of_the_last_stage_are_not_those_of_all_rounds() -> None:
    """A run that begins with SoftMax(1) is no FedAvg, and its weights have another range."""
    optima = [[4.0, 0.0], [0.0, 3.0], [-2.0, -1.0]]
    fed = poise.quadratics(optima, curvature=[1.0, 0.5, 1.0])
    solver = SGD(lr=0.02, steps=2)
    begin = (10, SoftMax(1.0))
    staged = Switch([begin, (None, Proportional())])
    found = poise.explain(fed, fed.task, solver, weighting=staged, rounds=20)
    own = found.terms["loss gap of FedProx, own rate"]
    broken = [a.text for a in own.assumptions if a.holds is False]
    assert broken == ["the mean weights are the importance"]
    plain = poise.explain(fed, fed.task, solver, rounds=20)
    assert plain.terms["loss gap of FedProx, own rate"].holds is None
    staged = Switch([begin, (None, Adjacency())])
    found = poise.explain(fed, fed.task, solver, weighting=staged, rounds=20)
    own = found.terms["loss gap with skewed weights, own rate"]
    assert [a.holds for a in own.assumptions if a.text.startswith("κ_i")] == [None]
    assert any("bounds with weights" in note for note in found.notes)


def test_the_bound_at_the_rate_of_the_run_by_hand() -> None:
    """L/2 (kappa^T D + A (1 - kappa^T)/(1 - kappa)), [Buttaci 2024, Lemma B.1]: two clients with
    (w - o)^2/2, L = mu = 1, rate 0.1, E = 2, so that kappa = 0.81 for FedAvg."""
    fed = poise.quadratics([[0.0], [4.0]])
    for pull, kappa in ((0.0, 0.81), (1.0, (1 + 0.64) / 2)):
        solver = Prox(pull, lr=0.1, steps=2)
        found = poise.explain(fed, fed.task, solver, rounds=20)
        assert found.constants is not None
        own = found.terms["loss gap of FedProx, own rate"]
        series = (1 - kappa**20) / (1 - kappa)
        spread = 2.0  # both clients lose 2^2/2 at w* = 2
        by_hand = {
            "start": kappa**20 * 4 / 2,
            "noise": 0.0,
            "heterogeneity": 6 * 0.01 * 2 * spread * series / 2,
            "drift": 8 * 0.01 * 8 * found.constants.gradient.value * series / 2,
        }
        assert own.values == pytest.approx(by_hand, rel=1e-6)


RATES = ("fixed", "falling", "own")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"solver": SGD(lr=0.01, steps=2, momentum=0.9)}, "local momentum 0.9"),
        ({"solver": SGD(lr=0.01, steps=2, clip=1.0)}, "clipped gradients"),
        ({"solver": Scaffold(lr=0.01, steps=2)}, "Scaffold adds its own terms"),
        ({"solver": FedFor(0.1, lr=0.01, steps=2)}, "FedFor adds its own terms"),
        ({"server": poise.servers.Adam(lr=0.1)}, "the server Adam"),
        ({"server": poise.servers.Add(lr=0.5)}, "the server's rate 0.5"),
    ],
)
@pytest.mark.parametrize("weighting", [Proportional(), SoftMax(1.0)])
def test_no_bound_is_printed_that_does_not_cover_the_parts(
    parts: dict[str, Any], reason: str, weighting: Any
) -> None:
    composed = {"solver": SGD(lr=0.01, steps=2), "weighting": weighting, **parts}
    found = poise.explain(FED, FED.task, rounds=20, **composed)
    together = [name for name in found.terms if "sampled clients" not in name]
    assert together == []
    assert f"their proofs do not cover {reason}" in str(found)
    plain = poise.explain(
        FED, FED.task, SGD(lr=0.01, steps=2), weighting=weighting, rounds=20
    )
    assert [name for name in plain.terms if "sampled clients" not in name]
    assert "do not cover" not in str(plain)


@pytest.mark.parametrize(
    ("solver", "reason"),
    [
        (
            Prox(0.1, lr=0.01, steps=2),
            "weights from losses together with FedProx's pull",
        ),
        (
            Perturbed(0.5, lr=0.01, steps=2),
            "weights from losses together with the perturbed gradient",
        ),
    ],
)
def test_no_bound_of_weights_is_printed_for_steps_that_are_no_plain_sgd(
    solver: Any, reason: str
) -> None:
    """The proofs of [Mansour 2022] and [Exp-α 2023] have the gradient alone in a step."""
    weighted = poise.explain(FED, FED.task, solver, weighting=SoftMax(1.0), rounds=20)
    assert not [name for name in weighted.terms if "sampled clients" not in name]
    assert f"their proofs do not cover {reason}" in str(weighted)


def test_parts_that_do_not_fit_are_said_to() -> None:
    found = explained(sampler=MD(2), clock=Asynchronous(TAU), weighting=TimeBased())
    assert found.unbiased is None
    assert "cannot run" in found.warnings[0]
    assert np.isnan(found.objective).all()


def test_the_mean_of_keeping_absent_clients() -> None:
    """E[omega] of FedAvg's first rule, by drawing."""
    setting, total = Setting(5, np.array(SIZES), P), np.zeros(5)
    for n in range(4000):
        cohort = Uniform(2, absent="keep").draw(
            setting, generator(0, "test", n), n, History()
        )
        total[cohort.clients] += cohort.weights
    mean, error = total / 4000, P * np.sqrt(0.4 * 0.6 / 4000)
    assert (
        np.abs(mean - explained(sampler=Uniform(2, absent="keep")).mean) <= 5 * error
    ).all()


@pytest.mark.parametrize(
    "options",
    thorough_except([{"deadline": 1.5}], [{"deadline": 1.5}, {"enough": 3}]),
    ids=str,
)
def test_whoever_is_left_out_of_every_round_is_not_what_is_minimised(
    options: Any,
) -> None:
    """Times of 1, 1, 1 and 2: the last client is never in time, by hand."""
    fed = poise.quadratics([[0.0], [1.0], [2.0], [5.0]])
    clock = poise.clocks.Synchronous([1.0, 1.0, 1.0, 2.0], **options)
    found = poise.explain(
        fed, fed.task, poise.solvers.SGD(lr=0.1, steps=1), clock=clock
    )
    assert "E[ω]: 0.25, 0.25, 0.25, 0 " in str(found)
    assert "holds: every client takes part in every round" not in str(found)
    assert "unbiased" not in str(found)


# beyond the theory --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beyond", "name"),
    [
        ({"aggregator": Median()}, "Median"),
        pytest.param({"channel": TopK(0.5)}, "TopK", marks=pytest.mark.thorough),
    ],
)
def test_no_bound_is_given_for_what_is_no_weighted_sum(
    beyond: dict[str, Any], name: str
) -> None:
    fed = poise.quadratics(np.array([[0.0], [1.0], [4.0]]))
    solver = SGD(lr=0.1, steps=2)
    plain, other = (
        poise.explain(fed, fed.task, solver, rounds=20, **given)
        for given in ({}, beyond)
    )
    assert plain.terms
    assert plain.unbiased
    assert not other.terms
    assert other.unbiased is None
    assert f"unknown: {name}: " in str(other)
    assert np.isnan(other.chi2)
    assert not other.advice
    assert not any(a.holds for a in other.conditions)
    assert any(
        name in w and "no closed form or bound applies" in w for w in other.warnings
    )
    assert any(not a.holds for a in other.conditions)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"clock": poise.clocks.Buffered(2, TAU)}, "cover Buffered without windows"),
        (
            {"clock": Asynchronous(poise.clocks.Exponential(TAU))},
            "work times that are not fixed",
        ),
        (
            {"clock": Asynchronous(TAU), "weighting": TimeBased("elapsed")},
            "weights that differ from answer to answer",
        ),
    ],
)
def test_the_bound_for_late_answers_says_what_it_does_not_cover(
    parts: dict[str, Any], reason: str
) -> None:
    solver = SGD(lr=0.01, steps=2)
    composed = {"weighting": TimeBased(), **parts}
    found = poise.explain(FED, FED.task, solver, rounds=20, **composed)
    assert not found.terms
    assert reason in str(found)
    covered = poise.explain(
        FED,
        FED.task,
        solver,
        clock=Asynchronous(TAU),
        weighting=TimeBased(),
        rounds=20,
    )
    assert covered.terms
    assert "ch. 4]: not evaluated" not in str(covered)


def test_nothing_is_said_of_a_weighting_that_reads_the_updates_themselves() -> None:
    class Outliers:
        """Clients whose update points away from the others count nothing."""

        needs = frozenset[str]()

        def fit(self, setting: Any) -> None: ...

        def coefficients(self, updates: Any) -> np.ndarray:
            agree = updates.gram.sum(axis=1) > 0
            return updates.base_weights * agree

    fed = poise.quadratics(np.array([[1.0], [1.0], [1.0], [-1.0]]))
    found = poise.explain(
        fed, fed.task, SGD(lr=0.1, steps=1), weighting=Outliers(), rounds=20
    )
    assert found.unbiased is None
    assert "depend on the updates themselves" in found.warnings[0]
    run = poise.train(
        fed, fed.task, SGD(lr=0.1, steps=1), weighting=Outliers(), rounds=2
    )
    assert run.weights[0].tolist() == [0.25, 0.25, 0.25, 0.0]
    with pytest.raises(poise.PoiseError, match="updates themselves are not given"):
        poise.core.weights.weigh(
            Outliers(), poise.core.round_updates.RoundUpdates.of_columns([0.5, 0.5])
        )


def test_personal_layers_leave_no_one_model_to_speak_of() -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    options: Any = {"solver": SGD(lr=0.1, steps=1, batch_size=8), "estimate": False}
    found = poise.explain(
        fed, poise.task("mlp", hidden=4), personal=poise.personal.Layers("3"), **options
    )
    assert found.unbiased is None
    assert "its own model" in found.warnings[0]


def test_a_weighting_that_reads_updates_is_shown_their_lengths() -> None:
    fed = poise.quadratics(np.array([[1.0], [1.0], [40.0]]))
    found = poise.explain(
        fed, fed.task, SGD(lr=0.1, steps=2), weighting=Clipped(0.5), rounds=20
    )
    assert found.mean[2] < found.mean[0] / 5, "its update is long"
    assert any("Clipped" in note and "lengths" in note for note in found.notes)


def test_a_subclass_with_draws_of_its_own_is_simulated() -> None:
    class First(Uniform):
        def draw(self, *arguments: Any) -> Cohort:
            return Cohort(np.array([0]), np.ones(1))

    fed = poise.quadratics(np.array([[0.0], [1.0], [4.0]]))
    found = poise.explain(
        fed, fed.task, SGD(lr=0.1, steps=2), sampler=First(1), rounds=20
    )
    assert found.mean.tolist() == [1.0, 0.0, 0.0]
