"""Runs by name, and nothing but runs of the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.support import run_into, small
from poise.apps.ui import library as module
from poise.apps.ui.library import Library, NoSuchRun
from poise.apps.ui.views.listing import line_of
from ui.support import copied


def test_runs_are_found_at_any_depth_in_the_order_of_seeds(
    tmp_path: Path, made: Path
) -> None:
    for place in (
        "b/seed-10",
        "b/seed-2",
        "a",
        "b/seed-2/unlearning/001",
        "deep/er/still/x",
    ):
        copied(made, tmp_path / place)
    expected = [
        "a",
        "b/seed-2",
        "b/seed-2/unlearning/001",
        "b/seed-10",
        "deep/er/still/x",
    ]
    assert Library(tmp_path).names() == expected


def test_a_folder_that_is_a_run_shows_itself(runs: Path) -> None:
    only = Library(runs / "small" / "seed-0")
    assert only.names() == ["seed-0"]
    with only.open("seed-0") as run:
        assert run.rounds == 4


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "small",
        "small/seed-1",
        "../outside",
        "small/seed-0/../../../outside",
        "/etc",
        "small/seed-0/models",
        "small\0",
        "link",
        "link/seed-0",
    ],
)
def test_no_name_leads_to_anything_but_a_run_of_the_folder(
    runs: Path, made: Path, name: str
) -> None:
    copied(made, runs.parent / "outside")
    (runs / "link").symlink_to(runs.parent / "outside")
    with pytest.raises(NoSuchRun):
        Library(runs).folder(name)
    assert Library(runs).names() == ["small/seed-0"]


def test_absolute_names_are_no_names(runs: Path, made: Path) -> None:
    outside = copied(made, runs.parent / "outside")
    with pytest.raises(NoSuchRun):
        Library(runs).folder(str(outside))


def test_an_unknown_name_is_told_with_the_nearest_known_one(runs: Path) -> None:
    with pytest.raises(NoSuchRun, match="did you mean 'small/seed-0'"):
        Library(runs).folder("smal/seed-0")


def test_what_was_made_is_kept_until_the_ledger_changes(runs: Path) -> None:
    library, calls = Library(runs), []

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [library.cached("small/seed-0", "x", make) for _ in range(3)] == [1, 1, 1]
    os.utime(runs / "small/seed-0/ledger.sqlite", (1, 1))
    assert [library.cached("small/seed-0", "x", make) for _ in range(2)] == [2, 2]
    assert library.cached("small/seed-0", "y", make) == 3


def test_memory_is_bounded_by_number_and_by_weight(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 3)
    monkeypatch.setattr(module, "MAX_BYTES", 10_000)
    library = Library(runs)
    for k in range(5):
        library.cached("small/seed-0", k, lambda: "x")
    assert [key for _, key in library._cache] == [2, 3, 4]
    library.cached("small/seed-0", "long", lambda: "x" * 9_990)
    assert [key for _, key in library._cache] == ["long"]


def test_reading_changes_nothing_that_was_recorded(runs: Path) -> None:
    before = (runs / "small/seed-0/ledger.sqlite").read_bytes()
    library = Library(runs)
    library.read_summary("small/seed-0")
    with library.open("small/seed-0") as run:
        assert run.metric("accuracy").shape == (4,)
    assert (runs / "small/seed-0/ledger.sqlite").read_bytes() == before


def test_a_branch_that_has_its_certificate_is_done_however_early_it_ended(
    tmp_path: Path,
) -> None:
    folder = run_into(small(rounds=6), tmp_path / "runs", stop_after=3)
    library = Library(tmp_path / "runs")
    (name,) = library.names()
    assert library.read_summary(name).state == "stopped"
    (folder / "certificate.json").write_text("{}")
    assert library.read_summary(name).state == "done"
    line = line_of(name, library.read_summary(name))
    assert (line.progress, line.progress_words) == (1.0, "3 rounds")
    assert library.name(library.folder(f"{name}/../{Path(name).name}")) == name
