"""The pages of clients, federations, requests to forget and audits, in Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.support import shell
from ui.browser.conftest import KEYS, Open
from ui.samples import FAST, attacked, forgetful
from ui.test_client_pages import without_files

PAGES = ("client", "federation", "unlearning", "audit")
LONG = 120_000
"""Milliseconds that an action may take on a busy machine."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    attacked(folder / "lab", rounds=8)
    forgetful(folder / "past")
    return folder


@pytest.fixture
def runs(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "runs")
    return tmp_path / "runs"


def settled(page: Any) -> None:
    """Scroll to every place for figures, and wait until it was drawn."""
    for place in page.locator("[data-src]").all():
        place.evaluate("(place) => place.scrollIntoView()")
    page.wait_for_selector("[data-src]:not([data-drawn])", state="detached", timeout=60_000)


def unlock(page: Any) -> None:
    """Give the token, and come back to the page."""
    page.click("main >> text=allow actions")
    page.fill("input[name=token]", KEYS.token)
    page.click("button:has-text('Allow')")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("where", PAGES)
@pytest.mark.parametrize("name", ["lab/seed-0", "past/seed-0"])
def test_every_page_is_drawn_and_fits(
    console: Callable[[Path], str], visit: Open, runs: Path, where: str, name: str, width: int
) -> None:
    page = visit(f"{console(runs)}/{where}/{name}", width=width)
    settled(page)
    assert page.locator("[aria-current=page]").inner_text().lower() == where
    assert page.locator("figure .main-svg").count() > 0
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{where} is {wide} px wider than {width}"


def test_the_form_does_what_the_command_does(
    console: Callable[[Path], str], visit: Open, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "past" / "seed-0", tmp_path / "twin")
    said = shell("unlearn", tmp_path / "twin", "--clients", "4", *FAST, "--json")
    assert said.code == 0, said.err
    page = visit(f"{console(runs)}/unlearning/past/seed-0")
    page.fill("input[name=clients]", "4")
    page.fill("input[name=min_rounds]", "2")
    page.fill("input[name=max_rounds]", "4")
    page.fill("input[name=target]", "2")
    page.click("text=What would it cost?")
    cost = page.locator("#cost").inner_text()
    for words in ("restart", "rounds given up", "noise", "largest sensitivity"):
        assert words in cost
    assert not (runs / "past" / "seed-0" / "unlearning" / "002").exists()
    assert page.locator("text=Forget 4").count() == 0  # not without the token
    unlock(page)
    page.fill("input[name=clients]", "4")
    page.fill("input[name=min_rounds]", "2")
    page.fill("input[name=max_rounds]", "4")
    page.fill("input[name=target]", "2")
    page.click("text=What would it cost?")
    page.click("text=Forget 4")
    page.wait_for_selector('[data-job][data-state="done"]', timeout=LONG)
    made = json.loads((runs / "past/seed-0/unlearning/002/certificate.json").read_text(encoding="utf-8"))
    assert without_files(made) == without_files(json.loads(said.out))
    page.click("[aria-label='verify the certificate of request 2']")
    page.wait_for_selector('[data-verified="holds"]', timeout=LONG)


def test_the_graph_leads_from_clients_to_their_pages(console: Callable[[Path], str], visit: Open, runs: Path) -> None:
    page = visit(f"{console(runs)}/federation/lab/seed-0")
    assert page.locator("[data-clients]").count() == 0
    unlock(page)
    page.click("text=Compare the clients")
    page.wait_for_selector("[data-clients] figure .main-svg", timeout=LONG)
    settled(page)
    page.locator("[data-clients] .canvas").first.scroll_into_view_if_needed()
    spot = page.evaluate("""() => {
      const canvas = document.querySelector("[data-clients] .canvas"), box = canvas.getBoundingClientRect();
      const point = canvas.calcdata[1][3], { xaxis, yaxis } = canvas._fullLayout;
      return [box.x + xaxis._offset + xaxis.c2p(point.x), box.y + yaxis._offset + yaxis.c2p(point.y)];
    }""")
    page.mouse.move(*spot)
    page.wait_for_selector("[data-clients] .hovertext")
    assert "client 3" in page.locator("[data-clients] .hovertext").first.inner_text()
    page.mouse.click(*spot)
    page.wait_for_url("**/client/lab/seed-0?client=3")
    assert "number" in page.locator("tr:has-text('how typical')").inner_text()


def test_a_client_is_chosen_by_its_number(console: Callable[[Path], str], visit: Open, runs: Path) -> None:
    page = visit(f"{console(runs)}/federation/lab/seed-0")
    page.fill("input[name=client]", "7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/client/lab/seed-0?client=7")
    assert "client 7" in page.locator("h1").inner_text()
    assert "an empty update in 8 of 8 rounds" in page.locator("main").inner_text()


def test_from_a_suspect_to_a_decision(console: Callable[[Path], str], visit: Open, runs: Path) -> None:
    page = visit(f"{console(runs)}/audit/lab/seed-0")
    unlock(page)
    first = page.locator("#ranking tbody tr").first
    suspect = int(first.locator("th a").inner_text().removeprefix("client "))
    assert suspect in (2, 5, 7)
    first.locator("text=decide").click()
    assert page.input_value("#quarantine input[name=client]") == str(suspect)
    page.fill("#quarantine input[name=who]", "A. Operator")
    page.fill("#quarantine input[name=why]", "sends nothing")
    page.click("text=Write the decision down")
    page.wait_for_selector("#quarantine td:has-text('A. Operator')")
    assert f"without-{suspect}.toml" in page.locator("#quarantine").inner_text()


def test_the_ranking_is_sorted_by_keyboard(console: Callable[[Path], str], visit: Open, runs: Path) -> None:
    page = visit(f"{console(runs)}/audit/lab/seed-0")
    page.focus("#ranking thead button:has-text('client')")
    page.keyboard.press("Enter")
    shown = page.locator("#ranking tbody tr th").all_inner_texts()
    assert shown == [f"client {k}" for k in range(10)]
    assert page.locator("#ranking th[aria-sort]").get_attribute("aria-sort") == "ascending"
