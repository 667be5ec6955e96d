"""The public surface changes only with a line in the changelog (docs/policy.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import poise
from documentation.blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import surface

BEFORE = {
    "python": {"poise.audit": "function", "poise.audit(alarm)": "0.01"},
    "files": {"[weighting] name = exp": "part", "[weighting] name = exp: alpha": "0.2"},
    "ledger": {"rounds": "table"},
}


@pytest.mark.slow
def test_the_changelog_names_every_change_of_the_surface() -> None:
    pytest.importorskip("flwr", reason="the extra [flower] is not installed")
    pytest.importorskip("fastapi", reason="the extra [ui] is not installed")
    _, before = surface.stored()
    found = surface.changes(before, surface.current())
    missing = surface.unnamed(found, "Unreleased")
    assert missing == [], "name these in CHANGELOG.md: " + "\n".join(map(str, missing))


def test_the_stored_surface_is_that_of_this_version() -> None:
    version, stored = surface.stored()
    assert version == poise.__version__, "run: python tools/surface.py --release"
    assert set(stored) == {"python", "files", "commands", "ledger", "json"}
    assert all(stored.values()), "no kind is empty"


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("python", "poise.train(rounds)"),
        ("python", "poise.samplers.MD"),
        ("python", "poise.flower.strategies.FedSoftMax"),
        ("files", "[run] rounds"),
        ("files", "[unlearning] epsilon"),
        ("files", "[sweep] rungs"),
        ("files", "[weighting] name = exp: alpha"),
        ("files", "[data] partition = dirichlet: alpha"),
        ("files", "[task] loss = cross-entropy"),
        ("files", "[task] metrics = auroc"),
        ("commands", "poise unlearn --clients"),
        ("commands", "poise deploy up"),
        ("ledger", "rounds.bytes_up"),
        ("json", "poise run --json: runs.digest"),
        ("json", "certificate.json: guarantee.epsilon"),
        ("json", "GET /api/runs"),
    ],
)
def test_every_kind_of_promise_is_in_the_surface(kind: str, item: str) -> None:
    assert item in surface.stored()[1][kind]


def test_added_removed_and_changed_items_are_found() -> None:
    now = {
        "python": {"poise.audit": "function", "poise.audit(alarm)": "0.05"},
        "files": {
            "[weighting] name = new": "part",
            "[weighting] name = new: beta": "1.0",
        },
        "ledger": {"rounds": "table", "rounds.loss": "REAL"},
    }
    assert [str(change) for change in surface.changes(BEFORE, now)] == [
        "files: [weighting] name = exp (removed)",
        "files: [weighting] name = new (added)",
        "ledger: rounds.loss (added)",
        "python: poise.audit(alarm) (changed from 0.01 to 0.05)",
    ]
    assert surface.changes(BEFORE, BEFORE) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("`poise.audit(…, alarm=0.05)`: the default is higher.", True),
        ("The default of `alarm` in the audit is higher.", True),
        ("The audit's alarm is higher.", False),  # not in code
        ("`alarm` is higher.", False),  # of what?
        ("`poise.audit` is faster.", False),  # the option is not named
        ("`alarms` of `auditing`.", False),  # other words
    ],
)
def test_a_line_names_the_item_in_code_and_what_it_belongs_to(
    line: str, named: bool
) -> None:
    change = surface.Change("python", "poise.audit(alarm)", "changed")
    assert surface.is_named(change, [line]) is named


def test_a_part_may_be_named_by_its_class() -> None:
    part = "[sampler] name = clustered-by-size"
    change = surface.Change("files", part, "added")
    assert surface.is_named(change, ["Sampler `ClusteredBySize(m)`."])
    assert not surface.is_named(change, ["Sampler `ClusteredBySimilarity(m)`."])


def test_only_the_section_unreleased_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "CHANGELOG.md"
    file.write_text("# C\n\n## Unreleased\n\n- `b`\n\n## 0.1.0\n\n- `rounds.loss`\n")
    monkeypatch.setattr(surface, "CHANGELOG", file)
    change = surface.Change("ledger", "rounds.loss", "added")
    assert surface.unnamed([change], "Unreleased") == [change]
    assert surface.unnamed([change], "Unreleased", "0.1.0") == []


def test_a_version_is_stored_once_and_only_with_a_complete_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "surface.json"
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# C\n\n## Unreleased\n\n- nothing\n")
    monkeypatch.setattr(surface, "STORED", stored)
    monkeypatch.setattr(surface, "CHANGELOG", changelog)
    monkeypatch.setattr(surface, "current", lambda: BEFORE)
    surface.release("1.0")
    with pytest.raises(SystemExit, match=r"has the surface of 1\.0 already"):
        surface.release("1.0")
    now = {**BEFORE, "ledger": {"rounds": "table", "rounds.loss": "REAL"}}
    monkeypatch.setattr(surface, "current", lambda: now)
    with pytest.raises(SystemExit, match=r"does not name:\nledger: rounds\.loss"):
        surface.release("1.1")
    changelog.write_text("# C\n\n## 1.1\n\n- The ledger has `rounds.loss`.\n")
    surface.release("1.1")
    assert json.loads(stored.read_text())["version"] == "1.1"
