"""poise's parts as strategies of Flower: against hand-computed examples, Flower's own FedAvg, and
poise's servers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from poise import samplers, servers, weightings
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    PoiseError,
    UpdateRefused,
)

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from poise.flower.strategies import Composed, FedExp, FedSoftMax

BIG = 2**64 - 7  # Flower's node ids are unsigned
NODES = (11, 22, BIG)
SIZES = {11: 10, 22: 30, BIG: 60}
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _a_task_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_run_id", "_task_id", "_node_id"):  # messages carry them
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(logging.getLogger("flwr"), "level", logging.ERROR)


class Grid:
    """As much of Flower's Grid as strategies use."""

    def __init__(self, nodes: Iterable[int] = NODES) -> None:
        self.nodes = list(nodes)

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)


def model(value: float = 0.0, dtype: Any = np.float64) -> Arrays:
    return {"w": np.full((2, 2), value, dtype), "b": np.full(2, value, dtype)}


def record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def plain(arrays: ArrayRecord | None) -> Arrays:
    assert arrays is not None
    return {name: array.numpy() for name, array in arrays.items()}


def reply(message: Message, arrays: Arrays, **metrics: Any) -> Message:
    reported = {"num-examples": SIZES[message.metadata.dst_node_id], **metrics}
    named = {name.replace("_", "-"): value for name, value in reported.items()}
    made = Message(
        RecordDict({"arrays": record(arrays), "metrics": MetricRecord(named)}),
        reply_to=message,
    )
    assert made.metadata.src_node_id == message.metadata.dst_node_id
    return made


def asked(
    strategy: FedAvg, arrays: Arrays, number: int = 1, grid: Any = None
) -> list[Message]:
    return list(
        strategy.configure_train(number, record(arrays), ConfigRecord(), grid or Grid())
    )


def omega(strategy: Composed) -> dict[int, float]:
    assert strategy.record is not None
    return {
        strategy.nodes[c.client]: c.coefficient for c in strategy.record.contributions
    }


def trained(rng: np.random.Generator, like: Arrays) -> Arrays:
    return {
        name: values + rng.normal(size=values.shape).astype(values.dtype)
        for name, values in like.items()
    }


def test_soft_max_weights_of_three_replies() -> None:
    strategy = FedSoftMax(temperature=0.5)
    losses = {11: 1.0, 22: 0.5, BIG: 2.0}
    replies = [
        reply(m, model(1.0), loss_before=losses[m.metadata.dst_node_id])
        for m in asked(strategy, model())
    ]
    strategy.aggregate_train(1, replies)
    raised = np.array(
        [0.1 * np.exp(2.0), 0.3 * np.exp(1.0), 0.6 * np.exp(4.0)]
    )  # p_i exp(F_i / T)
    assert np.allclose(
        [omega(strategy)[n] for n in NODES], raised / raised.sum(), rtol=1e-12
    )


def test_exp_weights_of_three_replies() -> None:
    strategy = FedExp(alpha=0.5)
    after = {11: 0.5, 22: 1.0, BIG: 0.9}
    replies = [
        reply(m, model(1.0), loss_before=1.0, loss_after=after[m.metadata.dst_node_id])
        for m in asked(strategy, model())
    ]
    strategy.aggregate_train(1, replies)
    scale = np.array([10, 30, 60]) / (100 / 3)  # s_i = m n_i / sum n_j
    raised = np.array([0.1, 0.3, 0.6]) * np.exp(
        scale * np.array([-0.5, 0.0, -0.1]) / 0.5
    )
    assert np.allclose(
        [omega(strategy)[n] for n in NODES], raised / raised.sum(), rtol=1e-12
    )


def test_the_aggregate_is_the_weighted_sum_of_changes() -> None:
    strategy = Composed(weighting=weightings.Max(k=1))
    losses = {11: 1.0, 22: 3.0, BIG: 2.0}
    replies = [
        reply(m, model(float(k + 5)), loss_before=losses[m.metadata.dst_node_id])
        for k, m in enumerate(asked(strategy, model(4.0)))
    ]
    found, metrics = strategy.aggregate_train(1, replies)
    assert all(
        (values == 6.0).all() for values in plain(found).values()
    )  # node 22 alone counts
    assert metrics is not None
    assert metrics["loss-before"] == pytest.approx(0.1 * 1.0 + 0.3 * 3.0 + 0.6 * 2.0)


def test_without_parts_it_is_flowers_fed_avg() -> None:
    rng = np.random.default_rng(0)
    ours, theirs, mine, other = Composed(), FedAvg(min_train_nodes=3), model(), model()
    for number in (1, 2, 3):
        sent = {m.metadata.dst_node_id: m for m in asked(theirs, other, number)}
        changed = {n: trained(rng, other) for n in NODES}
        theirs_now, their_metrics = theirs.aggregate_train(
            number, [reply(sent[n], changed[n], accuracy=0.5) for n in NODES]
        )
        ours_now, known = ours.aggregate_train(
            number,
            [
                reply(m, changed[m.metadata.dst_node_id], accuracy=0.5)
                for m in asked(ours, mine, number)
            ],
        )
        mine, other = plain(ours_now), plain(theirs_now)
        assert list(mine) == list(other)
        assert all(np.abs(mine[k] - other[k]).max() <= 1e-12 for k in mine)
        assert known == their_metrics


@pytest.mark.parametrize(
    "server",
    [servers.Momentum(beta=0.5), servers.Adam(), servers.Yogi(), servers.Adagrad()],
)
def test_server_optimisers_are_poises(server: Any) -> None:
    rng = np.random.default_rng(1)
    strategy, now = Composed(server=server), model()
    theta = torch.zeros(6, dtype=torch.float64)
    state = server.init(theta)
    for number in (1, 2, 3):
        changed = {n: trained(rng, now) for n in NODES}
        found, _ = strategy.aggregate_train(
            number,
            [
                reply(m, changed[m.metadata.dst_node_id])
                for m in asked(strategy, now, number)
            ],
        )
        flat = {
            n: torch.from_numpy(
                np.concatenate([v.ravel() for v in changed[n].values()])
            )
            for n in NODES
        }
        direction = sum(
            (SIZES[n] / 100 * (flat[n] - theta) for n in NODES), torch.zeros_like(theta)
        )
        theta, state = server.apply(theta, direction, state)
        now = plain(found)
        assert np.allclose(
            np.concatenate([v.ravel() for v in now.values()]),
            theta.numpy(),
            rtol=0,
            atol=1e-12,
        )


def test_batch_norm_statistics_are_averaged_and_no_optimiser_touches_them() -> None:
    strategy = Composed(server=servers.Adam(lr=100.0), sizes=SIZES)
    before = {
        "bn.running_var": np.ones(2, np.float32),
        "bn.num_batches_tracked": np.array(4),
        "w": np.zeros(3, np.float32),
    }
    after = {
        "bn.running_var": np.full(2, 3.0, np.float32),
        "bn.num_batches_tracked": np.array(7),
        "w": np.ones(3, np.float32),
    }
    found, _ = strategy.aggregate_train(
        1, [reply(m, after) for m in asked(strategy, before)]
    )
    now = plain(found)
    assert list(now) == list(before)
    assert {k: v.dtype for k, v in now.items()} == {
        k: v.dtype for k, v in before.items()
    }
    assert np.allclose(now["bn.running_var"], 3.0)
    assert now["bn.num_batches_tracked"] == 7
    assert (now["w"] > 50).all()


@pytest.mark.parametrize("sampler", [samplers.MD(4), samplers.ClusteredBySize(4)])
def test_draws_are_unbiased_over_many_rounds(sampler: Any) -> None:
    """Mean weights of 1,500 rounds; each is within 4.5 of its standard errors with probability
    above 1 - 2e-5."""
    rounds, grid, strategy = 1500, Grid(), Composed(sampler=sampler, sizes=SIZES)
    arrays = record(model())
    total: Counter[int] = Counter()
    for n in range(rounds):
        strategy.configure_train(n + 1, arrays, ConfigRecord(), grid)
        made = strategy._request
        assert made is not None
        assert made.base is not None
        assert made.base.sum() == pytest.approx(1.0)
        total.update(dict(zip(made.nodes, made.base.tolist(), strict=True)))
    p = np.array([0.1, 0.3, 0.6])
    spread = np.sqrt(sampler.statistics(p).variance / rounds)
    assert (
        np.abs(np.array([total[n] / rounds for n in NODES]) - p) <= 4.5 * spread + 1e-12
    ).all()


def test_a_node_drawn_twice_counts_twice() -> None:
    strategy = Composed(sampler=samplers.MD(6), sizes=SIZES, seed=3)
    messages = asked(strategy, model())
    counts = {m.metadata.dst_node_id for m in messages}
    assert len(counts) == len(messages)
    strategy.aggregate_train(1, [reply(m, model(1.0)) for m in messages])
    assert sum(omega(strategy).values()) == pytest.approx(1.0)
    assert all(round(6 * w, 9) == round(6 * w) for w in omega(strategy).values())
    twice = Composed(
        sampler=samplers.MD(6, independent_draws=True), sizes=SIZES, seed=3
    )
    messages = asked(twice, model())
    assert len(messages) == 6
    found, _ = twice.aggregate_train(1, [reply(m, model(1.0)) for m in messages])
    assert np.allclose(plain(found)["w"], 1.0)


def test_the_same_seed_draws_the_same() -> None:
    def drawn(seed: int) -> list[int]:
        strategy = Composed(sampler=samplers.Uniform(2), sizes=SIZES, seed=seed)
        return [
            m.metadata.dst_node_id
            for n in range(20)
            for m in asked(strategy, model(), n + 1)
        ]

    assert drawn(1) == drawn(1) != drawn(2)


def test_sizes_are_learnt_where_they_are_not_given() -> None:
    strategy = Composed(sampler=samplers.MD(1))
    messages = asked(strategy, model())
    assert [m.metadata.dst_node_id for m in messages] == sorted(
        NODES
    )  # nobody's size is known: everybody works
    found, _ = strategy.aggregate_train(
        1, [reply(m, model(m.metadata.dst_node_id % 100.0)) for m in messages]
    )
    assert np.allclose(
        plain(found)["w"], sum(SIZES[n] / 100 * (n % 100.0) for n in NODES)
    )
    assert len(asked(strategy, model(), 2)) == 1
    newcomer = Grid([*NODES, 5])
    assert len(asked(strategy, model(), 3, newcomer)) == 4


def test_equal_importance_needs_no_sizes() -> None:
    strategy = Composed(sampler=samplers.Uniform(2), importance="equal")
    messages = asked(strategy, model())
    assert len(messages) == 2
    strategy.aggregate_train(1, [reply(m, model(1.0)) for m in messages])
    assert list(omega(strategy).values()) == pytest.approx([0.5, 0.5])


def test_who_does_not_answer_counts_as_unchanged() -> None:
    strategy = Composed(sizes=SIZES)
    first, second, third = asked(strategy, model())
    gone = Message(Error(5, "gone"), reply_to=third)
    found, _ = strategy.aggregate_train(
        1, [reply(second, model(1.0)), reply(first, model(1.0)), gone]
    )
    assert np.allclose(plain(found)["w"], 0.4)
    assert strategy.aggregate_train(1, []) == (None, None)


def test_optimal_sampling_looks_back_at_the_right_nodes() -> None:
    strategy = Composed(sampler=samplers.Optimal(1), importance="equal")
    lengths = {11: 0.0, 22: 0.0, BIG: 5.0}
    for number in range(1, 20):
        strategy.aggregate_train(
            number,
            [
                reply(m, model(lengths[m.metadata.dst_node_id]))
                for m in asked(strategy, model(), number)
            ],
        )
    assert set(strategy.history.last_norm) == {0, 1, 2}
    late = [
        {m.metadata.dst_node_id for m in asked(strategy, model(), n, Grid([22, BIG]))}
        for n in range(20, 40)
    ]
    assert all(
        BIG in drawn for drawn in late
    )  # it alone brings anything, whatever its number in the draw


def test_power_of_choice_asks_for_losses_and_goes_where_they_are_large() -> None:
    strategy = Composed(sampler=samplers.PowerOfChoice(m=1, d=3), sizes=SIZES)
    losses = {11: 9.0, 22: 1.0, BIG: 2.0}
    drawn = []
    for number in range(1, 6):
        messages = asked(strategy, model(), number)
        drawn += [m.metadata.dst_node_id for m in messages]
        strategy.aggregate_train(
            number,
            [
                reply(m, model(1.0), loss_before=losses[m.metadata.dst_node_id])
                for m in messages
            ],
        )
    assert set(drawn[:3]) == set(
        NODES
    )  # about a new node nothing is known, so that it comes first
    assert drawn[3:] == [11, 11]


WRONG = {
    "no loss": (
        lambda m: reply(m, model(1.0)),
        r"node 22 sent no 'loss-before' in its MetricRecord .*num-examples",
    ),
    "nan loss": (
        lambda m: reply(m, model(1.0), loss_before=float("nan")),
        "node 22 sent 'loss-before' = nan",
    ),
    "list": (
        lambda m: reply(m, model(1.0), loss_before=[1.0]),
        r"'loss-before' = \[1.0\], which is not a finite",
    ),
    "nan": (
        lambda m: reply(m, model(np.nan), loss_before=1.0),
        "an update that is not finite",
    ),
    "shape": (
        lambda m: reply(m, {"w": np.zeros(3), "b": np.zeros(2)}, loss_before=1.0),
        r"an array 'w' of shape \(3,\) float64 instead of \(2, 2\) float64",
    ),
    "dtype": (
        lambda m: reply(m, model(1.0, np.float32), loss_before=1.0),
        r"\(2, 2\) float32 instead of",
    ),
    "names": (
        lambda m: reply(m, {"w": np.zeros((2, 2))}, loss_before=1.0),
        "other arrays than it received: b",
    ),
    "no samples": (
        lambda m: reply(m, model(1.0), loss_before=1.0, num_examples=0),
        "not a number of samples",
    ),
    "greedy": (
        lambda m: reply(m, model(1.0), loss_before=1.0, num_examples=10**9),
        r"= 1e\+09 instead of 30",
    ),
}


WRONG |= {
    f"loss {loss:g}": (
        lambda m, loss=loss: reply(m, model(1.0), loss_before=loss),
        words,
    )
    for loss, words in {
        1e308: "a loss before work of 1e.308, more than 10000 times the median",
        -1e308: "of -1e.308, but this loss is never below 0",
        -0.5: "of -0.5, but this loss is never below 0",
        1.1e4: "of 11000, more than 10000 times the median loss",
    }.items()
}
WRONG |= {
    "huge": (
        lambda m: reply(m, model(1e15), loss_before=1.0),
        r"an update of length .*e\+15, longer than .*max_ratio = 100",
    ),
    "more samples than stars": (
        lambda m: reply(m, model(1.0), loss_before=1.0, num_examples=1e300),
        r"= 1e\+300, which is not a number of samples",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_must_not_be_averaged_is_refused_by_node_and_key(wrong: str) -> None:
    forge, words = WRONG[wrong]

    def replies(strategy: Composed) -> list[Message]:
        return [
            forge(m)
            if m.metadata.dst_node_id == 22
            else reply(m, model(1.0), loss_before=1.0)
            for m in asked(strategy, model())
        ]

    strict = FedSoftMax(sizes=SIZES)
    with pytest.raises(UpdateRefused, match=f"round 1: .*{words}"):
        strict.aggregate_train(1, replies(strict))
    lenient = FedSoftMax(sizes=SIZES, bad_updates="drop")
    lenient.aggregate_train(1, replies(lenient))
    assert set(omega(lenient)) == {11, BIG}


LYING = (weightings.Max(1), weightings.Min(1), weightings.SoftMin(0.2))
LYING += (weightings.SoftMax(0.2), weightings.Exp(0.2))


@pytest.mark.parametrize("weighting", LYING, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("claim", [1e308, -1e308, -0.5])
def test_no_weighting_is_captured_by_an_impossible_loss(
    weighting: Any, claim: float
) -> None:
    strategy = Composed(weighting=weighting, sizes=SIZES, bad_updates="drop")
    losses = dict.fromkeys(NODES, 1.0) | {22: claim}
    replies = []
    for m in asked(strategy, model()):
        reported = losses[m.metadata.dst_node_id]
        both = {"loss_before": reported, "loss_after": reported}
        replies.append(reply(m, model(1.0), **both))
    strategy.aggregate_train(1, replies)
    assert set(omega(strategy)) == {11, BIG}
    assert sum(omega(strategy).values()) == pytest.approx(1)


def test_a_loss_may_be_negative_and_an_update_long_if_the_app_says_so() -> None:
    free = FedSoftMax(sizes=SIZES, lowest_loss=None, max_ratio=float("inf"))
    lengths = {11: 1.0, 22: 1e15, BIG: 1.0}
    replies = [
        reply(m, model(lengths[m.metadata.dst_node_id]), loss_before=-1.0)
        for m in asked(free, model())
    ]
    free.aggregate_train(1, replies)
    assert set(omega(free)) == set(NODES)


def test_a_round_of_one_node_is_compared_with_the_rounds_before() -> None:
    strategy = Composed(sizes=SIZES, bad_updates="drop", min_available_nodes=1)
    first = [reply(m, model(1.0)) for m in asked(strategy, model())]
    strategy.aggregate_train(1, first)
    (message,) = asked(strategy, model(), number=2, grid=Grid([22]))
    assert strategy.aggregate_train(2, [reply(message, model(1e3))]) == (None, None)
    (message,) = asked(strategy, model(), number=3, grid=Grid([22]))
    arrays, _ = strategy.aggregate_train(3, [reply(message, model(50.0))])
    assert arrays is not None


def test_a_first_round_of_one_node_is_compared_with_the_model() -> None:
    strategy = Composed(sizes=SIZES, min_available_nodes=1)
    (message,) = asked(strategy, model(), grid=Grid([22]))
    words = r"node 22 sent an update of length 2\.4.*e"
    with pytest.raises(UpdateRefused, match=words):
        strategy.aggregate_train(1, [reply(message, model(1e15))])


def test_no_node_gets_more_than_the_cap() -> None:
    for strategy in (FedSoftMax(0.2, cap=0.4), FedExp(0.2, cap=0.4)):
        losses = {11: 9000.0, 22: 1.0, BIG: 1.0}
        replies = []
        for m in asked(strategy, model()):
            loss = losses[m.metadata.dst_node_id]
            both = {"loss_before": loss, "loss_after": 1.0 + loss}
            replies.append(reply(m, model(1.0), **both))
        strategy.aggregate_train(1, replies)
        assert max(omega(strategy).values()) <= 0.4 * (1 + 1e-9)


def test_a_second_reply_is_refused() -> None:
    strategy = Composed(sizes=SIZES)
    messages = asked(strategy, model())
    with pytest.raises(UpdateRefused, match="node 11 sent a reply without a request"):
        strategy.aggregate_train(
            1, [reply(messages[0], model(1.0)), reply(messages[0], model(1.0))]
        )


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (
            {"weighting": weightings.TimeBased()},
            IncompatibleParts,
            "TimeBased needs balance",
        ),
        (
            {"sampler": samplers.ClusteredBySimilarity(2)},
            IncompatibleParts,
            "ClusteredBySimilarity needs gradients",
        ),
        (
            {"fraction_train": 0.5},
            InvalidOption,
            "fraction_train: the sampler chooses the nodes",
        ),
        ({"importance": "sise"}, InvalidOption, "importance 'sise'"),
        ({"max_ratio": 1.0}, InvalidOption, "max_ratio must be above 1"),
        ({"max_ratio": float("nan")}, InvalidOption, "max_ratio must be above 1"),
        ({"sizes": {11: 0}}, InvalidOption, "node 11 has 0 samples"),
    ],
)
def test_options_that_cannot_work(
    options: Any, kind: type[PoiseError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Composed(**options)


def test_importing_poise_does_not_import_flower() -> None:
    code = (
        "import sys, poise, poise.flower; poise.train, poise.backends, poise.weightings; "
        "assert 'flwr' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
