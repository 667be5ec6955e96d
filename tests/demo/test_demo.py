"""The demo: every act against numbers that do not come from its code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import poise
from faults.support import call
from poise.analysis.reports.estimates import paired_difference
from poise.analysis.reports.rows import Score
from poise.apps.demo import DemoStopped, Stage
from poise.apps.demo.free_riders import interval
from poise.apps.demo.measures import Measure, Outcome
from poise.apps.demo.slow_clients import time_slow_clients
from poise.apps.demo.snippets import federation_call
from poise.apps.demo.stage import EXPERIMENTS, prepare
from poise.config.experiment import load
from poise.config.presets import DEMO
from poise.core.errors import LedgerError

SEEDS = (0, 1)
SIZES = [8] * 6 + [16] * 14 + [28] * 14 + [40] * 10 + [80] * 4
RIDERS = [48, 49]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The JSON document of a demo with two seeds, made in its own working folder."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = call("demo", "--seeds", "0..1", "--json")
        assert done.code == 0, done.err
        assert not done.err
        yield {"folder": folder, **json.loads(done.out)}


def runs(demo: Any, name: str) -> list[Any]:
    folder = demo["folder"] / "runs/demo" / name
    return [poise.open_run(folder / f"seed-{seed}") for seed in SEEDS]


def dealt(seed: int, **changes: object) -> poise.Federation:
    data = {**load(DEMO / "choice.toml").table("data"), "seed": seed, **changes}
    return poise.federation(**data)


def measure(act: Any, name: str) -> Any:
    (only,) = [found for found in act["measures"] if found["measure"] == name]
    return only


# The acts
# -------------------------------------------------------------------------------------------


def test_act_1_names_the_clients_whose_labels_differ_from_the_data_set(
    demo: Any,
) -> None:
    act = demo["acts"][0]
    assert act["sizes"][:48] == SIZES
    assert act["free-riders"] == RIDERS
    wrong, right = dealt(0), dealt(0, corruption=[])
    differs = [i for i in range(48) if (wrong.client(i)[1] != right.client(i)[1]).any()]
    assert act["wrong labels"] == differs
    assert len(differs) == 16, "a third of 48"
    total = sum(act["sizes"])
    expected = sum(act["sizes"][i] for i in differs) / total
    assert act["share of wrong labels"] == pytest.approx(expected)


def test_act_2_flags_the_biased_choices_by_their_closed_forms(demo: Any) -> None:
    choices = demo["acts"][1]["choices"]
    n = np.array(demo["acts"][0]["sizes"], dtype=float)
    p = n / n.sum()
    steps = 5 * np.ceil(n / 8)  # five epochs with batches of 8
    q = p * steps / (p * steps).sum()
    told = choices["FedAvg"]
    assert told["unbiased"] is False
    np.testing.assert_allclose(told["objective"], q)
    assert told["chi2"] == pytest.approx(((p - q) ** 2 / q).sum())
    assert told["sum of mean weights"] == pytest.approx(1)
    first = choices["FedAvg, first rule"]
    assert first["sum of mean weights"] == pytest.approx(10 / 50), "m of N clients"
    assert first["unbiased"] is False
    clustered = choices["clustered"]
    assert clustered["unbiased"] is True
    np.testing.assert_allclose(clustered["objective"], p)
    assert clustered["warnings"] == []
    assert choices["with Exp-α"]["unbiased"] is False


def test_act_3_measures_what_the_models_and_the_ledger_say(demo: Any) -> None:
    act = demo["acts"][2]
    final = measure(act, "final accuracy")["values"]
    share = measure(act, "weight: wrong labels")["values"]
    wrong = demo["acts"][0]["wrong labels"]
    for k, run in enumerate(runs(demo, "choice")):
        x, y = dealt(SEEDS[k]).test
        weight, bias = run.model[:640].reshape(10, 64), run.model[640:]
        answers = (x.reshape(len(x), 64) @ weight.T + bias).argmax(axis=1)
        assert final["with Exp-α"][k] == pytest.approx(float((answers == y).mean()))
        rows = run.contributions
        mine = np.isin(rows["client"], wrong)
        expected = rows["coefficient"][mine].sum() / rows["coefficient"].sum()
        assert share["with Exp-α"][k] == pytest.approx(expected)


def test_act_3_says_where_the_choice_loses(demo: Any) -> None:
    """Free-riders report no improvement, which Exp-alpha takes for agreement."""
    act = demo["acts"][2]
    riders = measure(act, "weight: free-riders")
    gained = np.subtract(riders["values"]["with Exp-α"], riders["values"]["FedAvg"])
    assert (gained > 0).all()
    losses = [line for line in act["table"][1:] if line[-1] == "worse"]
    said = " ".join(act["findings"])
    assert bool(losses) == ("Worse than FedAvg" in said)
    for line in act["table"][1:]:
        assert line[0] in said, "every measure appears in a sentence"


def test_act_4_names_the_planted_free_riders_and_nobody_else(demo: Any) -> None:
    act = demo["acts"][3]
    assert act["planted"] == RIDERS
    assert act["suspects"] == {str(seed): RIDERS for seed in SEEDS}
    assert "finds 4 of 4" in act["findings"][0]
    assert "0 of 96 honest" in act["findings"][1]


def test_act_5_is_inside_the_conditions_of_the_theorem(demo: Any) -> None:
    """eta (L + lambda) <= 1 with L = lambda_max(X'X/n)/2 of the softmax regression."""
    solver = load(DEMO / "forget.toml").table("solver")
    for seed in SEEDS:
        fed = dealt(seed, without=RIDERS)
        for i in range(fed.clients):
            x = fed.client(i)[0].reshape(-1, 64).astype(float)
            x = np.hstack([x, np.ones((len(x), 1))])
            curvature = np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2
            assert solver["lr"] * (curvature + solver["weight_decay"]) <= 1


def test_act_5_has_certificates_that_verify_confirms(demo: Any) -> None:
    act = demo["acts"][4]
    assert act["promised"] == [True, True]
    for text in act["certificates"]:
        done = call("verify", text)
        assert done.code == 0, done.err
        assert done.out.rstrip().endswith("the certificate holds")
        assert act["checks"][0] == done.out.count("\nok ") + done.out.startswith("ok ")
        document = json.loads(Path(text).read_text())
        assert document["clients"] == [34]
        assert act["restarts"][0][1] <= 60


def test_act_5_counts_the_rounds_of_the_branches(demo: Any) -> None:
    act = demo["acts"][4]
    rounds = measure(act, "rounds of retraining")["values"]
    for k, run in enumerate(runs(demo, "forget")):
        assert run.path is not None
        for name, folder in (
            ("poise unlearn", "unlearning"),
            ("from scratch", "scratch"),
        ):
            branch = poise.open_run(run.path / folder / "001")
            assert rounds[name][k] == len(branch.metric("accuracy"))


def test_act_6_reads_times_from_the_simulated_clock(demo: Any) -> None:
    act = demo["acts"][5]
    found = measure(act, "time to 0.8")
    for name, file, step in (
        ("synchronous", "synchronous", 5),
        ("FedFix", "fedfix", 1),
    ):
        for k, run in enumerate(runs(demo, file)):
            times = step * np.arange(1, 80 // step + 1)
            np.testing.assert_allclose(run.times, times)
            reached = times[run.metric("accuracy") >= 0.8]
            expected = None if not len(reached) else float(reached[0])
            assert found["values"][name][k] == expected
    verdict = act["table"][1][-1]
    waiting, going_on = found["values"]["synchronous"], found["values"]["FedFix"]
    if None not in waiting:
        d = stats.ttest_rel(going_on, waiting).confidence_interval()
        assert (verdict == "better") == (d.high < 0)
    assert all(a < (b or np.inf) for a, b in zip(going_on, waiting, strict=True))


# The lines to paste
# -------------------------------------------------------------------------------------------


def test_the_lines_of_python_run_one_after_the_other(
    demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for act in demo["acts"]:
        exec(act["python"], names)
        if act is demo["acts"][2]:
            recorded = runs(demo, "choice")[0]
            np.testing.assert_array_equal(names["run"].model, recorded.model)
    assert names["found"].suspects == RIDERS
    assert str(names["done"].path) == demo["acts"][4]["certificates"][0]
    np.testing.assert_array_equal(names["run"].model, runs(demo, "fedfix")[0].model)
    assert capsys.readouterr().out


def test_the_commands_run(demo: Any) -> None:
    for act in demo["acts"]:
        assert act["commands"]
        for command in act["commands"]:
            program, *arguments = shlex.split(command)
            assert program == "poise"
            done = call(*arguments)
            assert done.code == 0, f"{command}\n{done.err}"


def test_runs_of_the_commands_stay_in_the_folder_of_the_demo(demo: Any) -> None:
    commands = [c for act in demo["acts"] for c in act["commands"] if " run " in c]
    assert len(commands) == 2
    for command in commands:
        assert " --out runs/demo/again/" in command


def test_a_call_keeps_every_option() -> None:
    data = load(DEMO / "choice.toml").table("data")
    made = eval(federation_call(data, 3), {"poise": poise})
    assert made.digest() == dealt(3).digest()


# The page and the folder
# -------------------------------------------------------------------------------------------


def test_the_page_has_every_act_and_opens_no_network(demo: Any) -> None:
    text = (demo["folder"] / demo["page"]).read_text()
    assert "default-src 'none'" in text
    for number, act in enumerate(demo["acts"], 1):
        assert f'<section id="act-{number}">' in text
        assert act["title"].replace("'", "&#x27;") in text
    assert text.count("<figure>") == text.count('class="canvas"') >= 10
    assert "<script src" not in text
    assert "<link" not in text


def test_a_second_demo_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    prepare(tmp_path)
    prepare(tmp_path)
    assert sorted(f.stem for f in tmp_path.glob("*.toml")) == list(EXPERIMENTS)
    mine = tmp_path / "choice" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("keep me")
    with pytest.raises(LedgerError, match=r"notes.txt is not a run"):
        prepare(tmp_path)
    assert mine.read_text() == "keep me"


def test_a_changed_experiment_file_is_not_overwritten(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "choice.toml").write_text("mine")
    with pytest.raises(LedgerError, match=r"choice.toml is not the file"):
        prepare(tmp_path)
    assert (tmp_path / "choice.toml").read_text() == "mine"


def test_a_page_that_is_a_folder_is_refused_before_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("demo", "--page", tmp_path)
    assert done.code in (1, 2)
    assert "is a folder" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_demo_that_is_stopped_says_so(tmp_path: Path) -> None:
    prepare(tmp_path)
    with pytest.raises(DemoStopped):
        time_slow_clients(Stage(tmp_path, SEEDS, stop=lambda: True))


def test_all_experiments_have_the_same_federation() -> None:
    tables = [load(DEMO / f"{name}.toml").table("data") for name in EXPERIMENTS]
    for table in tables:
        assert table.pop("without", RIDERS) == RIDERS
        assert table == tables[0]


# Verdicts
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "first", "last", "verdict"),
    [
        ("high", (1.0, 2.0, 3.0), (2.0, 3.1, 4.0), "better"),
        ("low", (1.0, 2.0, 3.0), (2.0, 3.1, 4.0), "worse"),
        ("high", (1.0, 2.0, 3.0), (3.0, 1.0, 3.1), "unclear"),
        ("high", (1.0,), (2.0,), "one seed"),
    ],
)
def test_a_verdict_is_no_stronger_than_its_interval(
    better: Any, first: Any, last: Any, verdict: str
) -> None:
    outcome = Outcome(
        Measure("x", lambda run: None, better),
        {"a": Score(first), "b": Score(last)},
        paired_difference(last, first),
    )
    assert outcome.verdict == verdict


def test_a_target_that_a_run_never_reaches_has_no_verdict() -> None:
    outcome = Outcome(Measure("x", lambda run: None, "low"), {}, None)
    assert outcome.verdict == "not reached"
    assert "not every run" in outcome.sentence


def test_the_interval_of_a_share_is_that_of_the_binomial_test() -> None:
    for hits, n in ((10, 10), (0, 240), (7, 10)):
        ci = stats.binomtest(hits, n).proportion_ci()
        words = interval(hits, n).replace("%", "").split("interval ")[1].split(" to ")
        assert float(words[0]) == pytest.approx(100 * ci.low, rel=0.05, abs=0.01)
        assert float(words[1]) == pytest.approx(100 * ci.high, rel=0.01)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_whole_demo_in_a_terminal_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    done = call("demo")
    assert done.code == 0, done.err
    tables = [line for line in done.out.splitlines() if line.startswith(("┏", "│"))]
    assert tables
    assert max(map(len, tables)) <= 80
    for number in range(1, 7):
        assert f"{number} · " in done.out
    assert (tmp_path / "report.html").exists()
    assert "6 of 6" in done.err
