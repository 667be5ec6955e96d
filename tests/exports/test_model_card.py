"""A model card says what the ledger has, with the right numbers, and nothing private."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

import poise
from documentation.test_references import entries
from poise.core.errors import InvalidOption
from poise.exports import CardOptions, card
from poise.exports.bibliography import cited_in, sources_of, works
from poise.exports.markdown import text
from poise.results import Run, open_run

CLIENTS = 8
SEEDS = (0, 1, 2)
SMALL_STEPS = poise.solvers.SGD(lr=0.05, steps=2, batch_size=16)
"""Steps that a guarantee of unlearning allows."""


def train(path: Path | None = None, **options: Any) -> Run:
    fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=CLIENTS, seed=0)
    parts: dict[str, Any] = {
        "solver": poise.solvers.SGD(lr=0.1, steps=4, batch_size=16),
        "sampler": poise.samplers.MD(4),
        "metrics": ["client_loss", "client_accuracy"],
        "rounds": 6,
    }
    return poise.train(fed, poise.task("logistic"), out=path, **{**parts, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one experiment."""
    path = tmp_path_factory.mktemp("runs") / "exp"
    for seed in SEEDS:
        train(path / f"seed-{seed}", seed=seed, keep="all").close()
    return path


@pytest.fixture
def runs(folder: Path) -> list[Run]:
    return [open_run(folder / f"seed-{seed}") for seed in SEEDS]


def front(text: str) -> dict[str, Any]:
    """The front matter, as a YAML reader reads it."""
    _, block, _ = text.split("---\n", 2)
    values = yaml.safe_load(block)
    assert isinstance(values, dict)
    return values


def section(text: str, name: str) -> str:
    """The body of one section."""
    (body,) = re.findall(rf"^## {name}\n\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return str(body)


def rows(body: str) -> list[list[str]]:
    """The cells of all rows of all tables."""
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def last(path: Path, metric: str) -> float:
    """The last value of a metric, from the database itself."""
    query = "SELECT value FROM metrics WHERE name = ? ORDER BY n DESC LIMIT 1"
    database = sqlite3.connect(path / "ledger.sqlite")
    ((value,),) = database.execute(query, (metric,)).fetchall()
    return float(value)


def test_front_matter_is_yaml_and_has_the_numbers(
    folder: Path, runs: list[Run]
) -> None:
    options = CardOptions(license="mit", title='a "quoted": title # 1')
    values = front(card(runs[1], runs, options=options))
    assert values["license"] == "mit"
    assert values["datasets"] == ["digits"]
    (index,) = values["model-index"]
    assert index["name"] == 'a "quoted": title # 1'
    found = {m["type"]: m["value"] for m in index["results"][0]["metrics"]}
    assert found["accuracy"] == last(folder / "seed-1", "accuracy")
    assert found["loss"] == last(folder / "seed-1", "loss")


def test_hubs_read_the_front_matter(tmp_path: Path, runs: list[Run]) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="extra datasets")
    (tmp_path / "README.md").write_text(card(runs[0]), encoding="utf-8")
    read = hub.ModelCard.load(tmp_path / "README.md")
    assert read.data.license == "unknown"
    assert read.data.library_name == "pytorch"
    scores = {r.metric_type: r.metric_value for r in read.data.eval_results}
    assert scores["accuracy"] == runs[0].metric("accuracy")[-1]


def test_intervals_are_student_s_over_the_seeds(folder: Path, runs: list[Run]) -> None:
    values = [last(folder / f"seed-{seed}", "accuracy") for seed in SEEDS]
    reach = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    places = 1 - math.floor(math.log10(reach))
    wanted = f"{np.mean(values):.{places}f} ± {reach:.{places}f}"
    table = rows(section(card(runs[0], runs), "Results"))
    (found,) = [line for line in table if line[0] == "`accuracy`"]
    assert found == ["`accuracy`", f"{values[0]:.4g}", wanted]


def test_a_single_seed_has_no_interval_and_says_so(runs: list[Run]) -> None:
    page = card(runs[0])
    assert "±" not in page
    assert "One seed" in section(page, "Results")
    assert "One seed" in section(page, "Limits")


def test_an_earlier_model_has_its_own_scores(runs: list[Run]) -> None:
    page = card(runs[0], runs, n=2)
    assert "after 2 of 6 aggregations" in page
    found = front(page)["model-index"][0]["results"][0]["metrics"][0]["value"]
    assert found == runs[0].metric("accuracy")[1]
    with pytest.raises(InvalidOption, match="no model after 7 aggregations"):
        card(runs[0], n=7)


def test_clients_have_their_sizes_classes_and_scores(runs: list[Run]) -> None:
    fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=CLIENTS, seed=0)
    run = runs[0]
    table = rows(section(card(run), "Data"))
    of_clients = [line for line in table if line[0].startswith("client ")]
    assert len(of_clients) == CLIENTS
    for i, line in enumerate(of_clients):
        _, labels = fed.client(i)
        number, count = max(
            ((k, int((labels == k).sum())) for k in range(10)), key=lambda p: p[1]
        )
        assert line[1] == f"{len(labels):,}"
        assert line[2].startswith(f"{number} ({count:,})")
        took_part = int((run.contributions["client"] == i).sum())
        assert line[3] == str(took_part)
        share = run.weights[:, i].sum() / run.weights.sum()
        assert line[4] == f"{100 * share:.1f} %"
        assert float(line[6]) == pytest.approx(run.metric("client_loss")[-1, i], 1e-3)


def test_the_worst_client_is_named(runs: list[Run]) -> None:
    table = rows(section(card(runs[0]), "Results"))
    losses = runs[0].metric("client_loss")[-1]
    accuracies = runs[0].metric("client_accuracy")[-1]
    worst = {line[0]: line[4] for line in table if line[0].startswith("`client_")}
    assert worst == {
        "`client_loss`": f"client {np.argmax(losses)}",
        "`client_accuracy`": f"client {np.argmin(accuracies)}",
    }


def test_the_limits_name_the_worst_client_with_its_value(runs: list[Run]) -> None:
    values = runs[0].metric("client_accuracy")[-1]
    body = section(card(runs[0]), "Limits")
    worst = int(np.argmin(values))
    assert f"worst for client {worst}: `client_accuracy` {values.min():.4g}" in body
    assert f"a median of {np.median(values):.4g} over" in body


def test_the_data_of_metrics_per_client_are_named() -> None:
    fed = poise.federation("digits", clients=4, samples=200, client_test_share=0.3)
    names = ["client_accuracy", "client_test_accuracy"]
    run = poise.train(fed, poise.task("logistic"), SMALL_STEPS, rounds=1, metrics=names)
    page = card(run)
    body = section(page, "Results")
    assert "- `client_accuracy`: on each client's training data." in body
    assert "- `client_test_accuracy`: on each client's own test data." in body
    assert "`client_test_accuracy`" in section(page, "Limits")


def test_the_source_of_the_data_stands_beside_its_description(runs: list[Run]) -> None:
    body = section(card(runs[0]), "Data")
    assert "\nSource: [Fraboni 2023], [Hsu 2019].\n" in body
    assert body.index("Source: ") < body.index("|")


def test_the_card_says_how_the_seed_was_chosen(runs: list[Run]) -> None:
    chosen = poise.exports.chosen_seed(runs)
    best = max(run.metric("accuracy")[-1] for run in runs)
    page = card(chosen.run, runs, options=CardOptions(chosen=chosen.rule))
    assert (
        f"It was chosen for the highest final accuracy on held-out data of 3 runs, {best:.4g}"
        in page
    )
    assert poise.exports.chosen_seed(runs, 1).rule == ""
    assert "It was chosen" not in card(runs[0], runs)


def test_clients_can_be_left_out(runs: list[Run]) -> None:
    body = section(card(runs[0], options=CardOptions(list_clients=False)), "Data")
    assert "8 clients with" in body
    assert not [line for line in rows(body) if line[0].startswith("client ")]


def test_runs_of_several_experiments_are_refused(runs: list[Run]) -> None:
    with pytest.raises(InvalidOption, match="several experiments"):
        card(runs[0], [train(rounds=2)])


@pytest.mark.parametrize("licence", ["", "two words"])
def test_a_licence_is_one_word(licence: str) -> None:
    with pytest.raises(InvalidOption, match="is not one word"):
        CardOptions(license=licence)


def test_the_experiment_in_the_card_gives_the_same_digest(
    tmp_path: Path, runs: list[Run]
) -> None:
    body = section(card(runs[2]), "Reproduction")
    (text,) = re.findall(r"```toml\n(.*?)```", body, re.S)
    assert runs[2].digest in body
    from poise.config.experiment import parse
    from poise.training import begin, compose

    again = begin(compose(parse(text), 2), tmp_path / "again")
    assert again.digest == runs[2].digest


def test_texts_of_users_stay_texts() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = np.array(["a|b", "<script>", "[link](http://x)"])[np.arange(60) % 3]
    fed = poise.federation((x, y), clients=3, test_share=0.2)
    solver = poise.solvers.SGD(lr=0.1, steps=2, batch_size=4)
    page = card(poise.train(fed, poise.task("logistic"), solver, rounds=1))
    (classes,) = [line for line in rows(section(page, "Model")) if line[0] == "classes"]
    assert classes[1] == r"\<script\>, \[link\](http://x), a\|b"


def test_a_card_names_no_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{a:.3f},{b:.3f},{k % 2}" for k, (a, b) in enumerate(rng.normal(size=(80, 2)))
    ]
    file = tmp_path / "patients.csv"
    file.write_text("\n".join(["a,b,label", *lines]))
    fed = poise.federation(file, clients=4, label="label", test_share=0.2)
    solver = poise.solvers.SGD(lr=0.1, steps=2, batch_size=4)
    run = poise.train(fed, poise.task("logistic"), solver, rounds=1, out=tmp_path / "r")
    page = card(run)
    assert str(tmp_path) in run.experiment
    assert str(tmp_path) not in page
    assert 'source = "patients.csv"' in page


# Findings -----------------------------------------------------------------------------------------


def test_free_riders_are_named() -> None:
    attack = poise.attacks.FreeRider([2], kind="disguised")
    run = train(attacks=[attack], sampler=None, rounds=8)
    page = card(run)
    assert poise.audit(run).suspects == [2]
    assert "1 of 8 clients are suspected" in section(page, "Audit")
    assert "- client 2: p = " in section(page, "Audit")
    assert "clients = \\[2\\], kind = disguised" in section(page, "Attacks")


def test_a_run_without_attacks_has_no_such_section(runs: list[Run]) -> None:
    assert "## Attacks" not in card(runs[0])
    assert section(card(runs[0]), "Refused updates").strip() == (
        "The server refused no update."
    )


def test_refused_updates_are_counted_by_client_and_reason() -> None:
    fed = poise.quadratics([[1.0], [2.0], [3.0]], curvature=(1.0, 1e200, 1.0))
    solver = poise.solvers.SGD(lr=0.1, steps=3)
    run = poise.train(fed, fed.task, solver, rounds=4, bad_updates="drop")
    body = section(card(run), "Refused updates")
    table = [line for line in rows(body) if line[0].startswith("client ")]
    assert f"refused {len(run.refusals)} updates" in body
    assert sum(int(line[1]) for line in table) == len(run.refusals) > 0
    assert {line[0] for line in table} == {"client 1"}
    assert "given in Python" in section(card(run), "Data")


def test_a_kept_explanation_is_quoted(folder: Path, tmp_path: Path) -> None:
    from faults.support import call

    assert "has no explanation" in section(card(open_run(folder / "seed-0")), "Bias")
    path = Path(shutil.copytree(folder / "seed-0", tmp_path / "run"))
    outcome = call("explain", path, "--keep")
    assert outcome.code == 0, outcome.err
    kept = json.loads((path / "explanation.json").read_text())
    body = section(card(open_run(path)), "Bias")
    assert len(kept["rows"]) > 5
    assert [line[0] for line in rows(body)[1:]] == [text(n) for n, _ in kept["rows"]]
    for warning in kept["warnings"]:
        assert f"- {text(warning)}" in body


@pytest.mark.slow
def test_unlearned_clients_and_certificates(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(path, keep="all", solver=SMALL_STEPS).close()
    assert "No client asked" in section(card(open_run(path)), "Guarantees")
    options = {"sigma": 0.1, "target": 2.0, "min_rounds": 1, "max_rounds": 2}
    for clients in ([1], [4]):
        poise.unlearn(path, clients, **options)
    first, second = (path / "unlearning" / name for name in ("001", "002"))
    training = section(card(open_run(path)), "Guarantees")
    assert "still contains clients that were unlearned later: client 1, client 4." in (
        training
    )
    assert "unlearned later: client 4." in card(open_run(first))
    newest = card(open_run(second))
    assert "unlearned later" not in newest
    assert "The state of the run" not in newest
    _, *table = rows(section(newest, "Guarantees"))
    assert [line[:3] for line in table] == [
        ["1", "client 1", "sifu"],
        ["2", "client 4", "sifu"],
    ]
    names = {line[0] for line in rows(section(newest, "Data"))}
    assert {"client 0", "client 2", "client 3", "client 7"} <= names
    assert not {"client 1", "client 4"} & names


def test_privacy_is_that_of_the_gaussian_mechanism() -> None:
    """Everyone, equal weights 1/8: a round is a Gaussian mechanism of ratio C / (8 sigma)."""
    rounds, clip, sigma = 6, 0.5, 0.4
    fed = poise.federation("digits", clients=CLIENTS, importance="equal")
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.1, steps=2, batch_size=16),
        weighting=poise.weightings.Clipped(clip),
        server=poise.servers.Noisy(sigma),
        rounds=rounds,
    )
    ratio = math.sqrt(rounds) * clip / CLIENTS / sigma

    def delta(epsilon: float) -> float:
        """[Balle 2018, Thm 8]."""
        a, b = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
        return float(stats.norm.cdf(a) - math.exp(epsilon) * stats.norm.cdf(b))

    found = re.search(r"largest ε of a client is ([\d.]+)", card(run))
    assert found
    assert delta(float(found[1]) * 1.01) < 0.01 < delta(float(found[1]) * 0.99)


# Sources ------------------------------------------------------------------------------------------


def test_the_bibliography_is_that_of_the_documentation() -> None:
    assert set(works()) == set(entries())
    for key, fields in entries().items():
        work = works()[key]
        assert fields["year"] in str(work)
        assert fields["title"].strip("{}").replace("\\", "") in str(work)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"solver": {"name": "sgd"}}, "McMahan 2017"),
        ({"sampler": {"name": "full"}}, "McMahan 2017"),
        ({"weighting": {"name": "proportional"}}, "McMahan 2017"),
        ({"solver": {"name": "scaffold"}}, "Karimireddy 2020"),
        ({"sampler": {"name": "power-of-choice"}}, "Cho 2020"),
        ({"weighting": {"name": "exp"}}, "Exp-α 2023"),
        ({"server": {"name": "adam"}}, "Reddi 2021"),
        ({"clock": {"name": "buffered"}}, "Nguyen 2021"),
        ({"aggregator": {"name": "median"}}, "Yin 2018"),
        ({"channel": {"name": "top-k"}}, "Stich 2018"),
        ({"personal": {"name": "batchnorm"}}, "Li 2021"),
        ({"task": {"model": "resnet20"}}, "Exp-α 2023"),
        ({"data": {"source": "digits", "partition": "dirichlet"}}, "Hsu 2019"),
        ({"attacks": [{"name": "free-rider"}]}, "Fraboni 2023"),
        ({"sampler": {"name": "budgeted", "of": {"name": "md"}}}, "Fraboni 2023"),
    ],
)
def test_parts_have_their_sources(table: dict[str, Any], wanted: str) -> None:
    (section,) = table
    labels = [work.label for work in sources_of(table).get(section, [])]
    assert wanted in labels


def test_a_part_of_the_user_s_own_has_no_source() -> None:
    assert "sampler" not in sources_of({"sampler": {"name": "mine"}})
    assert cited_in("[Nobody 1999]") == []


def test_works_in_the_method_are_in_the_references(runs: list[Run]) -> None:
    page = card(runs[0])
    labels = set(re.findall(r"\[([^\]]+ \d{4})\]", section(page, "Method")))
    assert labels
    for label in labels:
        assert f"**[{label}]**" in section(page, "References")
