"""Every metric of a set against scikit-learn, or against an example computed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from poise.core.errors import IncompatibleParts, InvalidOption
from poise.metrics import (
    AUPRC,
    AUROC,
    F1,
    R2,
    BalancedAccuracy,
    CalibrationError,
    Concordance,
    Dice,
    IoU,
    Metric,
    OfSet,
    Perplexity,
)
from poise.metrics.named import NAMED


def value(metric: Metric, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return metric.value(metric.update(metric.init(), outputs, targets))


def some(
    seed: int, n: int = 200, classes: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    # coarse outputs have many ties
    outputs = np.round(rng.normal(size=(n, classes)) + np.eye(classes)[labels], 1)
    return torch.from_numpy(outputs).float(), torch.from_numpy(labels)


@pytest.mark.parametrize("seed", [0, 1])
def test_binary_ranking_is_that_of_scikit_learn(seed: int) -> None:
    outputs, labels = some(seed, classes=2)
    difference = (outputs[:, 1].double() - outputs[:, 0].double()).numpy()
    one_logit = torch.from_numpy(difference)
    for metric, reference in (
        (AUROC(), sk.roc_auc_score),
        (AUPRC(), sk.average_precision_score),
    ):
        expected = reference(labels.numpy(), difference)
        assert value(metric, outputs, labels) == pytest.approx(expected, abs=1e-14)
        for shape in ((-1,), (-1, 1)):
            assert value(metric, one_logit.reshape(shape), labels) == pytest.approx(
                expected, abs=1e-14
            )


def test_several_classes_are_ranked_one_against_the_rest() -> None:
    outputs, labels = some(2)
    shares = outputs.double().softmax(1).numpy()
    assert value(AUROC(), outputs, labels) == pytest.approx(
        sk.roc_auc_score(labels, shares, multi_class="ovr"), abs=1e-14
    )
    one_hot = np.eye(4)[labels]
    assert value(AUPRC(), outputs, labels) == pytest.approx(
        sk.average_precision_score(one_hot, shares), abs=1e-14
    )


def test_ties_count_half_exactly() -> None:
    labels = torch.tensor([0, 1, 0, 1, 1])
    assert value(AUROC(), torch.zeros(5), labels) == 0.5
    # pairs (positive, negative): 2 right, 1 wrong, 3 ties
    outputs = torch.tensor([1.0, 1.0, 2.0, 2.0, 1.5])
    assert value(AUROC(), outputs, labels) == (0.5 + 0 + 1 + 0.5 + 1 + 0) / 6


def test_labels_of_their_own() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, (80, 3))
    scores = np.round(rng.normal(size=(80, 3)) + truth, 1)
    outputs, targets = torch.from_numpy(scores), torch.from_numpy(truth).float()
    assert value(AUROC(), outputs, targets) == pytest.approx(
        sk.roc_auc_score(truth, scores), abs=1e-14
    )
    assert value(AUPRC(), outputs, targets) == pytest.approx(
        sk.average_precision_score(truth, scores), abs=1e-14
    )
    for average in ("macro", "micro"):
        assert value(F1(average), outputs, targets) == pytest.approx(
            sk.f1_score(truth, scores > 0, average=average), abs=1e-14
        )
    for metric in (BalancedAccuracy(), CalibrationError(), Perplexity()):
        with pytest.raises(IncompatibleParts, match="several labels"):
            value(metric, outputs, targets)


@pytest.mark.parametrize("classes", [2, 4])
def test_counts_are_those_of_scikit_learn(classes: int) -> None:
    outputs, labels = some(4, classes=classes)
    chosen = outputs.argmax(1)
    for average in ("macro", "micro"):
        assert value(F1(average), outputs, labels) == pytest.approx(
            sk.f1_score(labels, chosen, average=average), abs=1e-14
        )
    assert value(BalancedAccuracy(), outputs, labels) == pytest.approx(
        sk.balanced_accuracy_score(labels, chosen), abs=1e-14
    )
    assert value(IoU(background=True), outputs, labels) == pytest.approx(
        sk.jaccard_score(labels, chosen, average="macro"), abs=1e-14
    )


def test_a_class_that_occurs_nowhere_does_not_count() -> None:
    outputs = torch.tensor([[3.0, 0, 0], [0, 3.0, 0], [3.0, 0, 0]])
    labels = torch.tensor([0, 1, 1])
    assert value(F1(), outputs, labels) == pytest.approx(2 / 3)
    assert value(BalancedAccuracy(), outputs, labels) == 0.75


@pytest.mark.parametrize("form", ["logit", "channel", "two classes", "float mask"])
def test_overlap_of_masks(form: str) -> None:
    mask = torch.tensor([[[1, 1], [0, 0]], [[0, 1], [0, 0]]])
    logits = torch.tensor([[[2.0, -1], [1, -1]], [[-1, 3], [-2, -2]]])
    # 2 pixels right, 3 predicted, 3 true
    outputs = {
        "logit": logits,
        "channel": logits[:, None],
        "two classes": torch.stack([torch.zeros_like(logits), logits], dim=1),
        "float mask": logits[:, None],
    }[form]
    targets = mask.float()[:, None] if form == "float mask" else mask
    assert value(Dice(), outputs, targets) == pytest.approx(4 / 6)
    assert value(IoU(), outputs, targets) == pytest.approx(2 / 4)
    # the background has 4 pixels right of 5 predicted and 5 true
    assert value(Dice(background=True), outputs, targets) == pytest.approx(
        (4 / 6 + 8 / 10) / 2
    )


def test_calibration_error_by_hand() -> None:
    shares = torch.tensor([[0.88, 0.12], [0.95, 0.05], [0.32, 0.68], [0.45, 0.55]])
    labels = torch.tensor([0, 1, 1, 1])
    # 10 bins: (.5,.6]: 1 of 1 right; (.6,.7]: 1 of 1; (.8,.9]: 1 of 1; (.9,1]: 0 of 1
    expected = (0.45 + 0.32 + 0.12 + 0.95) / 4
    outputs = shares.double().log()
    assert value(CalibrationError(10), outputs, labels) == pytest.approx(
        expected, abs=1e-6
    )
    # one bin: 3 of 4 right, at a mean confidence of 0.765
    assert value(CalibrationError(1), outputs, labels) == pytest.approx(0.015, abs=1e-6)
    logit = (shares[:, 1] / shares[:, 0]).log()
    assert value(CalibrationError(10), logit, labels) == pytest.approx(
        expected, abs=1e-6
    )
    with pytest.raises(InvalidOption, match="bins"):
        CalibrationError(0)


def test_perplexity_counts_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 5, 7, generator=generator)  # 5 tokens, 7 classes
    targets = torch.randint(0, 7, (3, 5), generator=generator)
    targets[0, 3:] = -100
    loss = torch.nn.functional.cross_entropy(outputs.movedim(2, 1), targets)
    expected = math.exp(float(loss))
    assert value(Perplexity(), outputs, targets) == pytest.approx(expected, rel=1e-6)
    assert value(Perplexity(), outputs.movedim(2, 1), targets) == pytest.approx(
        expected, rel=1e-6
    )


def test_r2_is_that_of_scikit_learn_far_from_zero() -> None:
    rng = np.random.default_rng(5)
    offset = np.array([1e7, 0])
    truth = rng.normal(size=(50, 2)) + offset
    guess = truth + 0.3 * rng.normal(size=(50, 2))
    metric = R2()
    state = metric.init()
    for a in range(0, 50, 7):
        block = (torch.from_numpy(guess[a : a + 7]), torch.from_numpy(truth[a : a + 7]))
        state = metric.update(state, *block)
    assert metric.value(state) == pytest.approx(sk.r2_score(truth, guess), abs=1e-7)
    near = truth - offset
    assert value(R2(), torch.from_numpy(guess - offset), torch.from_numpy(near)) == (
        pytest.approx(sk.r2_score(near, guess - offset), abs=1e-12)
    )
    one = torch.from_numpy(near[:, 0])
    assert value(R2(), one[:, None], one) == 1.0
    assert math.isnan(value(R2(), one, torch.ones(50)))


def by_pairs(risk: list[float], times: list[float], events: list[int]) -> float:
    """Harrell's C from its definition."""
    right = pairs = 0.0
    for i, j in itertools.permutations(range(len(risk)), 2):
        first = times[i] < times[j] or (times[i] == times[j] and not events[j])
        if events[i] and first:
            pairs += 1
            right += 1.0 if risk[i] > risk[j] else 0.5 * (risk[i] == risk[j])
    return right / pairs if pairs else math.nan


def test_concordance_by_hand() -> None:
    # comparable: (0,1) (0,2) (0,3) (2,3); (1,·) is censored, 3 is the last
    risk = torch.tensor([3.0, 4.0, 1.0, 1.0])
    targets = torch.tensor([[1.0, 1], [2, 0], [3, 1], [4, 1]])
    assert value(Concordance(), risk, targets) == (0 + 1 + 1 + 0.5) / 4
    numbers = torch.tensor([1.0, 2.0, 3.0])
    assert value(Concordance(), torch.tensor([[1.0], [3.0], [2.0]]), numbers) == 2 / 3
    assert math.isnan(value(Concordance(), numbers, torch.ones(3)))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([2, 3, 1024]))
def test_concordance_is_its_definition(data: st.DataObject, block: int) -> None:
    n = data.draw(st.integers(1, 12))
    small = st.integers(0, 4).map(float)
    risk = data.draw(st.lists(small, min_size=n, max_size=n))
    times = data.draw(st.lists(small, min_size=n, max_size=n))
    events = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    targets = torch.tensor([times, [float(e) for e in events]]).T.contiguous()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poise.metrics.concordance.BLOCK", block)
        found = value(Concordance(), torch.tensor(risk), targets)
    expected = by_pairs(risk, times, events)
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    assert bool(Concordance().problem(targets)) == math.isnan(expected)


CASES = {
    **{name: some(6, n=40) for name in NAMED if name not in ("r2", "concordance")},
    "r2": (some(7, n=40)[0][:, 0], some(8, n=40)[0][:, 0]),
    "concordance": (some(7, n=40)[0][:, 0], some(8, n=40)[0][:, 0]),
}
INEXACT = {"calibration-error", "perplexity", "r2"}
"""Their states are sums of floats, which round by the order of their terms."""


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(NAMED)),
    st.lists(st.integers(1, 39), max_size=6, unique=True),
    st.randoms(),
)
def test_blocks_and_their_order_do_not_matter(name, cuts, random) -> None:
    metric = NAMED[name]
    outputs, targets = CASES[name]
    spans = list(itertools.pairwise([0, *sorted(cuts), 40]))
    random.shuffle(spans)
    states = [
        metric.update(metric.init(), outputs[a:b], targets[a:b]) for a, b in spans
    ]
    while len(states) > 1:
        k = random.randrange(len(states) - 1)
        states[k : k + 2] = [metric.merge(states[k], states[k + 1])]
    whole = value(metric, outputs, targets)
    merged = metric.value(states[0])
    assert merged == (pytest.approx(whole, rel=1e-13) if name in INEXACT else whole)
    following = metric.init()
    for a, b in spans:
        following = metric.update(following, outputs[a:b], targets[a:b])
    assert metric.value(following) == pytest.approx(merged, rel=1e-13)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_no_samples_have_no_value(name: str) -> None:
    assert math.isnan(NAMED[name].value(NAMED[name].init()))


@pytest.mark.parametrize("name", ["auroc", "auprc", "concordance"])
def test_outputs_that_are_not_numbers_have_no_value(name: str) -> None:
    outputs, targets = CASES[name]
    broken = outputs.clone()
    broken[3] = torch.nan
    assert math.isnan(value(NAMED[name], broken, targets))


def test_one_class_has_no_ranking_and_says_so() -> None:
    ones = torch.ones(5, dtype=torch.int64)
    assert math.isnan(value(AUROC(), torch.rand(5), ones))
    assert AUROC().problem(ones) == "all 5 labels are 1, two classes are needed"
    same = torch.tensor([[0.0, 1.0]] * 4)
    assert AUROC().problem(same) == "each of the 2 labels is the same for all 4 samples"
    assert AUROC().problem(torch.eye(2)) == ""
    assert Dice().problem(torch.zeros(2, 3, 3)) == "the masks have no foreground"
    with pytest.raises(IncompatibleParts, match="separate labels, not a mask"):
        Dice().update((), torch.ones(3, 6), torch.ones(3, 6))
    mask = Dice().update((), torch.ones(3, 1, 6), torch.ones(3, 6).long())
    assert Dice().value(mask) == 1.0
    assert F1().problem(torch.tensor([0.5])) == "the labels are numbers, not classes"
    assert R2().problem(torch.ones(3)) == "the targets of its 3 samples do not vary"
    censored = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    assert Concordance().problem(censored) == "it has no events"


def test_shapes_that_do_not_fit() -> None:
    for metric, outputs, targets, words in (
        (AUROC(), torch.zeros(4, 3, 2), torch.zeros(4, 5), "do not fit labels"),
        (F1(), torch.zeros(4, 2), torch.full((4,), 2), "there is a class 2"),
        (R2(), torch.zeros(4, 2), torch.zeros(4), "2 outputs per sample for 1"),
        (Concordance(), torch.zeros(4, 2), torch.zeros(4), "2 outputs per sample"),
        (Concordance(), torch.zeros(4), torch.zeros(4, 3), r"shape \(4, 3\)"),
    ):
        with pytest.raises(IncompatibleParts, match=words):
            value(metric, outputs, targets)


def test_classes_are_the_second_dimension_where_both_forms_fit() -> None:
    """PyTorch's cross-entropy reads outputs (n, C, T) so, also with T = C."""
    outputs = torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(20).reshape(5, 4) % 4
    loss = torch.nn.functional.cross_entropy(outputs, targets)
    assert value(Perplexity(), outputs, targets) == pytest.approx(float(loss.exp()))


def test_a_function_gets_the_whole_set_in_order() -> None:
    metric = OfSet(lambda outputs, targets: float(outputs[-1] - targets[0]))
    state = metric.init()
    for k in range(3):
        state = metric.update(state, torch.tensor([float(k)]), torch.tensor([k + 5]))
    assert metric.value(state) == 2.0 - 5
    with pytest.raises(
        IncompatibleParts, match="the function fails: ZeroDivisionError"
    ):
        value(OfSet(lambda o, t: 1 / 0), torch.zeros(1), torch.zeros(1))
