"""The page: whole, self-contained, and safe to open."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import poise
from poise.analysis.reports import Group, group_runs, render_page, write_page
from poise.core.errors import InvalidOption, LedgerError
from reports.ledgers import made_run

VOID = {"meta", "input", "br", "link", "img", "wbr"}
HOSTILE = "</script><script>alert(1)</script><b onclick='x'>\"&amp;"


class Page(HTMLParser):
    """Tags with their attributes, the texts outside scripts, and the scripts; checks that tags are
    closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.words += data

    def views(self) -> list[dict[str, object]]:
        """The figures, decoded."""
        kinds = [attrs.get("type") for tag, attrs in self.tags if tag == "script"]
        found = (
            s
            for s, kind in zip(self.scripts, kinds, strict=True)
            if kind == "application/json"
        )
        return [view for s in found for view in json.loads(s)]


def two_groups() -> list[Group]:
    def one(seed: int, name: str) -> poise.Run:
        counts = np.array([[3, 1], [0, 4], [2, 2], [5, 0]])
        return made_run(
            {"accuracy": [0.1, 0.2 + seed / 10]},
            seed=seed,
            arrays={"label_counts": counts},
            weighting={"name": name},
        )

    return group_runs(
        [one(s, name) for name in ("proportional", "soft-max") for s in range(3)]
    )


def test_page_is_whole_and_needs_no_other_file(tmp_path: Path) -> None:
    path = write_page(two_groups(), tmp_path / "new" / "report.html", "Soft-max")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not any("src" in attrs or "href" in attrs for _, attrs in page.tags)
    assert "link" not in {tag for tag, _ in page.tags}
    assert text.count("plotly.js v") == 1
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    for words in (
        "Soft-max",
        "Findings",
        "weighting=soft-max",
        "final accuracy",
        "0.0.test",
        "choice of clients",
    ):
        assert words in page.words
    assert all(run.digest in page.words for group in two_groups() for run in group.runs)
    assert (
        len(page.views()) == 6
    )  # accuracy against rounds and bytes, two weight maps, participation, classes


def test_hostile_texts_stay_texts() -> None:
    run = made_run(
        {"accuracy": [0.1]}, solver={"name": HOSTILE, "note": HOSTILE}, status=HOSTILE
    )
    page = Page(render_page([Group(HOSTILE, (run,))], HOSTILE))
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.words.count("alert(1)") >= 5
    assert HOSTILE in page.words
    assert not any("alert(1)" in s and "Plotly" in s for s in page.scripts)
    names = [trace.get("name") for view in page.views() for trace in view["data"]]  # type: ignore[attr-defined]
    assert "&lt;/script&gt;" in next(name for name in names if name)


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"accuracy": [math.nan, math.nan]},
        {"loss": [1.0, math.inf]},
        {"accuracy": [0.5]},
    ],
    ids=["never evaluated", "nan", "infinite", "one round"],
)
def test_odd_runs_have_a_page(metrics: dict[str, list[float]]) -> None:
    page = Page(
        render_page(
            group_runs([made_run(metrics, rounds=len(metrics.get("accuracy", [0, 0])))])
        )
    )
    assert "Weight of each client" in page.words
    for view in page.views():
        json.dumps(view, allow_nan=False)


def test_run_that_has_not_begun_and_one_that_did_not_end() -> None:
    page = Page(render_page([Group("empty", (made_run(status="running"),))]))
    assert "The runs recorded no data to plot" in page.words
    assert "1 of 1 run is not finished" in page.words


def test_runs_in_memory_and_in_folders(tmp_path: Path) -> None:
    quad = poise.quadratics(np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 4.0]]))
    solver = poise.solvers.SGD(lr=0.1, steps=2)
    memory = poise.train(quad, quad.task, solver, rounds=3, metrics=["client_loss"])
    folder = poise.train(
        quad,
        quad.task,
        solver,
        poise.samplers.Uniform(m=2),
        rounds=3,
        out=tmp_path / "seed-0",
        metrics=["client_loss"],
    )
    page = Page(render_page(group_runs([memory, folder])))
    assert "sampler=uniform(m=2)" in page.words
    assert "seed-0" in page.words
    assert "in memory" in page.words
    assert str(tmp_path) not in page.words


def test_real_data(tmp_path: Path) -> None:
    fed = poise.federation(
        "digits", partition="dirichlet", alpha=0.3, clients=10, samples=200
    )
    solver = poise.solvers.SGD(lr=0.1, steps=2, batch_size=8)
    runs = [
        poise.train(
            fed,
            poise.task("logistic"),
            solver,
            poise.samplers.Uniform(m=3),
            rounds=3,
            seed=s,
        )
        for s in (0, 1)
    ]
    page = Page(
        write_page(group_runs(runs), tmp_path / "r.html").read_text(encoding="utf-8")
    )
    assert "classes per round" in page.words
    assert "digits: partition = dirichlet" in page.words


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    groups = [Group("g", (made_run(),))]
    with pytest.raises(LedgerError, match="cannot write the report"):
        write_page(groups, tmp_path / "taken")
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot write the report"):
        write_page(groups, tmp_path / "file" / "r.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken"]
    with pytest.raises(InvalidOption, match="no runs to report"):
        write_page([], tmp_path / "r.html")
