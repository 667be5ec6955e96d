"""Rules that end a run early: the same rounds as a run cut by hand, at every resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import call, opened, run_into, small
from poise.backends import Local
from poise.core.directions import Directions
from poise.core.end_rules import Condition, EndRules, EndTracker
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.types import Record
from poise.training import resume

ROUNDS = 12


def record(n: int, **values: Any) -> Record:
    """A round that sent 100 bytes up and 10 down and took 2 seconds."""
    return Record(n, float(n), (), values, bytes_up=100, bytes_down=10, seconds=2.0)


def ended_after(rules: EndRules, values: list[float], name: str = "accuracy") -> int:
    """The rounds until the rules end a run with these measurements; 0 for never."""
    tracker = EndTracker(rules)
    for n, value in enumerate(values):
        tracker.add(record(n, **{name: value}))
        if tracker.reason:
            return n + 1
    return 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run of 12 rounds, with an accuracy after each."""
    return run_into(small(rounds=ROUNDS), tmp_path_factory.mktemp("whole"))


def by_hand(whole: Path, tmp_path: Path, rounds: int) -> str:
    """The digest of the same run with fewer planned rounds."""
    with opened(whole) as run:
        expected = run.digest_after(rounds)
    path = run_into(small(rounds=rounds), tmp_path / f"cut at {rounds}")
    with opened(path) as cut:
        assert cut.digest == expected
        return cut.digest


# the rules, on values worked out by hand


@pytest.mark.parametrize(
    ("text", "values", "after"),
    [
        ("accuracy >= 0.9", [0.5, 0.89, 0.9, 0.2], 3),
        ("accuracy > 0.9", [0.5, 0.9, 0.91], 3),
        ("accuracy <= 0.3", [0.5, np.nan, 0.3], 3),
        ("accuracy < 0.3", [0.5, 0.3, 0.31], 0),
        ("loss <= 0.3", [0.1, 0.2], 0),
    ],
)
def test_a_condition_ends_at_the_first_value_that_meets_it(
    text: str, values: list[float], after: int
) -> None:
    assert ended_after(EndRules(Condition.parse(text)), values) == after


def test_patience_counts_measurements_since_the_best() -> None:
    rules = EndRules(patience=3, patience_metric="accuracy")
    # best in round 2 (0.6); rounds 3, 4 and 5 are no better, equal values included
    assert ended_after(rules, [0.5, 0.6, 0.6, 0.1, 0.59, 0.9]) == 5
    # a better value begins the count again: best in round 4
    assert ended_after(rules, [0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5]) == 7
    assert ended_after(rules, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == 0


def test_patience_on_a_loss_waits_for_smaller_values() -> None:
    rules = EndRules(patience=2, patience_metric="loss")
    assert ended_after(rules, [3.0, 2.0, 1.0, 1.5, 1.2], "loss") == 5
    declared = EndRules(
        patience=2,
        patience_metric="gap",
        directions=Directions(lower=frozenset({"gap"})),
    )
    assert ended_after(declared, [3.0, 2.0, 1.0, 1.5, 1.2], "gap") == 5


def test_values_that_are_no_numbers_are_no_better() -> None:
    rules = EndRules(patience=2, patience_metric="loss")
    assert ended_after(rules, [np.nan, np.nan, 1.0], "loss") == 2
    assert ended_after(rules, [1.0, np.nan, np.nan], "loss") == 3


def test_a_budget_of_bytes_ends_with_the_round_that_reaches_it() -> None:
    # 110 bytes a round: 330 after three
    assert ended_after(EndRules(max_bytes=330), [0.1] * 9) == 3
    assert ended_after(EndRules(max_bytes=331), [0.1] * 9) == 4


def test_a_budget_of_seconds_counts_recorded_seconds() -> None:
    assert ended_after(EndRules(max_seconds=5.0), [0.1] * 9) == 3


def test_a_budget_asks_for_a_measurement_and_ends_only_there() -> None:
    tracker = EndTracker(EndRules(max_bytes=220))
    assert not tracker.spends(record(0), 0.0)
    tracker.add(record(0))
    assert tracker.spends(record(1), 0.0)
    tracker.add(record(1))
    assert not tracker.reason
    tracker.add(record(2, accuracy=0.5))
    assert "330 bytes were sent" in tracker.reason


# whole runs


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_ends_as_if_it_had_been_cut_by_hand(
    workers: int, whole: Path, tmp_path: Path
) -> None:
    with opened(whole) as run:
        accuracy = run.metric("accuracy")
    bound = float(np.sort(accuracy)[6])
    first = int(np.flatnonzero(accuracy >= bound)[0]) + 1
    assert 1 < first < ROUNDS
    text = small(rounds=ROUNDS, stop_when=f'"accuracy >= {bound!r}"')
    path = run_into(text, tmp_path / "rule", stop_after=1)
    ended = resume(path, backend=Local(workers=workers))
    assert (ended.rounds, ended.meta["status"]) == (first, "done")
    assert f"accuracy is {bound:.6g}"[:14] in ended.ending
    assert ended.digest == by_hand(whole, tmp_path, first)
    assert any(f"ended early after round {first}" in event for event in ended.events)
    ended.close()


def test_a_budget_of_bytes_ends_a_run_at_the_same_round(
    whole: Path, tmp_path: Path
) -> None:
    with opened(whole) as run:
        total = np.cumsum(run.bytes_up + run.bytes_down)
    text = small(rounds=ROUNDS, max_bytes=int(total[4]))
    path = run_into(text, tmp_path / "bytes")
    with opened(path) as ended:
        assert ended.rounds == 5
        assert ended.digest == by_hand(whole, tmp_path, 5)


def test_a_budget_that_ends_between_measurements_measures_the_last_model(
    tmp_path: Path,
) -> None:
    text = small(rounds=ROUNDS, evaluate_every=4)
    sparse = run_into(text, tmp_path / "sparse")
    with opened(sparse) as run:
        total = np.cumsum(run.bytes_up + run.bytes_down)
    path = run_into(text + f"max_bytes = {int(total[5])}\n", tmp_path / "bytes")
    cut = run_into(small(rounds=6, evaluate_every=4), tmp_path / "cut")
    with opened(path) as ended, opened(cut) as hand:
        assert ended.rounds == 6
        assert np.isfinite(ended.metric("accuracy")[-1])
        assert ended.digest == hand.digest


def test_seconds_end_a_run_and_the_end_stays(tmp_path: Path) -> None:
    path = run_into(small(rounds=ROUNDS, max_seconds=1e-9), tmp_path)
    with opened(path) as ended:
        assert (ended.rounds, ended.meta["status"]) == (1, "done")
        assert "max_seconds" in ended.ending
    again = resume(path)
    assert again.rounds == 1
    again.close()


def test_patience_ends_a_run_where_its_values_stop_improving(
    whole: Path, tmp_path: Path
) -> None:
    with opened(whole) as run:
        loss = run.metric("loss")
    best, since, expected = np.inf, 0, ROUNDS
    for n, value in enumerate(loss):
        since = 0 if value < best else since + 1
        best = min(best, value)
        if since == 1:
            expected = n + 1
            break
    text = small(rounds=ROUNDS, patience=1, patience_metric='"loss"')
    with opened(run_into(text, tmp_path / "patient")) as ended:
        assert ended.rounds == expected


def test_resume_keeps_the_end_until_rounds_or_the_rule_change(
    whole: Path, tmp_path: Path
) -> None:
    text = small(rounds=ROUNDS, stop_when='"accuracy >= 0.0"')
    path = run_into(text, tmp_path / "ended")
    with opened(path) as ended:
        assert (ended.rounds, ended.meta["status"]) == (1, "done")
        digest, events = ended.digest, ended.events
    kept = resume(path)
    assert (kept.rounds, kept.digest, kept.events) == (1, digest, events)
    kept.close()
    changed = shutil.copytree(path, tmp_path / "changed")
    file = changed / "experiment.toml"
    file.write_text(file.read_text().replace(">= 0.0", ">= 2.0"))
    for folder, more in ((path, ROUNDS), (changed, None)):
        longer = resume(folder, rounds=more)
        with opened(whole) as run:
            assert (longer.rounds, longer.digest) == (ROUNDS, run.digest)
        assert longer.ending == ""
        longer.close()


def test_the_command_says_why_a_run_ended(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text(small(rounds=5))
    outcome = call(
        "run", file, "--stop-when", "accuracy >= 0", "--out", tmp_path / "out"
    )
    assert outcome.code == 0, outcome
    assert "ended early after round 1: stop_when = 'accuracy >= 0'" in outcome.err


def test_the_report_says_why_a_run_ended(tmp_path: Path) -> None:
    path = run_into(small(rounds=5, stop_when='"accuracy >= 0.0"'), tmp_path / "a")
    page = tmp_path / "page.html"
    assert call("report", path, "--out", page).code == 0
    text = page.read_text()
    assert "done early: stop_when = &#x27;accuracy &gt;= 0&#x27;" in text
    assert "not finished" not in text


def test_a_rule_may_name_a_metric_that_the_run_would_not_measure(
    tmp_path: Path,
) -> None:
    path = run_into(small(rounds=4, stop_when='"train_loss <= 9.0"'), tmp_path / "a")
    with opened(path) as run:
        assert run.rounds == 1
        assert "train_loss" in run.metrics


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"stop_when": '"acuracy >= 1"'}, InvalidOption, "unknown metric 'acuracy'"),
        (
            {"stop_when": '"client_loss <= 1"'},
            InvalidOption,
            "client_loss has one value per client",
        ),
        (
            {"patience": 2, "patience_metric": '"nothing"'},
            InvalidOption,
            "unknown metric 'nothing'",
        ),
    ],
)
def test_a_rule_with_a_wrong_metric_is_refused_at_its_line(
    options: dict[str, object], error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as caught:
        run_into(small(rounds=3, **options), tmp_path)
    assert f"line {len(small(rounds=3, **options).splitlines())}" in str(caught.value)


def test_shards_refuse_ends_that_depend_on_the_data(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=4, samples=80, seed=0)
    with pytest.raises(IncompatibleParts, match="stop_when would end a shard"):
        poise.shards(
            fed,
            poise.task("logistic"),
            shards=2,
            out=tmp_path / "s",
            solver=poise.solvers.SGD(lr=0.1, steps=1, batch_size=8),
            rounds=2,
            stop_when="accuracy >= 0.5",
        )


def test_retraining_after_a_request_follows_its_own_goal(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=5, samples=100, seed=0)
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.05, steps=2, batch_size=8),
        rounds=4,
        keep="unlearnable",
        max_bytes=1,
        out=tmp_path / "run",
    )
    assert run.rounds == 1
    result = poise.unlearn(
        run, clients=[1], method="scratch", min_rounds=0, max_rounds=3, target=1.0
    )
    assert result.rounds == 3
