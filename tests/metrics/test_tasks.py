"""Metrics of a set in tasks, runs, files and on nodes; errors before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import poise
from poise.analysis.reports import group_runs, score_table
from poise.config.experiment import parse
from poise.core.directions import PREFIXES, Directions
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError
from poise.metrics import AUROC, CalibrationError, OfSet
from poise.metrics.named import NAMED
from poise.tasks.oracle import SampleOracle
from poise.training.experiment_files import compose

SGD = poise.solvers.SGD(lr=0.2, epochs=1, batch_size=20)
ORDER = lambda function, items: [function(item) for item in items]


def two_classes(
    n: int = 300, clients: int = 4, pure: tuple[int, ...] = (), **options: Any
) -> Any:
    """A federation with two classes; the clients in ``pure`` have class 1 only."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=n) > 0).astype(np.int64)
    parts = np.array_split(np.arange(n), clients)
    for client in pure:
        y[parts[client]] = 1
    options.setdefault("test", (x[:60], y[:60]))
    return poise.federation((x, y), parts, clients, classes=2, **options)


def model_outputs(oracle: SampleOracle, theta: torch.Tensor, shard: Any) -> Any:
    x, y = shard.take(torch.arange(len(shard.rows)))
    outputs = oracle.kernel.outputs(theta, x).double()
    return (outputs[:, 1] - outputs[:, 0]).numpy(), y.numpy()


@pytest.mark.parametrize("path", [None, "rows"])
def test_all_variants_are_those_of_scikit_learn(path: Any) -> None:
    fed = two_classes(pure=(1,), client_test_share=0.3)
    oracle = poise.task("mlp", hidden=4, metrics=["auroc"], path=path).bind(fed)
    theta = oracle.initial(3)
    names = frozenset(n for n in oracle.metrics if n.endswith("auroc"))
    found = oracle.measure(theta, names, ORDER)
    assert sorted(found) == sorted(p + "auroc" for p in ("", *PREFIXES))
    scores, labels = model_outputs(oracle, theta, fed.test_shard)
    assert found["auroc"] == pytest.approx(sk.roc_auc_score(labels, scores), abs=1e-12)
    for each, mean, shards in (
        ("client_auroc", "train_auroc", fed.shards),
        ("client_test_auroc", "own_auroc", fed.client_test_shards),
    ):
        assert np.isnan(found[each][1])
        rest = [0, 2, 3]
        for client in rest:
            scores, labels = model_outputs(oracle, theta, shards([client]))
            expected = sk.roc_auc_score(labels, scores)
            assert found[each][client] == pytest.approx(expected, abs=1e-12)
        p = fed.importance[rest]
        assert found[mean] == pytest.approx(found[each][rest] @ p / p.sum())


def test_blocks_and_workers_leave_the_bits() -> None:
    fed = poise.federation("digits", clients=5, seed=0)
    names = ["auroc", "f1", "perplexity", "calibration-error", "accuracy"]
    task = poise.task("mlp", hidden=8, metrics=names)
    runs = [
        poise.train(
            fed,
            task,
            SGD,
            rounds=2,
            metrics=["client_auroc", "train_perplexity"],
            backend=poise.backends.Local(workers=workers),
        )
        for workers in (1, 3)
    ]
    for name in runs[0].metrics:
        assert (runs[0].metric(name) == runs[1].metric(name)).all(), name
    oracle = task.bind(fed)
    whole = oracle.measure(oracle.initial(0), frozenset(names), ORDER)
    oracle.kernel.block = 7
    split = oracle.measure(oracle.initial(0), frozenset(names), ORDER)
    for name in names:
        assert split[name] == pytest.approx(whole[name], rel=1e-6), name


def test_per_sample_metrics_stay_as_they_were_beside_metrics_of_a_set() -> None:
    fed = poise.federation("digits", clients=5, seed=0)
    alone = poise.train(fed, poise.task("mlp", hidden=8), SGD, rounds=2)
    task = poise.task("mlp", hidden=8, metrics=["accuracy", "auroc", "f1-micro"])
    beside = poise.train(fed, task, SGD, rounds=2)
    for name in ("accuracy", "loss"):
        assert (alone.metric(name) == beside.metric(name)).all()
    assert beside.metric("f1-micro") == pytest.approx(beside.metric("accuracy"))


def test_functions_of_a_set() -> None:
    fed = two_classes()

    def area(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return float(sk.roc_auc_score(labels, outputs[:, 1] - outputs[:, 0]))

    def spread(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return outputs.std()

    def right(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs.argmax(1) == labels).float()

    task = poise.task(
        "mlp",
        hidden=4,
        metrics={
            "theirs": OfSet(area),
            "ours": AUROC(),
            "spread": spread,
            "right": right,
            "gap": OfSet(lambda o, t: 1.0, higher_is_better=False),
        },
    )
    oracle = task.bind(fed)
    assert sorted(oracle.set_metrics) == ["gap", "ours", "spread", "theirs"]
    oracle.kernel.block = 11
    run = poise.train(
        fed, task, SGD, rounds=3, metrics=["client_theirs", "client_ours"]
    )
    assert run.metric("theirs") == pytest.approx(run.metric("ours"), abs=1e-12)
    assert np.allclose(run.metric("client_theirs"), run.metric("client_ours"))
    assert run.rounds_to(1.0, "gap") == 1
    assert run.rounds_to(0.5, "gap") is None


def test_torchmetrics() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    fed = two_classes(pure=(1,))
    task = poise.task(
        "mlp",
        hidden=4,
        metrics={
            "theirs": torchmetrics.AUROC(task="multiclass", num_classes=2),
            "f1": torchmetrics.F1Score(
                task="multiclass", num_classes=2, average="macro"
            ),
            "hinge": torchmetrics.HingeLoss(task="multiclass", num_classes=2),
            "brier": lambda o, t: torchmetrics.functional.mean_squared_error(
                o.softmax(1)[:, 1], t.float()
            ),
            "ours": AUROC(),
        },
    )
    run = poise.train(fed, task, SGD, rounds=2)
    assert run.metric("theirs") == pytest.approx(run.metric("ours"), abs=1e-6)
    assert run.directions.lower_is_better("hinge")
    assert not run.directions.lower_is_better("client_theirs")
    assert np.isfinite(run.metric("brier")).all()


ERRORS = {
    "one class in the test data": (
        lambda: (
            two_classes(test=(np.zeros((9, 3), "f4"), np.ones(9, int))),
            ["auroc"],
        ),
        (),
        "metric 'auroc' cannot be measured on the test data: all 9 labels are 1, two "
        "classes are needed (leave the metric out, or give other test data)",
    ),
    "one class at every client": (
        lambda: (
            two_classes(pure=(0, 1, 2, 3), test=(np.eye(3, dtype="f4"), [0, 1, 1])),
            ["auroc"],
        ),
        ("client_auroc",),
        "metric 'auroc' cannot be measured on the data of any client: on the data of "
        "client 0, all 75 labels are 1, two classes are needed (measure it on the test "
        "data, or partition the data differently)",
    ),
    "no outputs for it": (
        lambda: (two_classes(), ["concordance"]),
        (),
        "Task: metric 'concordance' cannot be measured: the model has 2 outputs per "
        "sample, not one (return one number per sample)",
    ),
    "not in the task": (
        lambda: (two_classes(), ["auroc"]),
        ("client_f1",),
        "unknown metric 'client_f1' (add 'f1' to the metrics of the task)",
    ),
    "no test data of the clients": (
        lambda: (two_classes(), ["auroc"]),
        ("client_test_auroc",),
        "client_test_auroc is measured on the clients' own test data, but the federation "
        "has none (use client_auroc, or set client_test_share = 0.2)",
    ),
    "no test data": (
        lambda: (two_classes(test=None), ["auroc"]),
        ("auroc",),
        "auroc is measured on test data, but the federation has none (use train_auroc or "
        "client_auroc)",
    ),
    "unknown": (
        lambda: (two_classes(), ["aurocc"]),
        (),
        "Task: unknown metric 'aurocc' (did you mean 'auroc'?)",
    ),
    "a function that fails": (
        lambda: (two_classes(), {"bad": OfSet(lambda o, t: 1 / 0)}),
        (),
        "metric 'bad' cannot be measured on the test data: the function fails: "
        "ZeroDivisionError: division by zero (return one number for all samples, or nan "
        "where it is undefined)",
    ),
    "a function of the wrong shape": (
        lambda: (two_classes(), {"bad": lambda o, t: o[:, :, None]}),
        (),
        "Task: metric 'bad' returns shape (3, 2, 1) for 3 samples (return one value per "
        "sample, or one number for all)",
    ),
    "a function that returns a text": (
        lambda: (two_classes(), {"bad": lambda o, t: "good"}),
        (),
        "Task: metric 'bad' returns a str instead of a tensor (return a tensor with one "
        "value per sample, or one number for all)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_training(case: str) -> None:
    make, requested, words = ERRORS[case]
    fed, metrics = make()

    def start() -> None:
        task = poise.task("mlp", hidden=4, metrics=metrics)
        poise.train(fed, task, SGD, rounds=1, metrics=requested)

    with pytest.raises(PoiseError) as caught:
        start()
    assert str(caught.value) == words
    assert caught.value.where[-1] == "metrics"


def test_as_many_tokens_as_classes() -> None:
    """A named loss tells where the classes are; a loss of one's own does not."""
    tokens = np.random.default_rng(0).integers(0, 4, (40, 4))
    fed = poise.federation(
        (tokens, tokens), "iid", 2, vocabulary=4, test=(tokens, tokens)
    )

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Embedding(4, 4))

    run = poise.train(
        fed, poise.Task(module=make, metrics=["perplexity"]), SGD, rounds=1
    )
    assert run.metric("perplexity")[-1] > 0
    entropy = torch.nn.functional.cross_entropy
    own = poise.Task(module=make, loss=entropy, metrics=["auroc"])
    with pytest.raises(IncompatibleParts, match="do not tell which dimension"):
        poise.train(fed, own, SGD, rounds=1)


def test_regression_has_no_dice() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    fed = poise.federation((x, x[:, 0]), "iid", 2, seed=0, test=(x, x[:, 0]))
    with pytest.raises(
        IncompatibleParts, match="'dice' cannot be measured: the labels"
    ):
        poise.train(fed, poise.task("mlp", metrics=["dice"]), SGD, rounds=1)
    task = poise.task("mlp", hidden=4, metrics=["r2", "mae", "concordance"])
    run = poise.train(fed, task, SGD, rounds=2, metrics=["client_r2"])
    oracle = task.bind(fed)
    found = oracle.kernel.outputs(torch.from_numpy(run.model), torch.from_numpy(x))
    assert run.metric("r2")[-1] == pytest.approx(sk.r2_score(x[:, 0], found[:, 0]))


def test_a_client_without_two_classes_is_nan_and_the_others_count() -> None:
    fed = two_classes(pure=(2,))
    task = poise.task("logistic", metrics=["auroc"])
    run = poise.train(fed, task, SGD, rounds=2, metrics=["client_auroc", "train_auroc"])
    assert np.isnan(run.metric("client_auroc")[:, 2]).all()
    rest = [0, 1, 3]
    p = fed.importance[rest]
    assert run.metric("train_auroc") == pytest.approx(
        run.metric("client_auroc")[:, rest] @ p / p.sum()
    )


def test_directions_are_kept_with_the_run(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=4, seed=0)
    task = poise.task("mlp", hidden=8, metrics=["perplexity", "auroc"])
    poise.train(fed, task, SGD, rounds=4, out=tmp_path / "run")
    run = poise.open_run(tmp_path / "run")
    values = run.metric("perplexity")
    target = float(values[2])
    assert values[2] < values[1]
    assert run.rounds_to(target, "perplexity") == 3
    assert run.directions == Directions(frozenset({"perplexity"}), frozenset({"auroc"}))
    assert run.rounds_to(float(run.metric("loss")[2]), "loss") == 3
    rows = score_table(group_runs([run]), targets=[target], metric="perplexity")
    scores = rows[0].scores
    assert scores["rounds to perplexity " + f"{target:g}"].better == "low"
    assert scores["final perplexity"].better == "low"
    assert scores["final auroc"].better == "high"


def test_a_metric_with_options() -> None:
    fed = two_classes()
    task = poise.task(
        "mlp",
        hidden=4,
        metrics={"ece-5": CalibrationError(5), "ece": CalibrationError()},
    )
    run = poise.train(fed, task, SGD, rounds=1)
    assert run.metrics == ["ece", "ece-5", "loss"]
    assert run.directions.lower_is_better("client_ece-5")


FILE = """
[data]
source = "digits"
partition = "dirichlet"
alpha = 0.5
clients = 4
seed = 0
[task]
model = "logistic"
metrics = ["auroc", "calibration-error"]
[solver]
name = "sgd"
lr = 0.1
epochs = 1
batch_size = 32
[run]
rounds = 2
metrics = ["client_auroc"]
"""


def test_an_experiment_file_names_them() -> None:
    composition = compose(parse(FILE), 0)
    run = poise.train(
        composition.federation,
        composition.task,
        composition.parts.solver,
        rounds=2,
        metrics=composition.options.metrics,
    )
    assert run.metrics == ["auroc", "calibration-error", "client_auroc", "loss"]
    wrong = FILE.replace('"calibration-error"', '"dise"')
    with pytest.raises(
        InvalidOption, match=r"unknown metric 'dise' \(did you mean 'dice'"
    ):
        compose(parse(wrong), 0)


class Exchanged(torch.nn.Linear):
    """Outputs (classes, n) instead of (n, classes)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).T


def test_outputs_with_classes_first_are_refused_for_two_classes_too() -> None:
    task = poise.Task(module=lambda: Exchanged(3, 2))
    with pytest.raises(IncompatibleParts, match=r"shape \(2, 3\) for 3 samples"):
        poise.train(two_classes(), task, SGD, rounds=1)


class Named(torch.nn.Linear):
    """Outputs in a dictionary."""

    def forward(self, x: torch.Tensor) -> Any:
        return {"scores": super().forward(x)}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_metric_of_a_dictionary_is_refused_in_a_sentence(name: str) -> None:
    loss = lambda outputs, labels: torch.nn.functional.cross_entropy(
        outputs["scores"], labels, reduction="none"
    )
    task = poise.Task(module=lambda: Named(3, 2), loss=loss, metrics=(name,))
    with pytest.raises(IncompatibleParts, match="returns a dict, not one tensor") as no:
        poise.train(two_classes(), task, SGD, rounds=1)
    assert f"metric {name!r} cannot be measured" in str(no.value)


def test_a_set_metric_of_a_dictionary_is_refused_in_a_sentence() -> None:
    loss = lambda outputs, labels: torch.nn.functional.cross_entropy(
        outputs["scores"], labels, reduction="none"
    )
    for metric in (OfSet(lambda o, y: 1.0), lambda o, y: 1.0):
        task = poise.Task(module=lambda: Named(3, 2), loss=loss, metrics={"m": metric})
        with pytest.raises(IncompatibleParts, match="returns a dict, not one tensor"):
            poise.train(two_classes(), task, SGD, rounds=1)
