"""Readable at any width, in the light and in the dark, and without a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from parameters import thorough_except
from poise.apps.ui import app
from ui.browser.conftest import Open

Start = Callable[[Path], str]
pytestmark = pytest.mark.xdist_group("browser")

PAGES = (
    "/",
    "/run/small/seed-0",
    "/compare?run=small/seed-0",
    "/nowhere",
    "/unlock",
    "/nodes",
)


QUICK = [("/", 390), ("/run/small/seed-0", 390), ("/nowhere", 1280)]


@pytest.mark.parametrize(
    ("path", "width"), thorough_except(QUICK, product(PAGES, (390, 1280)))
)
def test_no_page_scrolls_sideways(
    runs: Path, console: Start, visit: Open, drawn: Any, path: str, width: int
) -> None:
    page = visit(
        console(runs) + path, width=width, expected=404 if path == "/nowhere" else 200
    )
    drawn(page)
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    for box in page.locator("figure, .card, .bar").all():
        place = box.bounding_box()
        assert place is None or place["x"] + place["width"] <= width


def test_dark_where_the_system_is_and_where_the_reader_wants_it(
    runs: Path, console: Start, visit: Open, drawn: Any
) -> None:
    address = console(runs)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert visit(address, scheme="light").evaluate(ground) == "rgb(251, 251, 250)"
    page = visit(f"{address}/run/small/seed-0", scheme="dark")
    assert page.evaluate(ground) == "rgb(18, 22, 27)"
    drawn(page)
    assert (
        page.evaluate("document.querySelector('figure .canvas').layout.font.color")
        == "#e8ebef"
    )
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(ground) == "rgb(251, 251, 250)"
    assert (
        page.evaluate("document.querySelector('figure .canvas').layout.font.color")
        == "#1d232b"
    )
    page.reload()
    assert page.evaluate(ground) == "rgb(251, 251, 250)", "the choice is kept"


def test_everything_can_be_done_with_the_keyboard(
    runs: Path, console: Start, visit: Open
) -> None:
    page = visit(console(runs))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert (
        page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        == "solid"
    ), "focus is seen"
    page.keyboard.press("Enter")
    reached = set()
    name = (
        "(e => e.textContent.trim() || e.name || e.ariaLabel)(document.activeElement)"
    )
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(name))
        if page.evaluate(
            "document.activeElement.name === 'run' && !document.activeElement.checked"
        ):
            page.keyboard.press("Space")
    assert {"run", "Compare selected", "loss", "small/seed-0"} <= reached
    page.get_by_role("link", name="loss").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=loss*")
    assert (
        page.get_by_role("columnheader", name="loss").get_attribute("aria-sort")
        == "ascending"
    )
    page.get_by_label("compare small/seed-0").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Compare selected").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?**")


def test_the_palette_has_the_contrast_that_readers_need() -> None:
    """WCAG 2.2 AA: 4.5 to 1 for text, 3 to 1 for what frames an input or shows the focus."""
    style = (app.HERE / "static" / "style.css").read_text()
    for block in re.findall(r":root(?:\[data-theme=\"dark\"\])? \{([^}]*)\}", style)[
        :2
    ]:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for ground in ("paper", "card"):
            for ink in ("ink", "soft", "accent", "warn", "good", "bad", "busy"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        assert contrast(colours["on-accent"], colours["accent"]) >= 4.5


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )  # the example everybody knows


def contrast(one: str, other: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05) of the relative luminances, as WCAG defines them."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
