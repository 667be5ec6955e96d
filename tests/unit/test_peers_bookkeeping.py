"""The bookkeeping of the benchmark against the peers, on made-up numbers; no peer is needed."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"peers_{name}", FOLDER / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


figures, process, works = load("figures"), load("process"), load("works")


def row(**peers: Any) -> dict[str, Any]:
    return {"label": "made up", "peers": peers, "failed": {}}


def peer(*seconds: float, **more: float) -> dict[str, Any]:
    return {"seconds": list(seconds), **more}


def test_median_and_quartiles_of_five_lie_on_the_second_third_and_fourth_value() -> (
    None
):
    assert figures.summary([5.0, 1.0, 4.0, 2.0, 3.0]) == figures.Summary(
        median=3.0, low=2.0, high=4.0
    )


def test_quartiles_of_four_lie_between_the_values() -> None:
    assert figures.summary([10.0, 20.0, 30.0, 40.0]) == figures.Summary(
        median=25.0, low=17.5, high=32.5
    )


def test_one_repetition_is_its_own_quartiles() -> None:
    assert figures.summary([7.0]) == figures.Summary(7.0, 7.0, 7.0)


def whole(total: float, startup: float = 1.0) -> dict[str, float]:
    return {"total": total, "startup": startup}


def test_of_whole_runs_the_configuration_with_the_best_median_of_all_repetitions_stays() -> (
    None
):
    runs = {
        "2": [whole(9.0, 5.0), whole(4.0, 2.0), whole(5.0, 3.0)],
        "1": [whole(6.0), whole(6.0), whole(3.0)],
        "left": [whole(1.0)],  # after one repetition: one good moment is no median
    }
    found = figures.best_of(runs)
    assert (found["variant"], found["seconds"], found["startup"]) == (
        "2",
        [9.0, 4.0, 5.0],
        3.0,
    )


def test_a_configuration_is_left_where_it_is_slower_in_all_and_in_its_rounds() -> None:
    runs = {
        "2": [whole(9.0, 7.0)],  # the fastest rounds, and a slow start
        "1": [whole(5.0, 2.5)],  # the fastest in all
        "slow": [whole(8.0, 5.0)],
    }
    assert figures.promising(("2", "1", "slow", "new"), runs) == ["2", "1", "new"]


def test_ratios_are_of_medians_and_leave_the_lower_bound_out() -> None:
    found = row(
        poise=peer(0.1, 0.2, 9.0),
        flower=peer(2.0, 1.0, 3.0),
        fedjax=peer(0.3, 0.3, 0.3),
        bound=peer(0.01, 0.01, 0.01),
    )
    assert figures.ratios(found) == pytest.approx({"flower": 10.0, "fedjax": 1.5})
    assert figures.best_other(found) == ("fedjax", pytest.approx(1.5))


def curve(*accuracies: float) -> list[dict[str, float]]:
    return [
        {"rounds": 10 * (k + 1), "accuracy": a, "loss": 1 - a}
        for k, a in enumerate(accuracies)
    ]


def test_curves_are_compared_at_every_point_that_all_have() -> None:
    found = row(
        poise={"curve": curve(0.5, 0.7, 0.9)},
        plain={"curve": curve(0.5, 0.7)},
        pfl={"curve": curve(0.5, 0.6)},
    )
    found["noise_curves"] = [curve(0.5 + a, 0.7, 0.9) for a in (-0.1, 0.1)]
    points = figures.along(found)
    assert [p["peers"]["plain"]["rounds"] for p in points] == [10, 20], (
        "plain stopped after two"
    )
    assert [figures.allowed(p)[0] for p in points] == pytest.approx(
        [861 * 0.02**0.5, 0.5]
    )
    assert figures.disagreements(points[0]) == []
    assert figures.disagreements(points[1]) == [
        "pfl: accuracy -10.00 points, loss +0.100 from the median of the peers"
    ]


def test_rows_without_curves_have_no_points() -> None:
    assert figures.along(row(poise=peer(1.0, accuracy=0.9))) == []


def test_a_peer_that_is_ahead_is_named_with_its_ratio() -> None:
    rows = {
        "a": row(poise=peer(1.0), pfl=peer(0.8), plain=peer(2.0)),
        "b": row(poise=peer(1.0), pfl=peer(1.5)),
    }
    assert figures.ahead(rows) == [("a", "pfl", pytest.approx(0.8))]


def test_peers_agree_within_the_stated_distance_from_their_median() -> None:
    found = row(
        poise=peer(1.0, accuracy=0.900, loss=0.400),
        plain=peer(1.0, accuracy=0.904, loss=0.404),
        pfl=peer(1.0, accuracy=0.8955, loss=0.398),
    )
    assert figures.disagreements(found) == []


@pytest.mark.parametrize(
    ("accuracy", "loss"),
    [(0.894, 0.40), (0.906, 0.40), (0.90, 0.406), (0.90, 0.394), (0.90, float("nan"))],
)
def test_a_peer_that_computes_something_else_is_named(
    accuracy: float, loss: float
) -> None:
    found = row(
        poise=peer(1.0, accuracy=0.90, loss=0.40),
        plain=peer(1.0, accuracy=0.90, loss=0.40),
        flower=peer(1.0, accuracy=0.90, loss=0.40),
        odd=peer(1.0, accuracy=accuracy, loss=loss),
        bound=peer(1.0),
    )
    (told,) = figures.disagreements(found)
    assert told.startswith("odd: ")


def test_what_batches_alone_do_is_allowed() -> None:
    """Standard deviations of 2 points and 0.1 by hand: 8.61 of them are 17.22 points and 0.861."""
    noise = [
        {"accuracy": 0.58, "loss": 0.9},
        {"accuracy": 0.60, "loss": 1.0},
        {"accuracy": 0.62, "loss": 1.1},
    ]
    found = {
        **row(
            poise=peer(1.0, accuracy=0.60, loss=1.0),
            plain=peer(1.0, accuracy=0.67, loss=1.3),
        ),
        "noise": noise,
    }
    assert figures.allowed(found) == pytest.approx((17.22, 0.861))
    assert figures.disagreements(found) == []
    found["peers"]["odd"] = peer(1.0, accuracy=0.85, loss=1.3)  # the median is 0.67
    assert [told.split(":")[0] for told in figures.disagreements(found)] == ["odd"]


def test_goals_are_judged_by_the_row_s_own_ratios() -> None:
    found = row(poise=peer(0.1), flower=peer(0.9), pfl=peer(0.13))
    assert (
        figures.goal("mlp-100x10x50", found)
        == "≥ 8 × Flower: met; ≥ 1.4 × the best other: missed"
    )
    assert figures.goal("mlp-10x10x50", found) == ""


def test_the_rows_with_goals_are_works_and_named_after_what_they_do() -> None:
    assert set(figures.GOALS) <= set(works.ROWS)
    for name in works.ROWS:
        work = works.WORKS[name]
        assert name == f"{work.model}-{work.clients}x{work.steps}x{work.batch}"
        assert work.clients <= work.population


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that writes the page, with what it imports from its own folder, forgotten
    afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("published")
    for name in set(sys.modules) - before:
        if str(FOLDER.parent) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def measured(*seconds: float, accuracy: float = 0.9, **more: Any) -> dict[str, Any]:
    common = {
        "variant": "",
        "tried": {"": 1.0},
        "about": {"made-up": "1.0"},
        "startup": 1.0,
        "first": 2.0,
    }
    return {
        **peer(*seconds, accuracy=accuracy, loss=0.4),
        **common,
        "peak_mb": 100.0,
        "rounds": 7,
        **more,
    }


def test_the_page_shows_ratios_who_is_ahead_and_who_disagrees(
    published: ModuleType, tmp_path: Path
) -> None:
    facts = {
        "date": "2000-01-01",
        "commit": "abc",
        "cores": 2,
        "processor": "made up",
        "python": "3.0",
    }
    peers = {
        "poise": measured(0.2, 0.1, 0.3),
        "flower": measured(2.0, 2.0, 2.0, accuracy=0.8),
        "pfl": measured(0.1, 0.1, 0.1, variant="2", tried={"1": 0.5, "2": 0.1}),
        "plain": measured(1.0, 1.0, 1.0),
    }
    results = {
        name: {**row(**peers), **facts}
        for name in ("mlp-100x10x50", "target", "lr-mnist")
    }
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n", encoding="utf-8")
    published.publish(page, results)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Benchmarks\n\n<!-- peers -->\n")
    assert (
        "| 0.200 s (0.150–0.250) | 2.000 s (2.000–2.000) | 0.100 s (0.100–0.100) [2] |"
        in text
    )
    assert "| **10.0 ×** | **0.50 ×** (pfl-research) |" in text
    assert "made up: pfl-research takes 0.50 × poise's time" in text
    assert "flower: accuracy -10.00 points" in text
    assert "pfl-research [1] 0.50 s" in text
    assert "Not measured: logistic: 10 × 10 × 50; " in text
    assert "Less memory than poise: none." in text
    assert "no difference was shown" not in text, (
        "quartiles of 0.15 to 0.25 s are above the other's 0.1 s"
    )
    assert text.count("pfl-research is ahead: 0.50 × poise's time.") == 2
    published.publish(page, results)
    assert page.read_text(encoding="utf-8") == text, "writing again changes nothing"
    dots = ElementTree.parse(tmp_path / "peers.svg").iter(
        "{http://www.w3.org/2000/svg}circle"
    )
    assert len(list(dots)) == 6 + 4, "a legend of six and a dot for each peer"


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def states(pids: list[int]) -> set[str]:
    return {process._fields(pid)[0] for pid in pids}


def test_a_peer_at_rest_is_stopped_with_its_children_until_it_goes_on() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            tree = process.tree_of(parent.pid)
            assert tree == [parent.pid, child]
            process.send_to(tree, signal.SIGSTOP)
            while states(tree) != {"T"}:  # each takes the signal when it runs next
                time.sleep(0.001)
            process.send_to(tree, signal.SIGCONT)
            while "T" in states(tree):
                time.sleep(0.001)
        finally:
            process.send_to([child, parent.pid], signal.SIGKILL)


def test_a_signal_to_a_process_that_has_ended_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    process.send_to([ended.pid], signal.SIGCONT)
