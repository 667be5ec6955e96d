"""Aggregators, channels, personal layers and frozen parameters, against runs computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise import Task
from poise.aggregators import Median, TrimmedMean, WeightedSum
from poise.channels import Plain, TopK
from poise.clocks import Asynchronous
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.personal import BatchNorm, Layers
from poise.samplers import MD, Uniform
from poise.solvers import SGD

SOLVER = SGD(lr=0.2, steps=3, batch_size=8)


def digits(**more: Any) -> Any:
    return poise.federation(
        "digits",
        "dirichlet",
        6,
        alpha=0.5,
        seed=1,
        samples=300,
        test_samples=60,
        **more,
    )


def train(fed: Any = None, task: Any = None, solver: Any = SOLVER, **more: Any) -> Any:
    options = {"rounds": 4, "seed": 3, **more}
    return poise.train(
        fed or digits(), task or poise.task("mlp", hidden=8), solver, **options
    )


# aggregators
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Uniform(4), MD(5)], ids=str)
def test_a_trimmed_mean_that_trims_nothing_is_the_weighted_sum(sampler: Any) -> None:
    plain, trimmed = (
        train(sampler=sampler, aggregator=a) for a in (WeightedSum(), TrimmedMean(0.0))
    )
    assert trimmed.model.tobytes() == plain.model.tobytes()
    assert trimmed.digest == plain.digest


def test_the_direction_is_the_aggregators() -> None:
    """One step of rate 1 from 0 on quadratics: every update is its client's optimum; the median of
    0, 1, 9 is 1."""
    quad = poise.quadratics([[0.0], [1.0], [9.0]])
    run = poise.train(
        quad, quad.task, SGD(lr=1.0, steps=1), rounds=1, aggregator=Median()
    )
    assert run.model.tolist() == [1.0]
    mean = poise.train(quad, quad.task, SGD(lr=1.0, steps=1), rounds=1)
    assert mean.model == pytest.approx([10 / 3])


def test_one_liar_does_not_move_a_median() -> None:
    quad = poise.quadratics(np.linspace(-1, 1, 7)[:, None])
    liar = poise.attacks.Scaled(clients=(6,), fraction=100.0)
    median, mean = (
        poise.train(
            quad,
            quad.task,
            SGD(lr=0.5, steps=1),
            rounds=10,
            attacks=[liar],
            aggregator=a,
        )
        for a in (Median(), WeightedSum())
    )
    assert abs(median.model[0]) < 0.5
    assert not abs(mean.model[0]) < 1e3


def test_a_median_takes_no_negative_coefficients() -> None:
    class Negative:
        needs = frozenset[str]()

        def fit(self, setting: Any) -> None: ...

        def coefficients(self, updates: Any) -> np.ndarray:
            return -updates.base_weights

    with pytest.raises(IncompatibleParts, match="Median"):
        train(weighting=Negative(), aggregator=Median())


def test_the_audit_compares_with_what_the_others_sent_whatever_the_aggregator() -> None:
    """The cosine to the others is that of their weighted sum, which a median is not."""
    quad = poise.quadratics(np.random.default_rng(3).standard_normal((5, 40)))
    run = poise.train(
        quad,
        quad.task,
        SGD(lr=0.5, steps=1),
        rounds=1,
        aggregator=Median(),
        keep_updates=True,
    )
    deltas, omega = run.updates(0), run.weights[0]
    for i in range(5):
        rest = sum(omega[j] * deltas[j] for j in range(5) if j != i)
        wanted = deltas[i] @ rest / np.linalg.norm(deltas[i]) / np.linalg.norm(rest)
        assert run.measurement("audit/cohort")[i] == pytest.approx(wanted, abs=1e-6)
    riding = train(
        poise.federation("digits", clients=10),
        poise.task("logistic"),
        SGD(lr=0.1, steps=5, batch_size=16),
        rounds=8,
        aggregator=Median(),
        attacks=[poise.attacks.FreeRider([2], kind="disguised")],
    )
    assert poise.audit(riding).suspects == [2]


def test_certificates_and_explain_say_why_an_aggregator_does_not_do() -> None:
    quad = poise.quadratics([[10.0], [0.0], [3.0]])
    options: Any = {"solver": SGD(lr=0.1, steps=1), "aggregator": Median()}
    run = poise.train(quad, quad.task, rounds=4, keep="all", **options)
    with pytest.raises(
        IncompatibleParts,
        match="Median: the direction is no weighted sum of the updates",
    ):
        poise.unlearn(
            run,
            [0],
            epsilon=10,
            delta=0.01,
            sigma=5.0,
            federation=quad,
            task=quad.task,
            target=50.0,
        )
    assert any(
        "Median" in warning
        for warning in poise.explain(quad, quad.task, **options).warnings
    )
    sparse = poise.explain(quad, quad.task, SGD(lr=0.1, steps=1), channel=TopK(0.5))
    assert any("TopK" in warning for warning in sparse.warnings)


# channels
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clock",
    [None, Asynchronous([1.0, 1.3, 0.7, 2.1, 0.4, 1.0])],
    ids=["waits", "asynchronous"],
)
def test_a_channel_that_sends_everything_is_plain(clock: Any) -> None:
    plain, whole = (
        train(clock=clock, channel=c, rounds=8) for c in (Plain(), TopK(1.0))
    )
    assert whole.model.tobytes() == plain.model.tobytes()
    assert whole.digest == plain.digest, (
        "bytes, norms and coefficients are the same as well"
    )


def test_traffic_is_what_the_encoding_takes() -> None:
    """An MLP 64-8-10 has 610 parameters; 10 % are 61 entries of 4 + 4 bytes each."""
    records: list[Any] = []
    train(sampler=Uniform(4), channel=TopK(0.1), callbacks=[records.append])
    assert [r.bytes_up for r in records] == [4 * 61 * 8] * 4
    assert [r.bytes_down for r in records] == [4 * 610 * 4] * 4


def test_error_feedback_by_hand() -> None:
    """Two clients, one entry of two each round; what is not sent is added to the next update."""
    optima = np.array([[4.0, 3.0], [2.0, 8.0]])
    quad = poise.quadratics(optima)
    run = poise.train(
        quad, quad.task, SGD(lr=0.5, steps=1), rounds=3, channel=TopK(0.5), keep="all"
    )
    theta, residual = np.zeros(2), np.zeros((2, 2))
    for n in range(3):
        wanted = 0.5 * (optima - theta) + residual
        sent = np.where(
            np.abs(wanted) == np.abs(wanted).max(axis=1, keepdims=True), wanted, 0.0
        )
        residual = wanted - sent
        theta = theta + sent.mean(axis=0)
        assert run.models(n + 1) == pytest.approx(theta, rel=1e-12)


def test_a_resumed_run_remembers_what_was_not_sent(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "sampler": Uniform(4),
        "channel": TopK(0.05),
        "rounds": 6,
    }
    whole = train(**options, out=tmp_path / "whole")
    seen: list[Any] = []
    train(
        **options,
        out=tmp_path / "part",
        callbacks=[seen.append],
        stop=lambda: len(seen) >= 3,
    ).close()
    part = poise.resume(
        tmp_path / "part", federation=digits(), task=poise.task("mlp", hidden=8)
    )
    assert part.digest == whole.digest
    assert part.model.tobytes() == whole.model.tobytes()


def test_workers_do_not_change_what_a_channel_sends() -> None:
    runs = [
        train(channel=TopK(0.05), backend=poise.backends.Local(workers=w))
        for w in (1, 3)
    ]
    assert runs[0].digest == runs[1].digest


def test_clients_made_on_demand_cannot_keep_what_they_did_not_send() -> None:
    fed = poise.federation(
        "digits", "imbalanced", 20, on_demand=True, samples_per_client=20, seed=0
    )
    with pytest.raises(IncompatibleParts, match="TopK: clients must keep state"):
        train(fed, channel=TopK(0.1), sampler=Uniform(3))
    train(fed, channel=TopK(0.1, error_feedback=False), sampler=Uniform(3), rounds=1)


# personal layers
# --------------------------------------------------------------------------------------


class Two(nn.Module):
    """A body that is shared and a head that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.tanh(self.body(x)))
        return scores


def two_clients() -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3)).astype("f4"), np.arange(20) % 2
    parts = [np.arange(12), np.arange(12, 20)]
    fed = poise.federation((x, y), parts, 2, classes=2)
    return fed, [
        (torch.from_numpy(x[p]).double(), torch.from_numpy(y[p])) for p in parts
    ]


def test_a_personal_head_is_a_head_trained_apart() -> None:
    """By hand: the body is averaged by 12/20 and 8/20 after every round, each head goes on by
    itself."""
    fed, data = two_clients()
    torch.manual_seed(0)
    module = Two()
    solver, rounds = SGD(lr=0.3, steps=2), 3
    options: Any = {
        "rounds": rounds,
        "personal": Layers("head.*"),
        "metrics": ["client_loss"],
    }
    run = poise.train(fed, Task(module=module, dtype="float64"), solver, **options)
    body = {k: v.detach().double() for k, v in module.body.named_parameters()}
    heads = [
        {k: v.detach().double().clone() for k, v in module.head.named_parameters()}
        for _ in data
    ]
    for _ in range(rounds):
        bodies = []
        for i, (x, y) in enumerate(data):
            net = Two().double()
            net.body.load_state_dict(body)
            net.head.load_state_dict(heads[i])
            step = torch.optim.SGD(net.parameters(), lr=0.3)
            for _ in range(2):
                step.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                step.step()
            bodies.append({k: v.detach() for k, v in net.body.named_parameters()})
            heads[i] = {k: v.detach().clone() for k, v in net.head.named_parameters()}
        body = {k: 0.6 * bodies[0][k] + 0.4 * bodies[1][k] for k in body}
    for i, head in enumerate(heads):
        wanted = torch.cat(
            [
                body["weight"].flatten(),
                body["bias"],
                head["weight"].flatten(),
                head["bias"],
            ]
        )
        assert np.abs(run.client_model(i) - wanted.numpy()).max() < 1e-12
        loss = nn.functional.cross_entropy(
            nn.functional.linear(
                torch.tanh(
                    nn.functional.linear(data[i][0], body["weight"], body["bias"])
                ),
                head["weight"],
                head["bias"],
            ),
            data[i][1],
        )
        assert run.metric("client_loss")[-1, i] == pytest.approx(float(loss), rel=1e-10)
    shared = torch.cat(
        [p.detach().flatten() for p in module.head.parameters()]
    ).double()
    assert run.model[16:] == pytest.approx(shared.numpy()), (
        "the server's copy of the head never moves"
    )


def test_personal_entries_are_no_traffic() -> None:
    """16 of 26 parameters travel: 12 weights and 4 biases of the body."""
    fed, _ = two_clients()
    records: list[Any] = []
    poise.train(
        fed,
        Task(module=Two()),
        SGD(lr=0.1, steps=1),
        rounds=2,
        personal=Layers("head"),
        callbacks=[records.append],
    )
    assert [(r.bytes_up, r.bytes_down) for r in records] == [
        (2 * 16 * 4, 2 * 16 * 4)
    ] * 2


def test_the_old_spelling_of_batch_norm_is_understood(tmp_path: Path) -> None:
    task = poise.task("mlp", hidden=8, norm=True)
    fed = digits(client_test_share=0.2)
    named, part = (train(fed, task, personal=p) for p in ("batchnorm", BatchNorm()))
    assert named.digest == part.digest
    file = tmp_path / "exp.toml"
    file.write_text(
        "[data]\nsource='digits'\nclients=4\nclient_test_share=0.2\n[task]\nmodel='mlp'\nhidden=8\nnorm=true\n"
        "[solver]\nname='sgd'\nlr=0.1\nsteps=1\nbatch_size=8\n[run]\nrounds=1\npersonal='batchnorm'\n"
    )
    from poise.config.experiment import load
    from poise.training import compose

    composition = compose(load(file), 0)
    assert composition.parts.personal == BatchNorm()
    assert composition.table()["personal"] == {"name": "batchnorm"}
    assert "personal" not in composition.table()["run"]


def test_client_models_of_runs_without_personal_layers_are_the_model() -> None:
    run = train()
    assert np.array_equal(run.client_model(2), run.model)
    with pytest.raises(InvalidOption, match="there is no client 6"):
        run.client_model(6)


def test_a_client_that_never_worked_has_the_servers_entries() -> None:
    class First:
        needs = frozenset[str]()

        def fit(self, setting: Any) -> None: ...

        def draw(self, setting: Any, rng: Any, round: int, past: Any) -> Any:
            from poise.core.types import Cohort

            return Cohort(np.array([0]), np.array([1.0]))

    fed, _ = two_clients()
    run = poise.train(
        fed,
        Task(module=Two()),
        SGD(lr=0.1, steps=1),
        rounds=2,
        personal=Layers("head"),
        sampler=First(),
    )
    assert np.array_equal(run.client_model(1), run.model)
    assert not np.array_equal(run.client_model(0), run.model)


# frozen parameters
# ------------------------------------------------------------------------------------


def backbone() -> nn.Module:
    torch.manual_seed(7)
    layers = (
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 320),
        nn.ReLU(),
        nn.Linear(320, 10),
    )
    module = nn.Sequential(nn.Flatten(), *layers)
    for layer in list(module)[:-1]:
        layer.requires_grad_(False)
    return module


def test_a_frozen_backbone_trains_its_head_as_a_head_alone() -> None:
    fed, module = digits(), backbone()
    records: list[Any] = []
    run = train(fed, Task(module=module, dtype="float64"), callbacks=[records.append])
    x, y = fed.test
    features, sizes = nn.Sequential(*list(module)[:-1]).double(), fed.sizes
    pool = [fed.client(i) for i in range(fed.clients)]
    with torch.no_grad():
        mapped = [
            features(torch.from_numpy(np.asarray(a)).double()).numpy() for a, _ in pool
        ]
        held = features(torch.from_numpy(np.asarray(x)).double()).numpy()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    heads = poise.federation(
        (np.concatenate([*mapped, held]), np.concatenate([*(b for _, b in pool), y])),
        [np.arange(ends[i], ends[i + 1]) for i in range(fed.clients)],
        fed.clients,
        classes=10,
    )
    head = nn.Sequential(nn.Linear(320, 10))
    head[0].load_state_dict(module[-1].state_dict())
    alone = train(heads, Task(module=head, dtype="float64"))
    assert len(run.model) == len(alone.model) == 3210
    assert np.abs(run.model - alone.model).max() < 1e-7, (
        "features of a federation are stored in single precision"
    )
    assert {(r.bytes_up, r.bytes_down) for r in records} == {
        (6 * 3210 * 8, 6 * 3210 * 8)
    }


def test_only_what_is_trained_is_stored_and_counted(tmp_path: Path) -> None:
    """1,290 trainable of 50,826 parameters make 5,160 bytes per update."""
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    for layer in list(module)[:-1]:
        layer.requires_grad_(False)
    assert sum(p.numel() for p in module.parameters()) == 50_826
    run = train(
        task=Task(module=module), sampler=Uniform(2), keep="all", out=tmp_path / "run"
    )
    assert run.model.shape == (1290,)
    sizes = run._query("SELECT bytes_up, bytes_down FROM rounds WHERE n < ?")
    assert {tuple(row) for row in sizes} == {(2 * 5160, 2 * 5160)}
    files = sorted((tmp_path / "run" / "models").glob("*.safetensors"))
    assert max(f.stat().st_size for f in files) < 5160 + 600


class Scaled(nn.Linear):
    """A layer with a frozen number and a mask of infinite entries."""

    def __init__(self, scale: float = 2.0, hidden: int = 3) -> None:
        torch.manual_seed(7)
        super().__init__(64, 10)
        self.scale = nn.Parameter(torch.tensor(scale), requires_grad=False)
        mask = torch.zeros(64)
        mask[hidden] = -torch.inf
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.scale * x.flatten(1) * self.mask.exp())


@pytest.mark.parametrize("other", [Scaled(scale=3.0), Scaled(hidden=4)])
def test_frozen_numbers_and_infinite_masks_stay_the_same(
    other: nn.Module, tmp_path: Path
) -> None:
    first = Task(module=Scaled())
    done = train(task=first, rounds=2, out=tmp_path / "run")
    assert done.model.shape == (650,)
    assert np.isfinite(done.model).all()
    done.close()
    with pytest.raises(IncompatibleParts, match="frozen parameters"):
        poise.resume(
            tmp_path / "run", federation=digits(), task=Task(module=other), rounds=3
        )
    poise.resume(tmp_path / "run", federation=digits(), task=first, rounds=3).close()


def test_a_run_does_not_go_on_with_another_backbone(tmp_path: Path) -> None:
    first = Task(module=backbone())
    train(task=first, rounds=2, out=tmp_path / "run").close()
    other = backbone()
    other[1].weight.data.add_(1.0)
    with pytest.raises(IncompatibleParts, match="frozen parameters"):
        poise.resume(
            tmp_path / "run", federation=digits(), task=Task(module=other), rounds=3
        )
    poise.resume(tmp_path / "run", federation=digits(), task=first, rounds=3).close()
