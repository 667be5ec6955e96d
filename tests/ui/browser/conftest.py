"""A real browser on a real console; the tests are skipped where there is no Chromium."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from poise.apps.ui.app import create_app
from poise.apps.ui.guard import Keys, cookie_name

CHROMIUM = Path("/usr/bin/chromium")
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]

KEYS = Keys("the-token", "the-session")

Open = Callable[..., Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--screenshots",
        type=Path,
        default=None,
        help="Folder for pictures of the console's pages.",
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser, started once for a file of tests: as long as it runs, this thread can have no
    other event loop."""
    if not CHROMIUM.exists():
        pytest.skip(
            f"there is no {CHROMIUM}: install Debian's chromium to test pages in a browser"
        )
    sync = pytest.importorskip(
        "playwright.sync_api",
        reason="playwright is not installed: pip install 'poise[dev]'",
    )
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=OPTIONS, headless=True
        )
        yield browser
        browser.close()


@pytest.fixture
def console() -> Iterator[Callable[..., str]]:
    """Start a console of a folder, perhaps with deployments; gives its address."""
    started: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(runs: Path, deployments: Sequence[Path] = ()) -> str:
        config = uvicorn.Config(
            create_app(runs, KEYS, deployments=deployments),
            port=0,
            log_level="warning",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the console did not start"
            thread.join(0.01)
        started.append((server, thread))
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def visit(chromium: Any) -> Iterator[Open]:
    """Open an address in a page of its own; what it complains of, and whom else it asks, fails the
    test."""
    contexts, complaints, foreign = [], [], []

    def go(
        address: str,
        width: int = 1280,
        expected: int = 200,
        scheme: str = "light",
        logged_in: bool = True,
    ) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type == "error" else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        own = address.split("/", 3)[2]
        page.on(
            "request",
            lambda request: (
                None if _own(request.url, own) else foreign.append(request.url)
            ),
        )
        if logged_in:
            cookie = {
                "name": cookie_name(int(own.rpartition(":")[2])),
                "url": f"http://{own}",
            }
            context.add_cookies([{**cookie, "value": KEYS.session}])
        answer = page.goto(address)
        assert answer.status == expected
        return page

    yield go
    for context in contexts:
        context.close()
    assert [c for c in complaints if "status of 4" not in c] == [], (
        "the browser's console says"
    )
    assert foreign == [], "asked of other hosts"


DRAWN = 120.0
"""Seconds in which a figure must appear; a busy machine has needed more than 30."""

SETTLED = (
    "place => place.dataset.drawn !== undefined || place.querySelector('.warning')"
)


@pytest.fixture
def drawn() -> Callable[[Any], int]:
    """Scroll to every figure and wait until it is drawn; gives their number.

    Figures that the console refuses fail at once, with its reason."""

    def wait(page: Any) -> int:
        for place in page.locator("[data-src]").all():
            deadline = time.monotonic() + DRAWN
            while not place.evaluate(SETTLED):
                where = place.get_attribute("data-src")
                assert time.monotonic() < deadline, f"{where} was not drawn"
                place.scroll_into_view_if_needed()  # figures above it may have grown
                page.wait_for_timeout(50)
            refused = place.locator(".warning").all_inner_texts()
            assert refused == [], place.get_attribute("data-src")
        return int(page.locator("figure .main-svg").count())

    return wait


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    """Keep a picture of a page for the documentation, where ``--screenshots`` names a folder."""

    def take(page: Any, name: str) -> None:
        folder = request.config.getoption("--screenshots", None)
        if folder is not None:
            folder = (
                request.config.invocation_params.dir / folder
            )  # tests may be elsewhere by now
            folder.mkdir(parents=True, exist_ok=True)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=folder / f"{name}.png")

    return take


def _own(url: str, host: str) -> bool:
    return url.startswith((f"http://{host}/", "data:", "blob:"))
