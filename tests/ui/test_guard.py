"""Who may ask the console what."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.apps.ui.guard import Keys
from ui.support import HOME, client, stranger

KEYS = Keys("the-token", "the-session")
TAGS = "/api/tags/small/seed-0"
BEARER = {"authorization": "Bearer the-token"}
COOKIE = {"cookie": "poise-console-8765=the-session"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8765", "localhost:8765", "localhost", "[::1]:8765"]
)
def test_the_console_is_called_by_names_of_the_loopback(runs: Path, host: str) -> None:
    assert client(runs).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8765",
        "",
        "[",
        "192.0.2.1",
    ],
)
def test_no_other_name_is_answered(runs: Path, host: str) -> None:
    answer = client(runs).get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "small" not in answer.text


def test_opened_to_others_it_is_called_by_addresses_too_but_by_no_foreign_name(
    runs: Path,
) -> None:
    from fastapi.testclient import TestClient

    from poise.apps.ui.app import create_app

    wide = TestClient(
        create_app(runs, KEYS, host="0.0.0.0"), base_url=HOME, headers=BEARER
    )
    assert wide.get("/", headers={"host": "192.0.2.1:8765"}).status_code == 200
    assert wide.get("/", headers={"host": "evil.example"}).status_code == 421


FAKES = [
    {"authorization": "Bearer wrong"},
    {"authorization": "Basic the-token"},
    {"authorization": "Bearer "},
    {"cookie": "poise-console-8765=wrong"},
    {"cookie": "poise-console-8765=the-token"},
    {"cookie": "poise-console-1=the-session"},
]


@pytest.mark.parametrize(
    "path", ["/", "/run/small/seed-0", "/compare?run=small/seed-0"]
)
def test_pages_lead_a_stranger_to_the_login(runs: Path, path: str) -> None:
    browser = stranger(runs, KEYS, follow_redirects=False)
    answer = browser.get(path)
    assert (answer.status_code, answer.text) == (303, "")
    login = browser.get(answer.headers["location"])
    assert login.status_code == 200
    assert 'name="token"' in login.text
    entered = browser.post(
        "/unlock", data={"token": "the-token", "back": path}, headers={"origin": HOME}
    )
    assert entered.headers["location"] == path
    assert "set-cookie" in entered.headers
    assert browser.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/api/runs", "/api/run/small/seed-0", "/api/openapi.json", "/api/nowhere"]
)
def test_the_api_tells_a_stranger_nothing(runs: Path, path: str) -> None:
    answer = stranger(runs, KEYS).get(path)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    assert "Bearer" in answer.json()["hint"]
    for headers in FAKES:
        assert stranger(runs, KEYS).get(path, headers=headers).status_code == 401
    assert stranger(runs, KEYS).get(path, headers=BEARER).status_code != 401
    assert stranger(runs, KEYS).get(path, headers=COOKIE).status_code != 401


def test_the_link_of_the_terminal_logs_in_and_leaves_no_token_behind(
    runs: Path,
) -> None:
    browser = stranger(runs, KEYS, follow_redirects=False)
    answer = browser.get("/compare?run=small%2Fseed-0&token=the-token")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/compare?run=small%2Fseed-0"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "the-token" not in cookie
    assert browser.get(answer.headers["location"]).status_code == 200
    other = stranger(runs, KEYS, follow_redirects=False)
    wrong = other.get("/?token=guess")
    assert "set-cookie" not in wrong.headers
    assert wrong.headers["location"].startswith("/unlock")


@pytest.mark.parametrize("path", ["//evil.example/", "//evil.example/%2e%2e"])
def test_the_link_leads_to_no_other_host(runs: Path, path: str) -> None:
    browser = stranger(runs, KEYS, follow_redirects=False)
    answer = browser.get(f"{HOME}{path}?token=the-token")
    assert not answer.headers.get("location", "/").startswith("//")


def test_acting_needs_the_token(runs: Path) -> None:
    answer = stranger(runs, KEYS).put(TAGS, json={"tags": ["a"]})
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    assert not (runs / "console-tags.json").exists()


@pytest.mark.parametrize("headers", FAKES)
def test_what_only_looks_like_the_token_opens_nothing(
    runs: Path, headers: dict[str, str]
) -> None:
    assert (
        stranger(runs, KEYS)
        .put(TAGS, json={"tags": []}, headers={"origin": HOME, **headers})
        .status_code
        == 401
    )


def test_the_token_opens_actions(runs: Path) -> None:
    assert stranger(runs, KEYS).put(
        TAGS, json={"tags": ["a"]}, headers=BEARER
    ).json() == {"tags": ["a"]}
    own = {**COOKIE, "origin": HOME}
    assert stranger(runs, KEYS).put(TAGS, json={"tags": ["b"]}, headers=own).json() == {
        "tags": ["b"]
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://[::1"},
        {"origin": "http://[zz]"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {},
    ],
)
def test_the_cookie_is_of_no_use_to_other_pages(
    runs: Path, headers: dict[str, str]
) -> None:
    answer = stranger(runs, KEYS).put(
        TAGS, json={"tags": ["a"]}, headers={**COOKIE, **headers}
    )
    assert answer.status_code == 403
    assert not (runs / "console-tags.json").exists()


def test_the_token_is_exchanged_for_a_cookie_of_this_site_alone(runs: Path) -> None:
    browser = stranger(runs, KEYS, follow_redirects=False)
    assert (
        browser.post(
            "/unlock", data={"token": "guess"}, headers={"origin": HOME}
        ).status_code
        == 401
    )
    answer = browser.post(
        "/unlock",
        data={"token": " the-token ", "back": "/run/x"},
        headers={"origin": HOME},
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/x")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "the-token" not in cookie
    assert (
        browser.put(TAGS, json={"tags": []}, headers={"origin": HOME}).status_code
        == 200
    )


@pytest.mark.parametrize(
    "back", ["https://evil.example", "//evil.example", "/\\evil.example", "evil"]
)
def test_after_the_token_one_stays_on_the_console(runs: Path, back: str) -> None:
    browser = stranger(runs, KEYS, follow_redirects=False)
    answer = browser.post(
        "/unlock", data={"token": "the-token", "back": back}, headers={"origin": HOME}
    )
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "path", ["/", "/api/runs", "/static/style.css", "/nowhere", "/unlock", "/plotly.js"]
)
def test_every_answer_allows_nothing_from_other_hosts(runs: Path, path: str) -> None:
    headers = client(runs).get(path).headers
    policy = dict(
        part.strip().split(" ", 1)
        for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert not any("http" in part or "*" in part for part in policy.values())
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_a_new_console_has_keys_of_its_own() -> None:
    first, second = Keys(), Keys()
    assert len({first.token, first.session, second.token, second.session}) == 4
    assert first.token not in repr(first)
