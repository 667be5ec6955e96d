"""Psi against the training without a client or a group, computed by independent code.

The other clients keep their draws, and their coefficients are scaled to the same sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import poise
from poise import clocks, samplers, servers, solvers
from poise.core.curvature import curvature_of
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.tasks.oracle import SampleOracle
from poise.unlearning import Budget, UnlearningPlan, sensitivity
from poise.unlearning.groups import group_sensitivity

LocalWork = Callable[[int, np.ndarray], np.ndarray]


@dataclass
class Case:
    """A run, the local work of its clients by hand, and how it fades."""

    run: poise.Run
    work: LocalWork
    rate: float
    strong_convexity: float | None = None


def distances(case: Case, removed: set[int]) -> np.ndarray:
    """The distance between the run and the training without these clients, (R + 1,)."""
    run = case.run
    model = run.models(0).astype(np.float64)
    apart = [0.0]
    rows = run.contributions
    for n in range(run.rounds):
        here = rows[rows["round"] == n]
        stay = [int(c) not in removed for c in here["client"]]
        weights = here["coefficient"].astype(np.float64)
        rest = weights[stay].sum()
        step = np.zeros_like(model)
        if rest != 0:
            scale = weights.sum() / rest
            for client, weight in zip(here["client"][stay], weights[stay], strict=True):
                step += scale * weight * (case.work(int(client), model) - model)
        model = model + case.rate * step
        apart.append(float(np.linalg.norm(run.models(n + 1) - model)))
    return np.array(apart)


def bounded(apart: np.ndarray, psi: np.ndarray) -> bool:
    return bool((apart <= psi * (1 + 1e-9) + 1e-10).all())


def drawn_sampler(draw: Any, clients: int, importance: np.ndarray) -> Any:
    m = draw(st.integers(1, clients))
    kinds: list[Any] = [
        samplers.Full(),
        samplers.Uniform(m),
        samplers.MD(m),
        samplers.Binomial(m),
        samplers.Poisson(draw(st.integers(1, max(1, int(1 / importance.max()))))),
    ]
    return draw(st.sampled_from(kinds))


def drawn_parts(draw: Any, clients: int) -> tuple[dict[str, Any], np.ndarray]:
    """Sampler, server, clock with drop-outs, seed and rounds of a run."""
    sizes = np.array(
        draw(st.lists(st.integers(1, 5), min_size=clients, max_size=clients))
    )
    parts: dict[str, Any] = {
        "sampler": drawn_sampler(draw, clients, sizes / sizes.sum()),
        "server": servers.Add(lr=draw(st.sampled_from([1.0, 0.5, 0.9]))),
        "seed": draw(st.integers(0, 10_000)),
        "rounds": draw(st.integers(1, 8)),
    }
    if draw(st.booleans()):
        times = draw(st.lists(st.floats(0.5, 1.5), min_size=clients, max_size=clients))
        parts["clock"] = clocks.Synchronous(
            clocks.Exponential(times), deadline=draw(st.floats(0.3, 2.0))
        )
    return parts, sizes


@st.composite
def quadratic_cases(draw: Any) -> Case:
    clients = draw(st.integers(2, 5))
    parts, sizes = drawn_parts(draw, clients)
    number = st.floats(-10, 10)
    optima = np.array(
        draw(st.lists(st.tuples(number, number), min_size=clients, max_size=clients))
    )
    curvature = np.array(
        draw(st.lists(st.floats(0.1, 3), min_size=clients, max_size=clients))
    )
    decay = draw(st.sampled_from([0.0, 0.3]))
    steps = draw(st.integers(1, 3))
    lr = draw(st.floats(0.1, 1.0)) / (curvature.max() + decay)
    quad = poise.quadratics(optima, curvature, sizes)
    run = poise.train(
        quad,
        quad.task,
        solver=solvers.SGD(lr=lr, steps=steps, weight_decay=decay),
        keep="all",
        **parts,
    )

    def work(client: int, model: np.ndarray) -> np.ndarray:
        for _ in range(steps):
            slope = curvature[client] * (model - optima[client]) + decay * model
            model = model - lr * slope
        return model

    fades = draw(st.booleans()) and lr * (curvature.min() + decay) < 1
    mu = float(curvature.min()) if fades else None
    return Case(run, work, parts["server"].lr, mu)


@st.composite
def softmax_cases(draw: Any) -> Case:
    clients, classes, features = draw(st.integers(2, 4)), 3, 2
    parts, sizes = drawn_parts(draw, clients)
    steps = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([0.5, 3.0]))
    x = [(scale * rng.normal(size=(n, features))).astype(np.float32) for n in sizes]
    y = [rng.integers(0, classes, n) for n in sizes]
    decay = draw(st.sampled_from([0.0, 0.2]))
    bound = max(
        np.linalg.eigvalsh(with_bias(a).T @ with_bias(a))[-1] / (2 * len(a)) for a in x
    )
    lr = draw(st.floats(0.2, 1.0)) / (bound + decay)
    owners = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    pool = np.concatenate(x), np.concatenate(y)
    fed = poise.federation(pool, owners, classes=classes, test_share=0.0)
    run = poise.train(
        fed,
        poise.task("logistic", dtype="float64"),
        solver=solvers.SGD(lr=lr, steps=steps, weight_decay=decay),
        keep="all",
        **parts,
    )

    def work(client: int, model: np.ndarray) -> np.ndarray:
        rows, labels = with_bias(x[client]), y[client]
        for _ in range(steps):
            model = model - lr * (
                softmax_gradient(model, rows, labels, classes) + decay * model
            )
        return model

    return Case(run, work, parts["server"].lr)


def with_bias(x: np.ndarray) -> np.ndarray:
    return np.hstack([x.astype(np.float64), np.ones((len(x), 1))])


def softmax_gradient(
    model: np.ndarray, rows: np.ndarray, labels: np.ndarray, classes: int
) -> np.ndarray:
    """The gradient of the mean cross-entropy; weights (C, F) come before the biases (C,)."""
    features = rows.shape[1] - 1
    weights = model[: classes * features].reshape(classes, features)
    logits = rows[:, :-1] @ weights.T + model[classes * features :]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    slope = chances.T @ rows / len(rows)
    return np.concatenate([slope[:, :-1].reshape(-1), slope[:, -1]])


CASES = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check(case: Case) -> None:
    psi = sensitivity(case.run, strong_convexity=case.strong_convexity)
    for client in range(case.run.clients):
        assert bounded(distances(case, {client}), psi[:, client]), client
    group = list(range(max(1, case.run.clients // 2)))
    budget = Budget(strong_convexity=case.strong_convexity)
    together = group_sensitivity(case.run, group, budget)
    assert bounded(distances(case, set(group)), together.values), group


@CASES
@given(quadratic_cases())
def test_quadratics_stay_within_psi(case: Case) -> None:
    check(case)


@CASES
@given(softmax_cases())
def test_softmax_regression_stays_within_psi(case: Case) -> None:
    check(case)


def test_several_steps_on_batches_may_stretch_beyond_an_average() -> None:
    """Coefficients of 1.98 and two projections: one step or one Hessian would not stretch."""
    angle = np.arccos((65 * np.cos(np.deg2rad(52)) - 1) / 64)
    x = np.array([[8, 0], [8 * np.cos(angle), 8 * np.sin(angle)], [8, 0], [8, 0]])
    x = x.astype(np.float32)
    y = np.array([0, 0, 3, 3], dtype=np.float32)
    owners = [np.array([0, 1]), np.array([2, 3])]
    fed = poise.federation((x, y), owners, test_share=0.0, importance=[0.99, 0.01])
    lr = 1 / (2 * float((with_bias(x) ** 2).sum(axis=1).max()))
    run = poise.train(
        fed,
        poise.task("logistic", dtype="float64"),
        solver=solvers.SGD(lr=lr, steps=2, batch_size=1),
        sampler=samplers.Uniform(1),
        rounds=2,
        seed=4,
        start=np.zeros(3),
        keep="all",
    )
    assert run.contributions["client"].tolist() == [1, 0]
    total = float(run.contributions["coefficient"][1])

    def step(model: np.ndarray, order: tuple[int, int]) -> np.ndarray:
        moved = model
        for row in with_bias(x)[list(order)]:
            moved = moved - lr * 2 * (row @ moved) * row
        return model + total * (moved - model)

    first, second = run.models(1), run.models(2)
    order = next(o for o in ((0, 1), (1, 0)) if np.allclose(step(first, o), second))
    apart = float(np.linalg.norm(second - step(run.models(0), order)))
    assert apart > 1.3 * np.linalg.norm(first), "the second round stretches"
    assert apart <= sensitivity(run)[-1, 1]
    assert sensitivity(run)[-1, 1] <= 5 / 3 * np.linalg.norm(first)


def test_a_client_alone_in_its_cohort_does_not_fade() -> None:
    """Without the client the round makes no step, so nothing contracts: true distance 2.71."""
    quad = poise.quadratics([[10.0], [0.0]])
    run = poise.train(
        quad,
        quad.task,
        solver=solvers.SGD(lr=0.1, steps=1),
        sampler=samplers.Uniform(1),
        rounds=3,
        keep="all",
        seed=next(s for s in range(100) if draws(s) == [0, 0, 0]),
    )
    psi = sensitivity(run, strong_convexity=1.0)
    apart = abs(run.model[0])  # without client 0 the model stays at 0
    assert apart == pytest.approx(2.71)
    assert psi[-1, 0] == pytest.approx(2.71)


def draws(seed: int) -> list[int]:
    quad = poise.quadratics([[10.0], [0.0]])
    run = poise.train(
        quad,
        quad.task,
        solver=solvers.SGD(lr=0.1, steps=1),
        sampler=samplers.Uniform(1),
        rounds=3,
        seed=seed,
    )
    return [int(c) for c in run.contributions["client"]]


FOUR = poise.quadratics(
    [[10.0, 0.0], [9.0, 1.0], [0.0, 3.0], [-2.0, 0.0]], [1.0, 2.0, 1.5, 0.5]
)


def trained(**options: Any) -> poise.Run:
    defaults: dict[str, Any] = {
        "solver": solvers.SGD(lr=0.3, steps=2),
        "sampler": samplers.Uniform(3),
        "rounds": 12,
        "keep": "all",
    }
    return poise.train(FOUR, FOUR.task, **{**defaults, **options})


@pytest.mark.parametrize(
    "sampler", [samplers.Uniform(3), samplers.MD(4), samplers.Full()]
)
def test_the_three_sources_of_a_groups_sensitivity_agree(sampler: Any) -> None:
    """Declared and stored are the definition; the bound is above both and below no tighter sum."""
    plan = UnlearningPlan(sigma=100.0, measured_groups=((0, 1),))
    declared = group_sensitivity(trained(sampler=sampler, unlearning=plan), [1, 0])
    stored = group_sensitivity(trained(sampler=sampler, keep_updates=True), [0, 1])
    bound = group_sensitivity(trained(sampler=sampler), [0, 1])
    sources = [known.source for known in (declared, stored, bound)]
    assert sources == ["measured in training", "stored updates", "bound"]
    assert declared.values == pytest.approx(stored.values, rel=1e-9)
    assert (bound.values >= stored.values - 1e-9).all()
    assert stored.values[-1] > 0


def test_the_largest_sensitivity_of_a_member_is_no_bound_for_a_group() -> None:
    """By hand: steps of 0.1 o_i. The mean of the optima is 5, then 10/3, then 0."""
    quad = poise.quadratics([[10.0], [10.0], [0.0], [0.0]])
    solver = solvers.SGD(lr=0.1, steps=1)
    run = poise.train(quad, quad.task, solver=solver, rounds=1, keep="all")
    assert run.model == pytest.approx([0.5])
    assert sensitivity(run)[-1, :2] == pytest.approx([0.5 - 1 / 3] * 2)
    assert group_sensitivity(run, [0, 1]).values[-1] == pytest.approx(0.5)


def test_a_group_of_one_counts_as_its_client() -> None:
    run = trained(sampler=samplers.MD(3))
    for client in range(4):
        alone = group_sensitivity(run, [client]).values
        assert alone == pytest.approx(sensitivity(run)[:, client], abs=1e-12)


def test_groups_that_are_no_lists_of_clients_are_refused() -> None:
    for groups in ([[]], [[1, 1]], [["a"]], [3]):
        with pytest.raises(InvalidOption, match="group 0"):
            UnlearningPlan.of({"groups": groups})


# eta <= 1/L -------------------------------------------------------------------


def unlearned(lr: float, **options: Any) -> dict[str, Any]:
    run = trained(solver=solvers.SGD(lr=lr, steps=1), sampler=samplers.Full())
    done = poise.unlearn(
        run,
        [0],
        federation=FOUR,
        task=FOUR.task,
        target=0.0,
        min_rounds=1,
        max_rounds=2,
        **options,
    )
    return done.certificate


def test_a_rate_above_one_over_l_gets_no_guarantee() -> None:
    """The largest curvature is 2: eta = 0.5 is the limit, eta = 1.1 is eta L = 2.2."""
    at_the_limit = unlearned(0.5)
    assert at_the_limit["guarantee"]["promised"]
    assert at_the_limit["grounds"]["not proved"] == []
    assert at_the_limit["grounds"]["assumed"] == []
    assert at_the_limit["grounds"]["checked"]["eta L"] == pytest.approx(1.0)
    with pytest.raises(IncompatibleParts, match=r"eta = 1.1 is above 1/L = 0.5"):
        unlearned(1.1)
    heuristic = unlearned(1.1, heuristic=True)
    assert not heuristic["guarantee"]["promised"]
    assert "above 1/L" in heuristic["grounds"]["not proved"][0]


def test_strong_convexity_that_the_losses_do_not_have_gets_no_guarantee() -> None:
    """The smallest curvature of a client is 0.5."""
    assert unlearned(0.3, strong_convexity=0.5)["guarantee"]["promised"]
    with pytest.raises(IncompatibleParts, match=r"only known to be 0.5-strongly"):
        unlearned(0.3, strong_convexity=0.6)


class Deep(poise.Task):
    """Trains another model under the name of a convex one."""

    def _module(self, samples: Any, seed: int) -> nn.Module:
        hidden = nn.Linear(64, 4)
        return nn.Sequential(nn.Flatten(), hidden, nn.Tanh(), nn.Linear(4, 10))


class Ascending(SampleOracle):
    def gradients(self, rows: Any, data: Any, batch: Any, out: Any) -> None:
        super().gradients(rows, data, batch, out)
        out.sub_(rows, alpha=5.0)


class Wrapped(poise.Task):
    def bind(self, federation: Any, device: str = "cpu") -> SampleOracle:
        return Ascending(**vars(super().bind(federation, device)))


@pytest.mark.parametrize("task", [Deep("logistic"), Wrapped("logistic")])
def test_a_subclass_that_replaces_the_model_or_the_gradient_has_no_known_l(
    task: Any,
) -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    oracle = task.bind(fed)
    assert curvature_of(fed, oracle, None) is None
    assert curvature_of(fed, poise.task("logistic").bind(fed), None) is not None


def test_an_oracle_whose_gradient_is_replaced_has_no_known_l() -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    plain = poise.task("logistic").bind(fed)
    assert plain.curvature(None) is not None
    assert curvature_of(fed, Ascending(**vars(plain)), None) is None


def test_losses_that_curve_down_get_no_guarantee() -> None:
    quad = poise.quadratics([[0.0], [4.0], [5.0]])
    quad.curvature[1] = -0.5
    run = poise.train(
        quad, quad.task, solvers.SGD(lr=0.5, steps=1), rounds=3, keep="all"
    )
    with pytest.raises(IncompatibleParts, match="curve down"):
        poise.unlearn(run, [0], federation=quad, task=quad.task)


def test_a_task_without_a_known_l_gets_no_guarantee() -> None:
    fed = poise.federation("digits", clients=4, samples=100)
    run = poise.train(
        fed, poise.task("mlp"), solvers.SGD(0.01, steps=1), rounds=2, keep="all"
    )
    short: dict[str, Any] = {"target": 0.0, "min_rounds": 1, "max_rounds": 2}
    with pytest.raises(IncompatibleParts, match="L, the largest curvature"):
        poise.unlearn(run, [0], **short)
    said = poise.unlearn(run, [0], heuristic=True, **short).certificate
    assert not said["guarantee"]["promised"]
    assert "quadratic" in said["grounds"]["assumed"][0]


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_l_of_softmax_regression_bounds_every_hessian(
    batch_size: int | None, decay: float
) -> None:
    """The Hessian by hand, at random models and batches; one class at logit 0 attains 1/2."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)).astype(np.float32), np.arange(12) % 2
    fed = poise.federation(
        (x, y), [np.arange(6), np.arange(6, 12)], classes=2, test_share=0.0
    )
    oracle = poise.task("logistic", dtype="float64").bind(fed)
    known = oracle.curvature(batch_size)
    assert known is not None
    largest = 0.0
    for owner in (slice(0, 6), slice(6, 12)):
        rows = with_bias(x[owner])
        batches = [rows] if batch_size is None else [rows[k : k + 1] for k in range(6)]
        for batch in batches:
            for model in (np.zeros((2, 3)), *rng.normal(size=(20, 2, 3))):
                largest = max(largest, softmax_hessian(model, batch))
    assert largest <= known.smoothness * (1 + 1e-9)
    assert largest >= 0.999 * known.smoothness, (
        "two classes at equal odds attain the bound"
    )
    traits = solvers.SGD(0.1, steps=1, weight_decay=decay).traits
    assert known.total(traits) == pytest.approx(known.smoothness + decay)


def softmax_hessian(model: np.ndarray, rows: np.ndarray) -> float:
    """The largest eigenvalue of the Hessian of the mean cross-entropy."""
    total = np.zeros((model.size, model.size))
    for row in rows:
        odds = np.exp(model @ row)
        p = odds / odds.sum()
        total += np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row)) / len(rows)
    return float(np.linalg.eigvalsh(total)[-1])


def test_l_and_mu_of_least_squares_are_exact() -> None:
    """Loss (w x + b - y)^2 of x = 1, -1: Hessian 2 X'X/n = 2 I."""
    x, y = np.array([[1.0], [-1.0], [2.0], [0.0]]), np.array([0.0, 1.0, 2.0, 3.0])
    fed = poise.federation((x, y), [[0, 1], [2, 3]], test_share=0.0)
    known = poise.task("logistic").bind(fed).curvature(None)
    assert known is not None
    grams = [np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([[2.0, 1.0], [0.0, 1.0]])]
    eigenvalues = [np.linalg.eigvalsh(2 * g.T @ g / 2) for g in grams]
    assert known.kind == "least-squares"
    assert known.smoothness == pytest.approx(max(e[-1] for e in eigenvalues))
    assert known.convexity == pytest.approx(min(e[0] for e in eigenvalues))
    assert known.exact


def test_weight_decay_fades_by_default_where_the_losses_are_convex() -> None:
    """Eq. 5.11 with mu = 0: every summand fades by (1 - eta lambda)^K per round after it."""
    fed = poise.federation("digits", clients=6, samples=200)

    def psi(task: Any, decay: float) -> Any:
        solver = solvers.SGD(lr=0.02, steps=2, weight_decay=decay)
        run = poise.train(fed, task, solver, rounds=10, keep="all")
        return sensitivity(run), np.diff(measured(run), axis=0)

    logistic = poise.task("logistic")
    faded, moved = psi(logistic, 0.5)
    expected = sum((1 - 0.02 * 0.5) ** (2 * (9 - s)) * moved[s] for s in range(10))
    assert faded[-1] == pytest.approx(expected, rel=1e-6)
    assert (
        psi(poise.task("mlp"), 0.5)[0][-1] == psi(poise.task("mlp"), 0.5)[1].sum(axis=0)
    ).all()


def measured(run: poise.Run) -> np.ndarray:
    """The measurements of a run added up, (R + 1, N)."""
    total = np.zeros((run.rounds + 1, run.clients))
    rows = run.contributions
    for n, client, moved in zip(
        rows["round"], rows["client"], run.measurement("moved"), strict=True
    ):
        total[n + 1, client] += moved
    return np.cumsum(total, axis=0)
