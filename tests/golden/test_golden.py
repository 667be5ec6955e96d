"""Small runs with every part of every slot end bit for bit as recorded in ``golden.json``.

On a machine that rounds like the one that wrote the file, all hashes must be equal; the name of a
hash shows what changed. On another machine, the numbers of the summaries must agree within 1e-4,
and a warning says so. On every machine, results must not depend on interruptions or on the number
of workers.
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
EXCEPT = {("backend", "flower"), ("backend", "ray"), ("schedule", "function")}
"""Parts without a golden case: they need nodes, a cluster (tests/backends) or a function."""


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
    stored = STORED["cases"][name]
    result = outcome(name)
    if SAME_MACHINE:
        changed = _changed_hashes(stored, result)
        assert not changed, (
            f"{name}: changed: {changed}; was {stored['summary']}, is {result['summary']}"
        )
    else:
        warnings.warn(
            "another machine wrote golden.json: numbers are compared within 1e-4, not bits",
            stacklevel=1,
        )
    assert _first_difference(stored["summary"], result["summary"]) == ""


AGAIN = [name for name in CASES if name not in WHOLE]
STOPPED = [name for name in AGAIN if name.endswith("+stopped")]
QUICK = STOPPED[::12] + [name for name in AGAIN if name not in STOPPED][::4]


@pytest.mark.parametrize("name", thorough_except(QUICK, AGAIN))
def test_a_run_ends_the_same(name: str) -> None:
    """A run stopped or killed half way and resumed, or with two workers, ends like a whole one."""
    whole = outcome(CASES[name].like)
    changed = _changed_hashes(whole, outcome(name))
    assert not changed, f"{name}: differs from {CASES[name].like}: {changed}"


def _changed_hashes(stored: dict[str, Any], result: dict[str, Any]) -> str:
    """Return the names of the hashes that differ; empty if there are none."""
    before = stored["hashes"]
    now = result["hashes"]
    names = {**before, **now}
    return ", ".join(name for name in names if before.get(name) != now.get(name))


def _first_difference(stored: Any, result: Any, where: str = "") -> str:
    """Return the first difference of two summaries; an accuracy may differ by two samples."""
    if isinstance(stored, dict) and isinstance(result, dict):
        for key in {**stored, **result}:
            difference = _first_difference(
                stored.get(key), result.get(key), f"{where}/{key}"
            )
            if difference:
                return difference
        return ""
    if (
        isinstance(stored, list)
        and isinstance(result, list)
        and len(stored) == len(result)
    ):
        for index, (before, now) in enumerate(zip(stored, result, strict=True)):
            difference = _first_difference(before, now, f"{where}/{index}")
            if difference:
                return difference
        return ""
    if _is_number(stored) and _is_number(result):
        slack = 0.051 if "accuracy" in where else CLOSE
        same = bool(np.isclose(stored, result, rtol=CLOSE, atol=slack, equal_nan=True))
    else:
        same = bool(stored == result)
    return "" if same else f"{where} was {stored}, is {result}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        (slot, name)
        for name, cls in parts_of(slot).items()
        if cls.__module__.startswith("poise.")
    }
    covered = {part for case in WHOLE.values() for part in parts_in(case.options)}
    missing = sorted(name for _, name in registered - covered - EXCEPT)
    assert not missing, (
        f"no golden case has the {slot} {', '.join(missing)}: add one to tests/golden/cases.py"
    )


def test_every_unlearning_method_has_a_golden_case() -> None:
    requests = [request for case in WHOLE.values() for request in case.forget]
    several_runs = {"shards"}  # tests/unlearning/test_shards.py
    covered = {request.get("method", "sifu") for request in requests}
    assert covered == set(METHODS) - several_runs


def test_every_stored_result_has_a_case() -> None:
    assert set(STORED["cases"]) == set(WHOLE)


# the cases exercise the behaviour that they are meant to exercise ---------------------------------


def summary(name: str) -> dict[str, Any]:
    return STORED["cases"][name]["summary"]


def test_free_riders_are_quarantined() -> None:
    assert summary("audit-warn")["audit events"] == 2
    for name in (
        "audit-quarantine",
        "audit-quarantine-sampled",
        "audit-quarantine-window",
    ):
        assert summary(name)["audit events"] == 2, name
    same = {
        name: STORED["cases"][name]["hashes"]
        for name in ("audit-warn", "audit-quarantine")
    }
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
    kept = {
        name: summary(name)["kept"] for name in ("keep-all", "keep-unlearnable", "sgd")
    }
    assert kept["keep-all"] == list(range(6))
    assert kept["sgd"] == [0, 4, 5]
    assert len(kept["keep-unlearnable"]) > 3, (
        "versions that only an unlearning request needs"
    )


def test_requests_restart_half_way() -> None:
    node = [
        summary(name)["request 1: restart"][1]
        for name in ("unlearn-sifu", "unlearn-sifu-kept")
    ]
    assert all(0 < n < 8 for n in node), node
    assert summary("unlearn-sifu-thrice")["request 3: restart"][0] < 2, (
        "the third goes back behind the second"
    )


def test_the_hashes_cover_every_table_of_a_certificate() -> None:
    from poise.unlearning.verification import TABLES as EXAMINED

    assert {*TABLES, "evidence", "poise"} == set(EXAMINED)
