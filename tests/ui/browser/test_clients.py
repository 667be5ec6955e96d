"""The pages of clients, federations, requests to forget and audits, in Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from faults.support import opened, provable, shell, small
from parameters import thorough_except
from poise.core.client_names import NAMES
from poise.ledger import Ledger
from ui.browser.conftest import Open
from ui.samples import FAST, attacked, forgetful, learning
from ui.test_client_pages import without_files

Start = Callable[[Path], str]
pytestmark = pytest.mark.xdist_group("browser")

PAGES = ("client", "federation", "unlearning", "audit")
LONG = 120_000
"""Milliseconds that an action may take on a busy machine."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of `kept` with models that are worth a picture."""
    folder = tmp_path_factory.mktemp("learned")
    rounds = {"rounds": 30, "keep": '"unlearnable"'}
    attacked(folder / "lab", learning(small(**rounds), steps=20))
    forgetful(folder / "past", learning(provable(**rounds), steps=20))
    return folder


@pytest.fixture
def runs(learned: Path, tmp_path: Path) -> Path:
    """A copy of these runs, to be altered."""
    shutil.copytree(learned, tmp_path / "runs")
    return tmp_path / "runs"


RUNS = ("lab/seed-0", "past/seed-0")
WIDTHS = (390, 1280)
QUICK = [
    ("lab/seed-0", "client", 390),
    ("lab/seed-0", "federation", 1280),
    ("lab/seed-0", "audit", 390),
    ("past/seed-0", "unlearning", 1280),
]


@pytest.mark.parametrize(
    ("name", "where", "width"),
    thorough_except(QUICK, product(RUNS, PAGES, WIDTHS)),
)
def test_every_page_is_drawn_and_fits(
    console: Start,
    visit: Open,
    drawn: Any,
    runs: Path,
    where: str,
    name: str,
    width: int,
) -> None:
    page = visit(f"{console(runs)}/{where}/{name}", width=width)
    assert drawn(page) > 0
    assert page.locator("[aria-current=page]").inner_text().lower() == where
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    for box in page.locator("figure, .card, .bar").all():
        at = box.bounding_box()
        assert at is None or at["x"] + at["width"] <= width


def ask(page: Any, **options: str) -> None:
    """Fill the form, with noise from the run's seed, and ask what it would cost."""
    for name, value in options.items():
        page.fill(f"#request input[name={name}]", value)
    seeded = "#request input[name=seeded_noise]"  # folded away at first
    page.eval_on_selector(seeded, "box => { box.checked = true }")
    page.get_by_role("button", name="Show the cost").click()


@pytest.mark.thorough
def test_the_form_does_what_the_command_does(
    console: Start, visit: Open, drawn: Any, picture: Any, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "past" / "seed-0", tmp_path / "twin")
    flags = ("--clients", "4", "--seeded-noise", "--json")
    said = shell("unlearn", tmp_path / "twin", *FAST, *flags)
    assert said.code == 0, said.err
    options = {"clients": "4", "min_rounds": "2", "max_rounds": "4", "target": "2"}
    page = visit(f"{console(runs)}/unlearning/past/seed-0")
    ask(page, **options)
    cost = page.locator("#cost").inner_text()
    for words in ("restart", "rounds given up", "noise", "largest sensitivity"):
        assert words in cost
    drawn(page)
    picture(page, "unlearning")
    assert not (runs / "past" / "seed-0" / "unlearning" / "002").exists()
    page.get_by_role("button", name="Unlearn 4").click()
    page.wait_for_selector('[data-job][data-state="done"]', timeout=LONG)
    made = json.loads(
        (runs / "past/seed-0/unlearning/002/certificate.json").read_text(
            encoding="utf-8"
        )
    )
    assert without_files(made) == without_files(json.loads(said.out))
    page.get_by_role("button", name="verify the certificate of request 2").click()
    page.wait_for_selector('[data-verified="holds"]', timeout=LONG)


@pytest.mark.thorough
def test_the_graph_leads_from_clients_to_their_pages(
    console: Start,
    visit: Open,
    drawn: Any,
    picture: Any,
    runs: Path,
    request: pytest.FixtureRequest,
) -> None:
    page = visit(f"{console(runs)}/federation/lab/seed-0")
    assert page.locator("[data-clients]").count() == 0
    page.get_by_role("button", name="Compare the clients").click()
    page.wait_for_selector("[data-clients]", timeout=LONG)
    drawn(page)
    picture(page, "federation")
    if (
        folder := request.config.getoption("--screenshots", None)
    ) is not None:  # the graph is below the fold
        page.locator("[data-clients] figure").first.screenshot(
            path=folder / "graph.png"
        )
    page.locator("[data-clients] .canvas").first.scroll_into_view_if_needed()
    spot = page.evaluate("""() => {
      const canvas = document.querySelector("[data-clients] .canvas");
      const box = canvas.getBoundingClientRect();
      const point = canvas.calcdata[1][3], { xaxis, yaxis } = canvas._fullLayout;
      const x = box.x + xaxis._offset + xaxis.c2p(point.x);
      return [x, box.y + yaxis._offset + yaxis.c2p(point.y)];
    }""")
    page.mouse.move(*spot)
    page.wait_for_selector("[data-clients] .hovertext")
    assert "client 3" in page.locator("[data-clients] .hovertext").first.text_content()
    page.mouse.click(*spot)
    page.wait_for_url("**/client/lab/seed-0?client=3")
    assert "of 10 by degree" in page.locator("tr:has-text('typicality')").inner_text()
    drawn(page)
    picture(page, "client")


def test_a_client_is_chosen_by_its_number(
    console: Start, visit: Open, runs: Path
) -> None:
    page = visit(f"{console(runs)}/federation/lab/seed-0")
    page.fill("input[name=client]", "7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/client/lab/seed-0?client=7")
    assert "client 7" in page.locator("h1").inner_text()
    assert "an empty update in 30 of 30 rounds" in page.locator("main").inner_text()


def test_from_a_suspect_to_a_decision(
    console: Start, visit: Open, drawn: Any, picture: Any, runs: Path
) -> None:
    page = visit(f"{console(runs)}/audit/lab/seed-0")
    drawn(page)
    picture(page, "audit")
    first = page.locator("#ranking tbody tr").first
    suspect = int(first.locator("th a").inner_text().removeprefix("client "))
    assert suspect in (2, 5, 7)
    first.locator("text=decide").click()
    assert page.input_value("#quarantine input[name=client]") == str(suspect)
    page.fill("#quarantine input[name=who]", "A. Operator")
    page.fill("#quarantine input[name=why]", "sends nothing")
    page.click("text=Record the decision")
    page.wait_for_selector("#quarantine td:has-text('A. Operator')")
    assert f"without-{suspect}.toml" in page.locator("#quarantine").inner_text()


def test_the_ranking_is_sorted_by_keyboard(
    console: Start, visit: Open, runs: Path
) -> None:
    page = visit(f"{console(runs)}/audit/lab/seed-0")
    page.focus("#ranking thead button:has-text('client')")
    page.keyboard.press("Enter")
    shown = page.locator("#ranking tbody tr th").all_inner_texts()
    assert shown == [f"client {k}" for k in range(10)]
    assert (
        page.locator("#ranking th[aria-sort]").get_attribute("aria-sort") == "ascending"
    )


def test_a_client_has_its_own_curve_and_guarantee(
    console: Start, visit: Open, drawn: Any, runs: Path
) -> None:
    page = visit(f"{console(runs)}/client/lab/seed-0?client=3")
    drawn(page)
    titles = page.locator("figure h3").all_inner_texts()
    assert "Client accuracy after each aggregation" in titles
    cards = page.locator(".card").all_inner_texts()
    (own,) = [card for card in cards if card.startswith("client accuracy")]
    with opened(runs / "lab" / "seed-0") as run:
        value = run.metric("client_accuracy")[-1, 3]
    assert f"{value:.3g}"[:4] in own
    assert any(card.startswith("staleness") for card in cards)
    assert "with the guarantee epsilon" in page.locator("main").inner_text()


def test_a_client_is_chosen_by_its_name(
    console: Start, visit: Open, drawn: Any, runs: Path
) -> None:
    names = ["cleveland", "budapest", "zurich", *(f"clinic {k}" for k in range(7))]
    ledger = Ledger.open(runs / "lab" / "seed-0", writing=True)
    ledger.set(NAMES, json.dumps(names))
    ledger.close()
    page = visit(f"{console(runs)}/federation/lab/seed-0")
    page.fill("input[name=client]", "budapest")
    page.keyboard.press("Enter")
    page.wait_for_url("**/client/lab/seed-0?client=budapest")
    assert page.locator("h1").inner_text() == "lab/seed-0: budapest"
    assert drawn(page) > 3
    wrong = visit(
        f"{console(runs)}/client/lab/seed-0?client=budapst", expected=404
    ).locator("main")
    assert "did you mean 'budapest'?" in wrong.inner_text()
