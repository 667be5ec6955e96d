"""Clients by number and by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import call
from poise.core.client_names import numbers_in
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.unlearning.named_clients import trained_clients
from results.hospitals import NAMES, SOLVER, hospitals, trained


def test_federations_and_runs_know_the_names(tmp_path: Path) -> None:
    fed = hospitals()
    assert fed.names == NAMES
    assert np.array_equal(fed.client("zurich")[0], fed.client(2)[0])
    assert np.array_equal(fed.client_test("zurich")[0], fed.client_test(2)[0])
    run = trained(tmp_path / "run")
    for each in (run, poise.open_run(tmp_path / "run")):
        assert each.client_names == each.meta.client_names == NAMES
        zurich = each.client("zurich")
        assert (zurich.index, zurich.name) == (2, "zurich")
        assert zurich.size == fed.sizes[2]
        assert zurich.importance == pytest.approx(fed.sizes[2] / fed.sizes.sum())
        assert np.array_equal(zurich.weights, each.weights[:, 2])
        assert zurich.metrics == ["client_test_accuracy"]
        curve = each.metric("client_test_accuracy")[:, 2]
        assert np.array_equal(zurich.metric("client_test_accuracy"), curve)
        assert zurich.staleness.tolist() == [0] * 4
        assert zurich.refusals == []
        assert np.array_equal(zurich.model, each.client_model(2))
        assert np.array_equal(each.client_model("zurich"), each.client_model(2))
        assert (
            repr(zurich)
            == f"<Client 2 'zurich': {fed.sizes[2]} samples, 4 contributions>"
        )


def test_weights_sum_over_several_parts_in_one_aggregation() -> None:
    """With replacement, a client may count twice in a round."""
    fed = poise.federation("digits", clients=3, samples=90)
    sampler = poise.samplers.MD(m=6)
    run = poise.train(fed, poise.task("logistic"), SOLVER, sampler, rounds=5)
    each = np.stack([run.client(i).weights for i in range(3)], axis=1)
    assert each == pytest.approx(run.weights)
    assert each.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("given", ["clevland", "", "4", 4, -1, True, 1.5])
def test_wrong_clients_are_one_error(given: object) -> None:
    run = trained()
    with pytest.raises(InvalidOption) as refused:
        run.client(given)  # type: ignore[arg-type]
    if given == "clevland":
        assert "did you mean 'cleveland'?" in str(refused.value)


def test_runs_without_names_say_so() -> None:
    fed = poise.federation("digits", clients=3, samples=90)
    run = poise.train(fed, poise.task("logistic"), SOLVER, rounds=1)
    assert run.client_names == ()
    assert run.client(1).name == ""
    with pytest.raises(
        InvalidOption, match="the clients have no names; their numbers are 0 to 2"
    ):
        run.client("cleveland")


def test_two_clients_of_one_name_need_their_numbers() -> None:
    with pytest.raises(InvalidOption, match=r"2 clients have the name 'a'.*0, 2"):
        poise.core.client_names.client_number("a", 3, ["a", "b", "a"])


def test_a_number_in_a_text_is_never_a_name() -> None:
    """A command that unlearns client 1 must not unlearn the client called "1"."""
    assert numbers_in("1, 0..1", 3, ["1", "2", "3"]) == "1,0..1"
    assert numbers_in("b", 2, ["a", "b"]) == "1"
    with pytest.raises(InvalidOption, match="no client '3-7'"):
        numbers_in("3-7", 9, ())


def test_audits_explain_by_name() -> None:
    run = trained(attacks=[poise.attacks.FreeRider([1])], rounds=6)
    result = poise.audit(run)
    assert result.explain("budapest") == result.explain(1)


def test_unlearning_takes_names(tmp_path: Path) -> None:
    options = {"max_rounds": 1, "min_rounds": 0, "heuristic": True, "noise": "seeded"}
    fed = hospitals()
    by_name = poise.unlearn(
        trained(keep="all"),
        ["zurich"],
        federation=fed,
        **options,  # type: ignore[arg-type]
    )
    by_number = poise.unlearn(
        trained(keep="all"),
        [2],
        federation=fed,
        **options,  # type: ignore[arg-type]
    )
    assert by_name.certificate["clients"] == by_number.certificate["clients"] == [2]
    assert by_name.run.digest == by_number.run.digest
    assert by_name.run.client_names == ("cleveland", "budapest", "long beach")
    # a branch counts its own clients; a request names those of the training
    again = poise.unlearn(
        by_name.run,
        "long beach",
        federation=fed,
        **options,  # type: ignore[arg-type]
    )
    assert again.certificate["clients"] == [3]
    with pytest.raises(InvalidOption, match="no client 'zürich'"):
        poise.unlearn(trained(keep="all"), ["zürich"], federation=fed)


def files_of(tmp_path: Path) -> Path:
    """An experiment on a table whose column ``hospital`` names the owner of each row."""
    generator = np.random.default_rng(1)
    lines = ["hospital,age,bmi,sick"]
    for name in NAMES:
        for age, bmi in generator.normal(size=(20, 2)):
            lines.append(f"{name},{age:.4f},{bmi:.4f},{int(age > 0)}")
    (tmp_path / "patients.csv").write_text("\n".join(lines))
    file = tmp_path / "exp.toml"
    file.write_text(
        '[data]\nsource = "patients.csv"\nkey = "hospital"\nlabel = "sick"\n'
        '[task]\nmodel = "logistic"\n'
        '[solver]\nname = "sgd"\nlr = 0.05\nsteps = 2\nbatch_size = 8\n'
        '[run]\nrounds = 3\nkeep = "all"\n'
    )
    return file


def test_the_command_line_takes_names(tmp_path: Path) -> None:
    assert call("run", files_of(tmp_path), "--out", tmp_path / "runs").code == 0
    run = tmp_path / "runs" / "seed-0"
    names = poise.open_run(run).client_names
    assert sorted(names) == sorted(NAMES)
    heard = call("audit", run, "--json", "--out", tmp_path / "audit.html")
    assert json.loads(heard.out)["runs"][0]["names"] == list(names)
    fast = ("--min-rounds", "0", "--max-rounds", "1", "--heuristic", "--json")
    refused = call("unlearn", run, "--clients", "cleveland,zurch", *fast)
    assert refused.code == 2
    assert "did you mean 'zurich'?" in json.loads(refused.out)["hint"]
    assert not (run / "unlearning").exists()
    done = call("unlearn", run, "--clients", "long beach, cleveland", *fast)
    assert done.code == 0, done.err
    expected = sorted([names.index("long beach"), names.index("cleveland")])
    assert json.loads(done.out)["clients"] == expected


def test_erasing_a_client_erases_its_name(tmp_path: Path) -> None:
    call("run", files_of(tmp_path), "--out", tmp_path / "runs")
    run = tmp_path / "runs" / "seed-0"
    before = poise.open_run(run).client_names
    gone = before.index("zurich")
    fast = (
        "--min-rounds",
        "0",
        "--max-rounds",
        "1",
        "--heuristic",
        "--erase",
        "--json",
    )
    done = call("unlearn", run, "--clients", "zurich", *fast)
    assert done.code == 0, done.err
    after = poise.open_run(run).client_names
    assert after[gone] == ""
    assert [n for n in after if n] == [n for n in before if n != "zurich"]
    assert b"zurich" not in (run / "ledger.sqlite").read_bytes()


def test_damaged_names_are_one_error(tmp_path: Path) -> None:
    for text in ("[", '["a"]', "[1, 2, 3, 4]", '"abcd"'):
        run = trained()
        run.note("client names", text)
        with pytest.raises(LedgerError, match="not a list of 4 names"):
            run.client("zurich")


def test_shards_know_the_names_of_the_whole_federation(tmp_path: Path) -> None:
    fed = hospitals()
    ensemble = poise.shards(
        fed,
        poise.task("logistic"),
        solver=SOLVER,
        shards=[[0, 2], [1, 3]],
        rounds=2,
        out=tmp_path / "e",
    )
    known = trained_clients(ensemble)
    assert known.names == NAMES
    poise.unlearn(ensemble, ["zurich"], method="shards")
    assert ensemble.unlearned == [2]


def test_a_federation_with_too_few_names_is_refused() -> None:
    fed = replace(hospitals(), names=("a", "b"))
    with pytest.raises(IncompatibleParts, match="4 clients and 2 names"):
        poise.train(fed, poise.task("logistic"), SOLVER, rounds=1)
