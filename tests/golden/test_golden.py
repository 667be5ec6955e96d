"""Results of small runs with every part of every slot, bit for bit those of ``golden.json``.

On a machine that rounds as the one that wrote the file, all hashes must be equal: each names what
changed. On another one the numbers of the summaries must agree within 1e-4, and a warning says so.
Runs that must not depend on interruptions or on the number of workers are held against each other
on every machine.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import poise
from golden.cases import CASES, WHOLE, parts_in
from golden.running import GOLDEN, TABLES, fingerprint, outcome
from parameters import thorough_except
from poise.config.unlearn_request import METHODS
from poise.core.parts import SLOTS, parts_of

STORED: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
SAME_MACHINE = STORED["fingerprint"] == fingerprint()
CLOSE = 1e-4
EXCEPT = {("backend", "flower"), ("backend", "ray")}
"""Parts without a golden case: they need nodes or a cluster (tests/backends)."""


def first_with_each_part() -> list[str]:
    """Return the cases that have a part or a way of unlearning that no earlier case has."""
    seen: set[Any] = set()
    chosen = []
    for name, case in WHOLE.items():
        found = {*parts_in(case.options)}
        found |= {("unlearn", request.get("method", "sifu")) for request in case.forget}
        if found - seen:
            chosen.append(name)
        seen |= found
    return chosen


@pytest.mark.parametrize("name", thorough_except(first_with_each_part(), WHOLE))
def test_a_run_ends_as_it_always_did(name: str) -> None:
    assert name in STORED["cases"], (
        f"{GOLDEN.name} does not know {name}: python tests/golden/write.py {name}"
    )
    stored, found = STORED["cases"][name], outcome(name)
    if SAME_MACHINE:
        changed = [
            what
            for what in {**stored["hashes"], **found["hashes"]}
            if _differs(stored, found, what)
        ]
        assert not changed, (
            f"{name}: changed: {', '.join(changed)}; was {stored['summary']}, is {found['summary']}"
        )
    else:
        warnings.warn(
            "another machine wrote golden.json: numbers are compared within 1e-4, not bits",
            stacklevel=1,
        )
    assert _apart(stored["summary"], found["summary"]) == ""


AGAIN = [name for name in CASES if name not in WHOLE]
STOPPED = [name for name in AGAIN if name.endswith("+stopped")]
QUICK = STOPPED[::12] + [name for name in AGAIN if name not in STOPPED][::4]


@pytest.mark.parametrize("name", thorough_except(QUICK, AGAIN))
def test_a_run_ends_the_same(name: str) -> None:
    """Stopped or killed half way and taken up again, or with two workers."""
    whole, found = outcome(CASES[name].like), outcome(name)
    changed = [what for what in whole["hashes"] if _differs(whole, found, what)]
    assert not changed, f"{name}: other than {CASES[name].like}: {', '.join(changed)}"


def _differs(one: dict[str, Any], other: dict[str, Any], what: str) -> bool:
    return one["hashes"].get(what) != other["hashes"].get(what)


def _apart(one: Any, other: Any, where: str = "") -> str:
    """Where two summaries differ first, in words; an accuracy may differ by one or two samples."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = list({**one, **other})
        return next(
            (said for k in keys if (said := _apart(one.get(k), other.get(k), f"{where}/{k}"))), ""
        )
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((said for k, (a, b) in pairs if (said := _apart(a, b, f"{where}/{k}"))), "")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (one, other))
    slack = 0.051 if "accuracy" in where else CLOSE
    same = (
        np.isclose(one, other, rtol=CLOSE, atol=slack, equal_nan=True) if numbers else one == other
    )
    return "" if same else f"{where} was {one}, is {other}"


@pytest.mark.parametrize("slot", SLOTS)
def test_every_part_has_a_golden_case(slot: str) -> None:
    for module in (
        "aggregators",
        "attacks",
        "backends",
        "channels",
        "clocks",
        "personal",
        "samplers",
        "servers",
        "solvers",
        "weightings",
    ):
        getattr(poise, module)
    registered = {
        (slot, name) for name, cls in parts_of(slot).items() if cls.__module__.startswith("poise.")
    }
    covered = {found for case in WHOLE.values() for found in parts_in(case.options)}
    missing = sorted(name for _, name in registered - covered - EXCEPT)
    assert not missing, (
        f"no golden case has the {slot} {', '.join(missing)}: add one to tests/golden/cases.py"
    )


def test_every_method_of_forgetting_has_a_golden_case() -> None:
    asked = {request.get("method", "sifu") for case in WHOLE.values() for request in case.forget}
    assert asked == set(METHODS)


def test_nothing_is_stored_that_no_case_gives() -> None:
    assert set(STORED["cases"]) == set(WHOLE)


# the cases reach what they are there for
# -------------------------------------------------------------


def summary(name: str) -> dict[str, Any]:
    return STORED["cases"][name]["summary"]


def test_free_riders_are_quarantined() -> None:
    assert summary("audit-warn")["audit events"] == 2
    for name in ("audit-quarantine", "audit-quarantine-sampled", "audit-quarantine-window"):
        assert summary(name)["audit events"] == 2, name
    same = {name: STORED["cases"][name]["hashes"] for name in ("audit-warn", "audit-quarantine")}
    assert same["audit-warn"]["weights"] != same["audit-quarantine"]["weights"]
    assert same["audit-warn"]["audit"] != same["audit-quarantine"]["audit"]


def test_updates_are_refused_and_models_are_dropped() -> None:
    for name in (
        "drop",
        "drop-asynchronous",
        "synchronous-deadline",
        "synchronous-enough",
        "synchronous-both",
    ):
        assert summary(name)["refusals"] > 0, name
    kept = {name: summary(name)["kept"] for name in ("keep-all", "keep-unlearnable", "sgd")}
    assert kept["keep-all"] == list(range(6))
    assert kept["sgd"] == [0, 4, 5]
    assert len(kept["keep-unlearnable"]) > 3, "versions that only a request to forget needs"


def test_requests_restart_half_way() -> None:
    node = [
        summary(name)["request 1: restart"][1] for name in ("unlearn-sifu", "unlearn-sifu-kept")
    ]
    assert all(0 < n < 8 for n in node), node
    assert summary("unlearn-sifu-thrice")["request 3: restart"][0] < 2, (
        "the third goes back behind the second"
    )


def test_certificates_have_no_table_that_is_left_out() -> None:
    from poise.unlearning.verification import TABLES as EXAMINED

    assert {*TABLES, "evidence"} == set(EXAMINED)
