"""Labels, inputs and losses of every kind, against plain loops of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poise
from poise.core.errors import PoiseError
from poise.core.vectors import Layout

SIZES = [3, 5, 4]
N = sum(SIZES)
OWNERS = np.split(np.arange(N), np.cumsum(SIZES)[:-1])
RATE = 0.3


@dataclass(frozen=True)
class Kind:
    """A module, its data, the options of poise, and the loss of a plain loop."""

    module: nn.Module
    x: Any
    y: Any
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    task: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    plain_x: Any = None
    plain_y: Any = None


class Tagger(nn.Module):
    """A transformer layer that gives every token a class, (n, C, T)."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(tokens))).transpose(1, 2)


class Reader(nn.Module):
    """The mean embedding of the tokens that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens) * mask[..., None]
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))


class Both(nn.Module):
    """An image and numbers, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(2 * 16 + 3, 3)

    def forward(self, image: torch.Tensor, facts: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.see(image).flatten(1), facts], dim=1))


def token_mean(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Per-sample means over the tokens that are not -100, written out."""
    means = []
    for z, y in zip(outputs, labels, strict=True):
        kept = y != -100
        chosen = z[:, kept].log_softmax(0)[y[kept], torch.arange(int(kept.sum()))]
        means.append(-chosen.mean())
    return torch.stack(means).mean()


def cox_like(outputs: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """The loss of exponential survival times: rate · time - event · log rate."""
    log_rate = outputs[:, 0]
    return log_rate.exp() * pairs[:, 0] - pairs[:, 1] * log_rate


def kinds() -> dict[str, Kind]:
    torch.manual_seed(5)
    rng = np.random.default_rng(3)
    flat = rng.normal(size=(N, 6)).astype(np.float32)
    images = rng.normal(size=(N, 1, 4, 4)).astype(np.float32)
    tokens = rng.integers(0, 7, (N, 5))
    tags = rng.integers(0, 4, (N, 5))
    tags[:, 3:][rng.random((N, 2)) < 0.6] = -100
    many = (rng.random((N, 3)) < 0.4).astype(np.float32)
    time = rng.exponential(size=N).astype(np.float32)
    event = rng.integers(0, 2, N)
    texts = [rng.integers(1, 7, k) for k in rng.integers(1, 6, N)]
    length = max(map(len, texts))
    table = np.array([[*t, *[0] * (length - len(t))] for t in texts])
    mask = (np.arange(length) < np.array([[len(t)] for t in texts])).astype(np.float32)
    facts = rng.normal(size=(N, 3)).astype(np.float32)
    classes = rng.integers(0, 3, N)
    classes[0] = 2
    segment = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1)
    )
    masks = rng.integers(0, 3, (N, 4, 4))
    bce = F.binary_cross_entropy_with_logits
    return {
        "tokens": Kind(
            Tagger(), tokens, tags, token_mean, data={"vocabulary": 7, "classes": 4}
        ),
        "masks": Kind(segment, images, masks, F.cross_entropy),
        "labels per entry": Kind(
            nn.Linear(6, 3),
            flat,
            many,
            bce,
            {"loss": lambda z, y: bce(z, y, reduction="none")},
        ),
        "multi-label": Kind(
            nn.Linear(6, 3), flat, many.astype(bool), bce, plain_y=many
        ),
        "multi-label by rows": Kind(
            nn.Linear(6, 3), flat, many, bce, {"loss": "bce", "path": "rows"}
        ),
        "several numbers": Kind(
            nn.Linear(6, 3), flat, rng.normal(size=(N, 3)), F.mse_loss
        ),
        "time and event": Kind(
            nn.Linear(6, 1),
            flat,
            (time, event),
            lambda z, y: cox_like(z, y).mean(),
            {"loss": cox_like},
            plain_y=np.stack([time, event], axis=1).astype(np.float32),
        ),
        "a dict": Kind(
            Both(), {"image": images, "facts": facts}, classes, F.cross_entropy
        ),
        "ragged texts": Kind(
            Reader(),
            texts,
            event,
            F.cross_entropy,
            data={"collate": "mask"},
            plain_x=(table, mask),
        ),
        "texts as classes": Kind(
            nn.Linear(6, 3),
            flat,
            np.array(["cat", "dog", "ant"])[classes],
            F.cross_entropy,
            plain_y=np.array([1, 2, 0])[classes],
        ),
    }


def apply(module: nn.Module, x: Any, rows: np.ndarray) -> torch.Tensor:
    if isinstance(x, dict):
        return module(**{k: torch.as_tensor(v[rows]) for k, v in x.items()})
    if isinstance(x, tuple):
        return module(*(torch.as_tensor(v[rows]) for v in x))
    return module(torch.as_tensor(x[rows]))


def plain_loop(kind: Kind, rounds: int = 2, steps: int = 2) -> torch.Tensor:
    """FedAvg with full batches, one client after the other."""
    x = kind.x if kind.plain_x is None else kind.plain_x
    y = torch.as_tensor(kind.y if kind.plain_y is None else kind.plain_y)
    y = y.float() if y.dtype == torch.float64 else y
    server = copy.deepcopy(kind.module)
    for _ in range(rounds):
        total = [torch.zeros_like(p) for p in server.parameters()]
        for rows in OWNERS:
            local = copy.deepcopy(server)
            optimiser = torch.optim.SGD(local.parameters(), lr=RATE)
            for _ in range(steps):
                optimiser.zero_grad()
                kind.loss(apply(local, x, rows), y[rows]).backward()
                optimiser.step()
            for sum_, p in zip(total, local.parameters(), strict=True):
                sum_ += len(rows) / N * p.detach()
        with torch.no_grad():
            for p, mean in zip(server.parameters(), total, strict=True):
                p.copy_(mean)
    state = server.state_dict(keep_vars=True)
    return Layout.of_module(server).flatten(state, torch.float32)


@pytest.mark.parametrize("name", kinds())
def test_two_rounds_equal_a_plain_loop(name: str) -> None:
    kind = kinds()[name]
    federation = poise.federation((kind.x, kind.y), OWNERS, **kind.data)
    task = poise.Task(module=kind.module, **kind.task)
    solver = poise.solvers.SGD(lr=RATE, steps=2, batch_size=None)
    run = poise.train(federation, task, solver, rounds=2)
    start = kind.module.state_dict(keep_vars=True)
    moved = Layout.of_module(kind.module).flatten(start, torch.float32)
    expected = plain_loop(kind)
    assert float((expected - moved).abs().max()) > 1e-2
    assert np.allclose(run.model, expected.detach().numpy(), atol=2e-6)


@pytest.mark.parametrize("path", [None, "rows"])
def test_the_dense_and_the_row_path_agree_on_multi_label_targets(path: Any) -> None:
    kind = kinds()["multi-label"]
    federation = poise.federation((kind.x, kind.y), OWNERS)
    solver = poise.solvers.SGD(lr=RATE, steps=2, batch_size=None)
    run = poise.train(
        federation, poise.Task(module=kind.module, path=path), solver, rounds=2
    )
    assert np.allclose(run.model, plain_loop(kind).detach().numpy(), atol=2e-6)


def test_measured_losses_are_means_over_samples_of_means_over_tokens() -> None:
    kind = kinds()["tokens"]
    federation = poise.federation(
        (kind.x, kind.y), OWNERS, test=(kind.x, kind.y), **kind.data
    )
    run = poise.train(
        federation,
        poise.Task(module=kind.module),
        poise.solvers.SGD(lr=1e-12, steps=1),
        rounds=1,
    )
    outputs = kind.module.eval()(torch.as_tensor(kind.x)).detach()
    labels = torch.as_tensor(kind.y)
    assert run.metric("loss")[-1] == pytest.approx(float(token_mean(outputs, labels)))
    right = [
        float((z.argmax(0) == y)[y != -100].float().mean())
        for z, y in zip(outputs, labels, strict=True)
    ]
    assert run.metric("accuracy")[-1] == pytest.approx(np.mean(right))


def test_a_custom_loss_with_classes_keeps_accuracy() -> None:
    kind = kinds()["texts as classes"]
    federation = poise.federation((kind.x, kind.y), OWNERS, test=(kind.x, kind.y))
    assert federation.class_names == ("ant", "cat", "dog")
    smooth = lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1, reduction="none")
    task = poise.Task(module=kind.module, loss=smooth)
    run = poise.train(federation, task, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
    assert 0 <= run.metric("accuracy")[-1] <= 1
    assert run.meta["class names"] == '["ant", "cat", "dog"]'


def test_texts_of_the_test_set_share_the_length() -> None:
    fed = poise.federation(
        ([[1, 2], [3]], [0, 1]),
        [[0], [1]],
        test=([[1, 2, 3, 4]], [1]),
        collate="length",
    )
    tokens, lengths = fed.client(0)[0]
    assert (tokens.tolist(), lengths.tolist()) == ([[1, 2, 0, 0]], [2])
    assert fed.test[0][0].shape == (1, 4)


def test_labels_of_tokens_are_filled_up_with_minus_100() -> None:
    fed = poise.federation(([[1, 2], [3]], [[0, 1], [2]]), [[0], [1]], collate="pad")
    assert fed.client(1)[1].tolist() == [[2, -100]]


def test_partitions_by_class_take_groups() -> None:
    kind = kinds()["masks"]
    with pytest.raises(PoiseError, match="needs one class per sample"):
        poise.federation((kind.x, kind.y), "dirichlet", clients=3)
    groups = np.arange(N) % 2
    fed = poise.federation((kind.x, kind.y), "one-class", clients=2, by=groups)
    first = fed.client(0)[1]
    own = np.asarray(kind.y)[groups == 0]
    order = lambda masks: sorted(masks.reshape(len(masks), -1).tolist())
    assert order(first) == order(own)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {}


def refused(name: str, words: str) -> Callable[[Callable[[], Any]], None]:
    def add(case: Callable[[], Any]) -> None:
        REFUSED[name] = (case, words)

    return add


def bound(x: Any, y: Any, module: nn.Module, **options: Any) -> Any:
    data = {k: options.pop(k) for k in ("classes", "target", "by") if k in options}
    fed = poise.federation((x, y), [np.arange(len(y))], **data)
    return poise.Task(module=module, **options).bind(fed)


X = np.zeros((4, 6), np.float32)
refused("flat classes", "outputs.transpose(1, 2)")(
    lambda: bound(np.zeros((4, 5, 6)), np.ones((4, 5), int), nn.Linear(6, 2))
)
refused("too few outputs", "outputs of shape (2,) for labels of shape (3,)")(
    lambda: bound(X, np.ones((4, 3)), nn.Linear(6, 2))
)
refused("too few classes", "for 3 classes and labels of shape (5,)")(
    lambda: bound(X, np.full((4, 5), 2), nn.Linear(6, 2))
)
refused("too few classes for a loss", "the loss fails on labels 2 of 3 classes")(
    lambda: bound(X, [0, 0, 1, 2], nn.Linear(6, 2), loss=nn.functional.cross_entropy)
)
refused("bce of numbers", "bce needs labels from 0 to 1, but they go from 2 to 2")(
    lambda: bound(X, np.full((4, 2), 2.0), nn.Linear(6, 2), loss="bce")
)
refused(
    "labels out of range",
    "classes = 3, but there is a label 5 (the labels of 3 classes are 0 … 2)",
)(lambda: bound(X, np.full((4, 2), 5), nn.Linear(6, 2), classes=3))
refused("labels below 0", "labels start at -1")(
    lambda: bound(X, np.full((4, 2), -1), nn.Linear(6, 2))
)
refused("only ignored labels", "every label is -100")(
    lambda: bound(X, np.full((4, 2), -100), nn.Linear(6, 2))
)
refused("nan", "y is not finite in row 2")(
    lambda: bound(X, [[0, 1], [1, 0], [0, np.nan], [1, 1]], nn.Linear(6, 2))
)
refused("complex labels", "must be numbers")(
    lambda: bound(X, np.ones((4, 2)) * 1j, nn.Linear(6, 2))
)
refused("an unknown name", "there is a label 'b', which classes does not name")(
    lambda: bound(X, ["a", "b"] * 2, nn.Linear(6, 2), classes=["a", "c"])
)
refused("half a class", "there is a label 0.5")(
    lambda: bound(X, np.full(4, 0.5), nn.Linear(6, 2), target="classes")
)
refused("2 as truth value", "multi-label targets lie between 0 and 1")(
    lambda: bound(X, np.full((4, 2), 2), nn.Linear(6, 2), target="multi-label")
)
refused("groups of other length", "by must be one per sample, (4,)")(
    lambda: bound(X, np.ones(4), nn.Linear(6, 1), by=[1, 2])
)
refused("inputs of other lengths", "x must be (n, …)")(
    lambda: bound({"a": X, "b": 3.0}, np.ones(4), nn.Linear(6, 1))
)
refused("several inputs for one", "does not take samples of shapes a (6,), b (6,)")(
    lambda: bound({"a": X, "b": X}, np.ones(4), nn.Linear(6, 1))
)
refused("flipped masks", "would not move those of the labels")(
    lambda: bound(
        np.zeros((4, 1, 4, 4)),
        np.eye(4, dtype=int)[None].repeat(4, 0),
        nn.Conv2d(1, 2, 1),
        transform="flip",
    )
)
refused("an unknown transform", "unknown transform 'flop'")(
    lambda: bound(X, np.ones(4), nn.Linear(6, 1), transform="noise+flop")
)
refused("a transform of another shape", "changes the shape or type")(
    lambda: bound(X, np.ones(4), nn.Linear(6, 1), transform=lambda x, g: x[:, :2])
)
refused("flipped numbers", "'flip' needs images (C, H, W)")(
    lambda: bound(X, np.ones(4), nn.Linear(6, 1), transform="flip")
)
refused("a failing collate", "collate fails: KeyError")(
    lambda: poise.federation(
        ([[1], [2, 3]], [0, 1]), [[0, 1]], collate=lambda r: {}["x"]
    )
)
refused("numbers to collate", "collate needs a list of arrays of token numbers")(
    lambda: poise.federation(([[1.5], [2, 3]], [0, 1]), [[0, 1]], collate="pad")
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_misfit_gets_one_sentence_before_training(name: str) -> None:
    case, words = REFUSED[name]
    with pytest.raises(PoiseError) as error:
        case()
    assert words in str(error.value)
