"""The page of a deployment's nodes, in Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poise.apps.deploy.events import Event, EventLog
from ui.browser.conftest import Open
from ui.test_nodes import crafted

Start = Callable[..., str]
pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_node_that_falls_silent_appears_without_a_reload(
    console: Start,
    visit: Open,
    picture: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    made = crafted(tmp_path / "hospital", monkeypatch)
    (tmp_path / "runs").mkdir()
    page = visit(f"{console(tmp_path / 'runs', [made.path])}/nodes", width=width)
    if width == 1280:
        picture(page, "nodes")
    states = page.locator("[data-nodes] tbody .state")
    assert states.all_inner_texts() == ["connected", "connected", "silent"]
    assert page.locator("[role=alert]").all_inner_texts() == [
        "Client 2 is not connected."
    ]
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    file = made.server / "nodes-seen.json"
    seen = json.loads(file.read_text())
    seen["nodes"]["1"]["connected"] = False
    file.write_text(json.dumps({**seen, "at": time.time()}))
    silence = "client 1: its node has been silent for 41 s"
    EventLog(made.server).write(Event(time.time(), silence, client=1, trouble=True))
    page.locator("[data-events] .warning", has_text="client 1").wait_for(timeout=60_000)
    assert states.all_inner_texts() == ["connected", "silent", "silent"]
    page.get_by_role("link", name="The supervisor’s log").click()
    page.wait_for_url("**/supervisor-log/0")
    assert "the last line" in page.locator("pre").inner_text()
