"""The form of a request is the command with the same options; its page is that of the histories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from faults.support import call
from poise.apps.ui.jobs import ConsoleJob
from poise.apps.ui.views import unlearning as views
from poise.core.errors import InvalidOption
from poise.results import Run, open_run
from ui.samples import FAST, forgetful


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return forgetful(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    found = open_run(folder)
    yield found
    found.close()


def test_the_cost_is_what_the_command_says(run: Run, folder: Path) -> None:
    asked = views.RequestOptions.from_form(
        {"clients": "2,3", "method": "sifu", "epsilon": "10", "delta": ""}
    )
    said = json.loads(
        call("unlearn", folder, *asked.arguments(), "--plan", "--json").out
    )
    with views.opened(run) as histories:
        looked = asdict(asked.cost(run, histories))
    assert json.loads(json.dumps(looked)) == {
        **said,
        "psi": {str(k): v for k, v in said["psi"].items()},
    }


def test_options_become_arguments() -> None:
    asked = views.RequestOptions.from_form(
        {
            "clients": "3, 7",
            "sigma": "0.1",
            "max_rounds": "12",
            "heuristic": "on",
            "held_out": "",
        }
    )
    assert asked.arguments() == [
        "--clients",
        "3, 7",
        "--sigma",
        "0.1",
        "--max-rounds",
        "12",
        "--heuristic",
    ]
    assert views.RequestOptions.from_form(asked.form()) == asked


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"clients": "x"}, "is not a list of clients"),
        ({"clients": "99"}, "this run has no client 99"),
        ({"clients": "1"}, "unlearned these clients already"),
        ({"clients": "0..9999999999"}, "this run has no client 9999999999"),
        ({"clients": "2", "epsilon": "much"}, "epsilon must be a number"),
        ({"clients": "2", "method": "magic"}, "method = 'magic'"),
        ({"clients": "2", "out": "/tmp"}, "no option 'out'"),
        (
            {"clients": "2", "min_rounds": "9", "max_rounds": "3"},
            "min_rounds 9 is above",
        ),
    ],
)
def test_mistakes_are_told_before_anything_happens(
    run: Run, form: dict[str, str], says: str
) -> None:
    with views.opened(run) as histories, pytest.raises(InvalidOption, match=says):
        views.RequestOptions.from_form(form).cost(run, histories)


def test_the_page_tells_the_requests(run: Run) -> None:
    with views.opened(run) as histories:
        told = views.unlearning_view(run, histories)
    (row,) = told.rows
    assert row["request"] == 1
    assert row["cells"][1] == "1"
    assert told.forgotten == [1]
    assert [plot.title for plot in told.plots] == [
        "Restart tree",
        "Sensitivity to the clients, the training",
        "Sensitivity to the clients, branch 1",
    ]


def test_a_branch_shows_the_tree_it_belongs_to(folder: Path) -> None:
    branch = open_run(folder / "unlearning" / "001")
    with views.opened(branch) as histories:
        assert histories.root.path == folder
        assert len(views.unlearning_view(branch, histories).rows) == 1
    branch.close()


def job(state: str, seen: str, **outcome: object) -> ConsoleJob:
    about = {"request": 1, "seen": seen}
    return ConsoleJob(
        "x", "verify", "", "", "2026-11-16T10:00:00+00:00", state, outcome, "", about
    )  # type: ignore[arg-type]


def test_the_newest_verification_counts() -> None:
    holds, broken = (
        job("done", "a", holds=True, checks=["one", "two"]),
        job("failed", "a", error="altered"),
    )
    assert views.verification(1, "a", [])[0] == "unknown"
    assert views.verification(1, "a", [holds, broken]) == (
        "holds",
        f"holds: 2 checks ({holds.began})",
    )
    assert views.verification(1, "a", [broken, holds]) == ("broken", "altered")
    assert views.verification(1, "b", [holds])[0] == "stale"
    assert views.verification(2, "a", [holds])[0] == "unknown"


def test_what_was_verified_is_known_by_its_content(run: Run, folder: Path) -> None:
    with views.opened(run) as histories:
        before = views.fingerprint(histories, 1)
        file = folder / "unlearning" / "001" / "certificate.json"
        whole = file.read_bytes()
        file.write_bytes(whole + b" ")
        assert views.fingerprint(histories, 1) != before
        file.write_bytes(whole)
        assert views.fingerprint(histories, 1) == before


def test_an_open_request_fills_the_form(tmp_path: Path) -> None:
    whole = forgetful(tmp_path)
    (whole / "unlearning" / "001" / "certificate.json").unlink()
    run = open_run(whole)
    with views.opened(run) as histories:
        waiting = views.unlearning_view(run, histories).open
    run.close()
    assert waiting is not None
    done = call("unlearn", whole, *waiting.arguments(), "--json")
    assert done.code == 0, done.err
    assert FAST[1] == str(json.loads(done.out)["request"]["min rounds"])
