"""The pages of clients, federations, requests and audits, and the API behind them, without a
browser."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from faults.support import call, opened, shell
from poise.apps.ui.guard import Keys
from poise.apps.ui.jobs import ConsoleJobs
from poise.ledger.lock import Lock
from poise.ledger.store import LOCK
from ui.samples import FAST
from ui.support import HOME, client, stranger

KEYS = Keys("the-token", "the-session")
ACT = {"authorization": "Bearer the-token"}
NAME = "lab/seed-0"


@pytest.fixture
def runs(told_of: Path) -> Path:
    return told_of


@pytest.fixture
def browser(runs: Path) -> TestClient:
    return client(runs, KEYS)


def finished(
    browser: TestClient, started: dict[str, Any], name: str = NAME
) -> dict[str, Any]:
    """Wait for an action."""
    until = time.monotonic() + 120
    while (job := browser.get(f"/api/job/{started['id']}/{name}").json())[
        "state"
    ] == "running":
        assert time.monotonic() < until, job
        time.sleep(0.1)
    found: dict[str, Any] = job
    return found


@pytest.mark.parametrize("where", ["client", "federation", "unlearning", "audit"])
@pytest.mark.parametrize("name", [NAME, "past/seed-0", "past/seed-0/unlearning/001"])
def test_every_page_is_there_for_every_run(
    browser: TestClient, where: str, name: str
) -> None:
    answer = browser.get(f"/{where}/{name}")
    assert answer.status_code == 200, answer.text
    assert f'href="/audit/{name}"' in answer.text


def test_pages_say_on_which_data_a_metric_was_measured(browser: TestClient) -> None:
    page = browser.get(f"/client/{NAME}?client=3").text
    assert "of the model on the client&#39;s training data" in page
    assert "on its own data" not in page
    link = f'<a href="/federation/{NAME}">The clients, worst first</a>'
    assert link in browser.get(f"/run/{NAME}").text


@pytest.mark.parametrize(
    ("where", "titles"),
    [
        ("client-figures", ["Classes", "Weight in each round with this client"]),
        ("federation-figures", ["Samples of the clients", "Classes of the clients"]),
        ("graph-figures", []),
        (
            "unlearning-figures",
            ["Restart tree", "Sensitivity to the clients, the training"],
        ),
        (
            "audit-figures",
            ["Detection rate and false alarms (ROC)", "Score of every client"],
        ),
    ],
)
def test_figures_are_fetched(
    browser: TestClient, where: str, titles: list[str]
) -> None:
    found = browser.get(f"/api/{where}/{NAME}").json()["plots"]
    assert [plot["title"] for plot in found][: len(titles)] == titles
    assert all(view["figure"]["data"] for plot in found for view in plot["views"])


def test_a_client_is_told_as_its_page_shows_it(browser: TestClient) -> None:
    told = browser.get(f"/api/client/{NAME}", params={"client": 2}).json()
    page = browser.get(f"/client/{NAME}", params={"client": 2}).text
    assert told["verdict"]["suspected"]
    assert "an empty update in 12 of 12 rounds" in told["verdict"]["why"]
    assert told["verdict"]["why"][1:] in page  # a sentence begins with a capital letter
    assert len(told["contributions"]["rows"]) == 12
    assert told["sensitivity"]["psi"] > 0
    assert told["place"] is None


def test_a_long_audit_is_waited_for_on_its_own_page_only(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "poise.apps.ui.gather.FAST_AUDIT", 119
    )  # the run has 10 clients and 12 rounds
    before = browser.get(f"/api/client/{NAME}", params={"client": 2}).json()
    assert (before["verdict"], "has not been audited yet" in before["no_verdict"]) == (
        None,
        True,
    )
    drawn = lambda: [
        p["title"]
        for p in browser.get(
            f"/api/client-figures/{NAME}", params={"client": 2}
        ).json()["plots"]
    ]
    assert "Score of the audit" not in drawn()
    assert browser.get(f"/api/audit/{NAME}").json()["ranking"]["suspects"] == 3
    assert browser.get(f"/api/client/{NAME}", params={"client": 2}).json()["verdict"][
        "suspected"
    ]
    assert "Score of the audit" in drawn()


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [
        (f"/client/{NAME}?client=10", 404, "this run has no client 10"),
        (f"/client/{NAME}?client=x", 404, "client"),
        (f"/audit/{NAME}?alarm=2", 422, "alarm"),
        ("/client/none", 404, "no run"),
        ("/audit/../../etc", 404, "no such page"),
        (
            f"/unlearning/{NAME}?method=sifu&clients=99",
            200,
            "this run has no client 99",
        ),
        (f"/unlearning/{NAME}?method=sifu", 422, "the request names no clients"),
        (
            f"/unlearning/{NAME}?method=sifu&clients=%20&heuristic=on",
            422,
            "the request names no clients",
        ),
        (
            f"/unlearning/{NAME}?method=sifu&clients=1&out=/tmp",
            200,
            "no option &#39;out&#39;",
        ),
    ],
)
def test_mistakes_are_told(
    browser: TestClient, address: str, code: int, says: str
) -> None:
    answer = browser.get(address)
    assert (answer.status_code, says in answer.text) == (code, True), answer.text


ACTIONS = [
    (f"/api/graph/{NAME}", {}),
    (f"/api/forget/{NAME}", {"clients": "1"}),
    ("/api/verification/1/past/seed-0", {}),
    (f"/api/decision/{NAME}", {"client": 2, "who": "me", "why": "so"}),
    (f"/api/without/{NAME}", {}),
    (f"/federation/{NAME}", {}),
    (f"/unlearning/{NAME}", {}),
    (f"/quarantine/{NAME}", {}),
    (f"/without/{NAME}", {}),
    (f"/stop/x/{NAME}", {}),
    (f"/api/stop/x/{NAME}", {}),
    ("/verification/1/past/seed-0", {}),
]


@pytest.mark.parametrize(("address", "body"), ACTIONS)
def test_nothing_is_done_without_the_token(
    runs: Path, address: str, body: dict[str, Any]
) -> None:
    browser = stranger(runs, KEYS)
    assert browser.post(address, json=body).status_code == 401
    assert (
        browser.post(
            address, json=body, headers={**ACT, "origin": "http://evil.example"}
        ).status_code
        == 403
    )
    assert not list(runs.glob("**/console"))


def without_files(certificate: dict[str, Any]) -> dict[str, Any]:
    """A certificate without the hashes of files that hold times, and without its own."""
    said = json.loads(json.dumps(certificate))
    for evidence in (said["evidence"]["training"], *said["evidence"]["branches"]):
        del evidence["file"]
    return {
        k: v for k, v in said.items() if k not in ("digest", "path", "page", "finished")
    }


def test_the_form_does_what_the_command_does(
    browser: TestClient, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "past", tmp_path / "twin")
    name, twin = "past/seed-0", tmp_path / "twin" / "seed-0"
    options = {
        "clients": "4,5",
        "min_rounds": "2",
        "max_rounds": "4",
        "target": "2",
        "sigma": "",
        "held_out": "on",
        "seeded_noise": "on",
    }
    flags = ("--held-out", "--seeded-noise", "--json")
    said = shell("unlearn", twin, "--clients", "4,5", *FAST, *flags)
    assert said.code == 0, said.err
    shown = browser.get(f"/unlearning/{name}", params={"method": "sifu", **options})
    assert "Cost of this request" in shown.text
    posted = browser.post(
        f"/unlearning/{name}", data=options, headers=ACT, follow_redirects=False
    )
    assert (posted.status_code, posted.headers["location"]) == (
        303,
        f"/unlearning/{name}#actions",
    )
    (job,) = browser.get(f"/api/jobs/{name}").json()
    assert finished(browser, job, name)["state"] == "done"
    made = json.loads(
        (runs / name / "unlearning" / "002" / "certificate.json").read_text(
            encoding="utf-8"
        )
    )
    assert without_files(made) == without_files(json.loads(said.out))
    told = browser.get(f"/api/unlearning/{name}").json()
    assert told["forgotten"] == [1, 4, 5]
    assert [one["verification"] for one in told["requests"]] == ["unknown", "unknown"]
    assert (runs / name / "ledger.sqlite").read_bytes() == (
        twin / "ledger.sqlite"
    ).read_bytes()


def test_the_cost_is_told_and_nothing_is_changed(
    browser: TestClient, runs: Path
) -> None:
    wish = {"clients": "4,5", "sigma": 0.06}
    told = browser.get(f"/api/unlearning-cost/{NAME}", params=wish).json()
    plan = json.loads(
        call(
            "unlearn",
            runs / NAME,
            "--clients",
            "4,5",
            "--sigma",
            "0.06",
            "--plan",
            "--json",
        ).out
    )
    for key in ("restart", "ideal", "given_up", "sigma", "limit", "psi"):
        assert told[key] == plan[key], key
    assert not (runs / NAME / "unlearning").exists()
    assert "--sigma 0.06" in told["command"]


def test_what_has_no_proof_is_not_begun_without_a_word(browser: TestClient) -> None:
    asked = {"method": "sifu", "clients": "4"}
    page = browser.get(f"/unlearning/{NAME}", params=asked, headers=ACT).text
    assert "what dishonest clients send is no gradient step" in page
    assert "Unlearn 4" not in page
    assert (
        "Unlearn 4"
        in browser.get(
            f"/unlearning/{NAME}", params={**asked, "heuristic": "on"}, headers=ACT
        ).text
    )
    refused = browser.post(f"/api/forget/{NAME}", json=asked, headers=ACT)
    assert (
        refused.status_code,
        "cannot give a guarantee" in refused.json()["error"],
    ) == (
        409,
        True,
    )


def test_a_run_that_is_being_written_forgets_nobody_yet(
    browser: TestClient, runs: Path
) -> None:
    lock = Lock(runs / NAME / LOCK)
    lock.acquire()
    try:
        page = browser.get(
            f"/unlearning/{NAME}",
            params={"method": "sifu", "clients": "4"},
            headers=ACT,
        ).text
        refused = browser.post(
            f"/api/forget/{NAME}", json={"clients": "4", "heuristic": True}, headers=ACT
        )
    finally:
        lock.release()
    assert "is still being trained" in page
    assert (
        refused.status_code,
        "is still being trained" in refused.json()["error"],
    ) == (409, True)
    assert (
        browser.get(f"/api/unlearning-cost/{NAME}", params={"clients": "4"}).status_code
        == 200
    )


def test_a_certificate_is_verified_and_an_altered_one_is_not(
    browser: TestClient, runs: Path
) -> None:
    name = "past/seed-0"
    started = browser.post(f"/api/verification/1/{name}", headers=ACT).json()
    assert finished(browser, started, name)["state"] == "done"
    (told,) = browser.get(f"/api/unlearning/{name}").json()["requests"]
    assert told["verification"] == "holds", told
    for model in (runs / name / "unlearning" / "001" / "models").glob("*.safetensors"):
        model.write_bytes(b"altered")
    started = browser.post(f"/api/verification/1/{name}", headers=ACT).json()
    failed = finished(browser, started, name)
    assert failed["state"] == "failed"
    (told,) = browser.get(f"/api/unlearning/{name}").json()["requests"]
    assert told["verification"] == "broken"
    assert failed["error"] in told["verification_words"]


def test_the_federation_page_ranks_the_clients(browser: TestClient, runs: Path) -> None:
    ranking = browser.get(f"/api/federation/{NAME}").json()["ranking"]
    assert ranking["heading"][0] == "client"
    assert len(ranking["lines"]) == len(ranking["order"])
    with opened(runs / NAME) as run:
        last = run.metric("client_loss")[-1]
        assert last[ranking["order"][0]] == np.nanmax(last)
        page = browser.get(f"/federation/{NAME}").text
        for number, line in zip(ranking["order"], ranking["lines"], strict=True):
            link = f'<a href="/client/{NAME}?client={number}">{line[0]}</a>'
            assert link in page


def test_the_graph_is_made_by_an_action_and_kept_beside_the_run(
    browser: TestClient, runs: Path
) -> None:
    before = (runs / NAME / "ledger.sqlite").read_bytes()
    assert browser.get(f"/api/federation/{NAME}").json()["graph"] == []
    started = browser.post(f"/api/graph/{NAME}", headers=ACT).json()
    assert started["command"].startswith("poise inspect ")
    assert finished(browser, started)["state"] == "done"
    told = browser.get(f"/api/federation/{NAME}").json()
    assert told["same_data"]
    assert "homogeneity" in [fact["name"] for fact in told["graph"]]
    titles = [
        plot["title"]
        for plot in browser.get(f"/api/graph-figures/{NAME}").json()["plots"]
    ]
    assert titles[:2] == ["Similarity graph", "Misalignment of the clients"]
    assert (
        browser.get(f"/api/client/{NAME}", params={"client": 3}).json()["place"][
            "clients"
        ]
        == 10
    )
    assert (runs / NAME / "ledger.sqlite").read_bytes() == before


def test_quarantine_from_the_decision_to_a_run_without_the_client(
    browser: TestClient, runs: Path
) -> None:
    form = {
        "client": "2",
        "action": "quarantine",
        "who": "A. Operator",
        "why": "sends nothing",
    }
    posted = browser.post(
        f"/quarantine/{NAME}", data=form, headers=ACT, follow_redirects=False
    )
    assert posted.status_code == 303
    kept = browser.get(f"/api/quarantine/{NAME}").json()
    assert kept["excluded"] == [2]
    assert (kept["decisions"][0]["who"], kept["decisions"][0]["why"]) == (
        "A. Operator",
        "sends nothing",
    )
    assert kept["decisions"][0]["p"] < 0.01
    assert "without = [\n    2,\n]" in kept["experiment"]
    assert "A. Operator" in browser.get(f"/audit/{NAME}").text
    started = browser.post(f"/api/without/{NAME}", headers=ACT).json()
    assert finished(browser, started)["state"] == "done"
    line = browser.get("/api/run/lab-without-2/seed-0").json()
    assert (line["state"], line["clients"], line["rounds"]) == ("done", 9, 12)
    again = browser.post(
        f"/api/decision/{NAME}", json={**form, "client": 2}, headers=ACT
    )
    assert (again.status_code, "already in quarantine" in again.json()["error"]) == (
        409,
        True,
    )


def test_without_anybody_in_quarantine_nothing_is_trained(browser: TestClient) -> None:
    answer = browser.post(f"/api/without/{NAME}", headers=ACT)
    assert (
        answer.status_code,
        "no client is in quarantine" in answer.json()["error"],
    ) == (
        409,
        True,
    )


def test_an_altered_certificate_is_told_on_the_page(
    browser: TestClient, runs: Path
) -> None:
    file = runs / "past" / "seed-0" / "unlearning" / "001" / "certificate.json"
    file.write_bytes(file.read_bytes().replace(b'"epsilon": 10.0', b'"epsilon": 0.10'))
    page = browser.get("/unlearning/past/seed-0")
    assert (page.status_code, "was altered" in page.text) == (200, True)
    assert browser.get("/api/unlearning/past/seed-0").status_code == 409


def test_a_second_action_waits_for_the_first(browser: TestClient, runs: Path) -> None:
    body = {"clients": "4", "target": 2, "max_rounds": 10_000, "heuristic": True}
    started = browser.post(f"/api/forget/{NAME}", json=body, headers=ACT).json()
    try:
        busy = browser.post(f"/api/graph/{NAME}", headers=ACT)
        assert (
            busy.status_code,
            "is in progress: unlearn client 4" in busy.json()["error"],
        ) == (
            409,
            True,
        )
        while not (job := browser.get(f"/api/job/{started['id']}/{NAME}").json())[
            "rounds"
        ]:
            assert job["state"] == "running", job
            time.sleep(0.1)
        form = browser.post(
            f"/stop/{started['id']}/{NAME}",
            data={"back": "/unlearning"},
            headers=ACT,
            follow_redirects=False,
        )
        assert form.status_code == 303
    finally:
        assert finished(browser, started)["state"] == "done"
    told = browser.get(f"/api/unlearning/{NAME}").json()
    assert told["open"]["clients"] == "4"
    assert told["requests"] == []


def deployed(run: Path) -> None:
    """Make a run look as one of nodes: its experiment names the backend that has them."""
    file = run / "experiment.toml"
    file.write_text(
        file.read_text(encoding="utf-8").replace('name = "local"', 'name = "flower"'),
        encoding="utf-8",
    )
    assert "flower" in file.read_text(encoding="utf-8")


def test_runs_of_nodes_are_asked_through_their_deployment(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poise.apps.ui.app import create_app

    deployed(runs / NAME)
    wish = {"clients": "1", "heuristic": True}
    asked: list[list[str]] = []
    monkeypatch.setattr(
        "poise.apps.ui.jobs._spawn",
        lambda place, arguments, held: asked.append(arguments) or 0,
    )
    plain = client(runs, KEYS)
    assert (
        "--deployment DIR"
        in plain.get(f"/unlearning/{NAME}?method=sifu&clients=1").text
    )
    assert plain.post(f"/api/forget/{NAME}", json=wish, headers=ACT).status_code == 409
    assert "are nodes" in plain.get(f"/federation/{NAME}").text
    assert plain.post(f"/api/graph/{NAME}", headers=ACT).status_code == 409
    told = TestClient(
        create_app(runs, KEYS, deployments=[tmp_path / "trial"]), base_url=HOME
    )
    page = told.get(
        f"/unlearning/{NAME}?method=sifu&clients=1&heuristic=on", headers=ACT
    ).text
    assert f"<option>{tmp_path / 'trial'}</option>" in page
    assert told.post(f"/api/forget/{NAME}", json=wish, headers=ACT).status_code == 200
    run = str((runs / NAME).resolve())
    assert asked == [
        [
            "deploy",
            "unlearn",
            run,
            "--clients",
            "1",
            "--heuristic",
            "--to",
            str(tmp_path / "trial"),
            "--json",
        ]
    ]
    other = told.post(f"/api/forget/{NAME}?to=/etc", json=wish, headers=ACT)
    assert (other.status_code, "does not know" in other.json()["error"]) == (409, True)


def test_looking_loads_nothing_that_trains(runs: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from poise.apps.ui.app import create_app\n"
        f"create_app(Path({str(runs)!r}))\n"
        "print([m for m in ('torch', 'plotly.graph_objects', 'scipy.stats') if m in sys.modules])"
    )
    import subprocess

    said = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.strip() == "[]"


def test_the_jobs_of_a_branch_are_its_trainings(
    browser: TestClient, runs: Path
) -> None:
    started = browser.post(
        "/api/verification/1/past/seed-0/unlearning/001", headers=ACT
    ).json()
    finished(browser, started, "past/seed-0")
    assert ConsoleJobs(runs / "past" / "seed-0").get(started["id"]).kind == "verify"
