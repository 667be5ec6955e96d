"""The audit's page and the quarantine, against `poise audit` and against runs that are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faults.support import call, run_into
from poise.apps.ui import quarantine
from poise.apps.ui.views import audit as views
from poise.config.experiment import parse
from poise.core.errors import InvalidOption
from poise.results import Run, open_run
from poise.training import compose
from ui.samples import attacked


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacked(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    found = open_run(folder)
    yield found
    found.close()
    (folder / "console" / quarantine.FILE).unlink(missing_ok=True)


def test_it_says_what_the_command_says(run: Run, folder: Path, tmp_path: Path) -> None:
    said = json.loads(
        call("audit", folder, "--out", tmp_path / "page.html", "--json").out
    )["runs"][0]
    found = views.audit_run(run)
    rows = views.ranking(found).rows
    assert [row.client for row in rows if row.suspected] == sorted(
        said["suspects"], key=lambda i: -said["scores"][i]
    )
    for row in rows:
        assert row.score == said["scores"][row.client]
        assert row.p == said["p_values"][row.client]
    for client, why in said["why"].items():
        assert why.endswith(found.words[int(client)])


def test_the_truth_is_that_of_the_attacks(run: Run) -> None:
    true = views.free_riders(run)
    assert true == [2, 5, 7]
    found = views.audit_run(run)
    chosen = next(row for row in views.thresholds(found, true) if row.chosen)
    suspects = set(found.audit.suspects)
    assert (chosen.found, chosen.false_alarms) == (
        len(suspects & {2, 5, 7}),
        len(suspects - {2, 5, 7}),
    )
    titles = [plot.title for plot in views.plots(run, found, true)]
    assert titles[0] == "Detection rate and false alarms (ROC)"
    assert "Detection rate and false alarms (ROC)" not in [
        plot.title for plot in views.plots(run, found)
    ]


def test_another_alarm_changes_who_is_suspected_and_nothing_else(run: Run) -> None:
    found = views.audit_run(run)
    strict = found.at(1e-12)
    assert strict.audit.suspects == [
        int(i) for i in np.flatnonzero(found.audit.p_values <= 1e-12)
    ]
    assert np.array_equal(strict.audit.scores, found.audit.scores)
    with pytest.raises(InvalidOption, match="alarm"):
        found.at(0.0)


def test_decisions_are_kept_with_who_when_and_why(run: Run, folder: Path) -> None:
    before = (folder / "ledger.sqlite").read_bytes()
    made = quarantine.decide(
        run, 2, "quarantine", "A. Operator", "sends nothing", 9.0, 1e-9
    )
    assert quarantine.decisions(folder) == [made]
    assert (made.who, made.why, made.rounds, made.owner) == (
        "A. Operator",
        "sends nothing",
        12,
        2,
    )
    quarantine.decide(run, 5, "quarantine", "A. Operator", "copies")
    assert quarantine.excluded(quarantine.decisions(folder)) == [2, 5]
    quarantine.decide(run, 2, "release", "B. Other", "was a broken sensor")
    assert quarantine.excluded(quarantine.decisions(folder)) == [5]
    assert len(quarantine.decisions(folder)) == 3
    assert (folder / "ledger.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("client", "action", "who", "why", "says"),
    [
        (99, "quarantine", "me", "so", "this run has no client 99"),
        (2, "quarantine", " ", "so", "who decides is missing"),
        (2, "quarantine", "me", "", "reason is missing"),
        (2, "release", "me", "so", "is not in quarantine"),
        (2, "forget", "me", "so", "is not in quarantine"),
    ],
)
def test_decisions_without_sense_are_refused(
    run: Run, client: int, action: str, who: str, why: str, says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):
        quarantine.decide(run, client, action, who, why)


def test_the_experiment_without_some_leaves_the_others_as_they_were(run: Run) -> None:
    text = quarantine.experiment_without(run, [2, 3])
    left, whole = (compose(parse(t), 0) for t in (text, run.experiment))
    stay = [0, 1, 4, 5, 6, 7, 8, 9]
    assert left.federation.clients == 8
    assert left.federation.members.tolist() == stay
    for k, c in enumerate(stay):
        assert (
            left.federation.client(k)[1].tolist()
            == whole.federation.client(c)[1].tolist()
        )
    assert [stay[c] for attack in left.parts.attacks for c in attack.clients] == [7, 5]
    assert left.parts.solver == whole.parts.solver


def test_owners_are_named_where_some_had_left_before(run: Run, tmp_path: Path) -> None:
    fewer = open_run(run_into(quarantine.experiment_without(run, [0]), tmp_path))
    again = parse(quarantine.experiment_without(fewer, [1])).tables["data"][
        "without"
    ]  # client 1 is owner 2
    fewer.close()
    assert again == [0, 2]


def test_without_everyone_there_is_nothing(run: Run) -> None:
    with pytest.raises(InvalidOption, match="no client would remain"):
        quarantine.experiment_without(run, range(10))
