"""Tables of one run, and one table over many runs."""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import small
from poise.core.errors import InvalidOption
from results.hospitals import NAMES, SOLVER, hospitals, trained

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def run() -> poise.Run:
    return poise.train(
        hospitals(),
        poise.task("logistic"),
        SOLVER,
        poise.samplers.Uniform(m=2),
        rounds=6,
        evaluate_every=2,
        metrics=["client_test_accuracy", "train_loss"],
        attacks=[poise.attacks.FreeRider([1])],
    )


def test_rounds(run: poise.Run) -> None:
    table = run.to_pandas()
    assert table["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(table["time"], run.times)
    assert np.array_equal(table["seconds"], run.seconds)
    assert np.array_equal(table["bytes_up"], run.bytes_up)
    assert table["contributions"].tolist() == [2] * 6
    assert table["refusals"].tolist() == [0] * 6
    assert np.isnan(table["train_loss"]).tolist() == [True, False] * 3
    assert "client_test_accuracy" not in table
    assert table.equals(run.to_pandas("rounds"))


def test_contributions(run: poise.Run) -> None:
    table = run.to_pandas("contributions")
    assert len(table) == 12
    assert [NAMES[c] for c in table["client"]] == table["name"].tolist()
    pivot = table.pivot_table(
        index="round", columns="client", values="weight", aggfunc="sum", fill_value=0.0
    ).reindex(columns=range(4), fill_value=0.0)
    assert pivot.to_numpy() == pytest.approx(run.weights)
    assert (table["staleness"] == 0).all()
    assert (table["version"] == table["round"] - 1).all()
    # unbiased for 2 of 4 clients: twice the importance
    expected = 2 * hospitals().importance[table["client"]]
    assert table["base_weight"].to_numpy() == pytest.approx(expected)


def test_staleness_of_an_asynchronous_run() -> None:
    """Equal clients that answer one after another: each is N - 1 versions behind."""
    fed = poise.federation("digits", clients=3, samples=60)
    clock = poise.clocks.Asynchronous(durations=[1.0, 1.1, 1.2])
    run = poise.train(fed, poise.task("logistic"), SOLVER, clock=clock, rounds=9)
    table = run.to_pandas("contributions")
    assert table["staleness"].tolist()[3:6] == [2, 2, 2]
    assert (table["round"] - 1 - table["version"] == table["staleness"]).all()


def test_clients(run: poise.Run) -> None:
    table = run.to_pandas("clients").set_index("name")
    fed = hospitals()
    assert table.index.tolist() == list(NAMES)
    assert table["client"].tolist() == [0, 1, 2, 3]
    assert table["size"].tolist() == fed.sizes.tolist()
    assert table["importance"].to_numpy() == pytest.approx(fed.importance)
    assert table["contributions"].sum() == 12
    assert table["mean_weight"].to_numpy() == pytest.approx(run.weights.mean(axis=0))
    taking_part = np.where(run.weights > 0, run.weights, np.nan)
    assert table["weight_per_contribution"].to_numpy() == pytest.approx(
        np.nanmean(taking_part, axis=0)
    )
    last = run.metric("client_test_accuracy")[5]
    assert np.array_equal(table["client_test_accuracy"], last)


def test_clients_without_names_and_with_designed_traits() -> None:
    fed = poise.federation("digits", clients=3, samples=60)
    fed = fed.with_corruption("flip-labels", rate=1.0, ratio=0.5)
    run = poise.train(fed, poise.task("logistic"), SOLVER, rounds=1)
    table = run.to_pandas("clients")
    assert table["name"].tolist() == ["client 0", "client 1", "client 2"]
    assert table["flip ratio"].tolist() == [0.5] * 3
    assert run.to_pandas("contributions")["name"].tolist() == table["name"].tolist()


@pytest.mark.parametrize("name", ["rounds", "contributions", "clients"])
def test_polars_has_the_same_columns(run: poise.Run, name: str) -> None:
    ours = run.to_polars(name)  # type: ignore[arg-type]
    theirs = run.to_pandas(name)  # type: ignore[arg-type]
    assert ours.columns == list(theirs.columns)
    for column in ours.columns:
        values = ours[column].to_list()
        assert values == theirs[column].tolist() or np.array_equal(
            values, theirs[column].to_numpy(), equal_nan=True
        )


def test_a_missing_library_names_its_extra(
    run: poise.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, method in (("pandas", run.to_pandas), ("polars", run.to_polars)):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            with pytest.raises(InvalidOption, match=rf"pip install 'poise\[{name}\]'"):
                method()


def test_unknown_tables_are_refused(run: poise.Run) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'clients'"):
        run.to_pandas("client")  # type: ignore[arg-type]


# many runs
# --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    fed = poise.federation("digits", "dirichlet", alpha=0.5, clients=5, samples=150)
    for lr in (0.05, 0.5):
        for seed in (0, 1, 10):
            poise.train(
                fed,
                poise.task("logistic"),
                poise.solvers.SGD(
                    lr=lr, steps=3, batch_size=10, momentum=0.9 if lr < 0.1 else 0.0
                ),
                rounds=4,
                seed=seed,
                out=root / f"lr-{lr}" / f"seed-{seed}",
            ).close()
    return root


@pytest.mark.parametrize("pattern", ["{}", "{}/**", "{}/*", "{}/*/seed-*"])
def test_one_row_per_run(folder: Path, pattern: str) -> None:
    table = poise.load(pattern.format(folder))
    assert len(table) == 6
    assert table["seed"].tolist() == [0, 1, 10, 0, 1, 10]
    assert table["solver.lr"].tolist() == [0.05] * 3 + [0.5] * 3
    # only some runs set the momentum: the others have its default
    assert table["solver.momentum"].tolist() == [0.9] * 3 + [0.0] * 3
    assert set(table["state"]) == {"done"}
    assert set(table["data.alpha"]) == {0.5}
    assert set(table["sampler.name"]) == {"full"}
    assert "run.seeds" not in table
    first = poise.open_run(table["path"][0])
    accuracy = first.metric("accuracy")
    row = table.iloc[0]
    assert row["accuracy.final"] == accuracy[-1]
    assert row["accuracy.best"] == accuracy.max()
    assert row["accuracy.best_round"] == accuracy.argmax() + 1
    assert row["loss.best"] == first.metric("loss").min()
    assert row["bytes"] == first.bytes_up.sum() + first.bytes_down.sum()
    means = table.groupby("solver.lr")["accuracy.final"].mean()
    assert len(means) == 2


def test_rounds_of_many_runs_have_the_options_that_differ(folder: Path) -> None:
    table = poise.load(folder, "rounds")
    assert len(table) == 6 * 4
    assert list(table.columns[:4]) == ["path", "seed", "solver.lr", "solver.momentum"]
    assert "data.alpha" not in table
    one = table[(table["solver.lr"] == 0.5) & (table["seed"] == 10)]
    run = poise.open_run(folder / "lr-0.5" / "seed-10")
    assert np.array_equal(one["accuracy"], run.metric("accuracy"))
    assert len(poise.load(folder, "clients")) == 6 * 5


def test_damaged_folders_are_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder / "lr-0.5", tmp_path / "runs"))
    (copy / "seed-1" / "ledger.sqlite").write_bytes(b"no database" * 1000)
    with pytest.warns(UserWarning, match="seed-1 is left out"):
        table = poise.load(copy)
    assert table["seed"].tolist() == [0, 10]
    (copy / "seed-0" / "experiment.toml").write_text("[data")
    with pytest.warns(UserWarning, match="seed-0 is left out.*not TOML"):
        assert len(poise.load(copy)) == 1


def test_no_runs_is_an_error(tmp_path: Path) -> None:
    for pattern in (tmp_path, f"{tmp_path}/nothing/**"):
        with pytest.raises(InvalidOption, match="there is no run in"):
            poise.load(pattern)


def test_branches_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    trained(tmp_path / "run", keep="all").close()
    poise.unlearn(
        tmp_path / "run",
        ["zurich"],
        federation=hospitals(),
        heuristic=True,
        min_rounds=0,
        max_rounds=1,
    )
    assert len(poise.load(tmp_path)) == 1
    assert len(poise.load(tmp_path, branches=True)) == 2


def test_loading_imports_no_code_of_users(tmp_path: Path) -> None:
    """Reading a run never imports what it names."""
    text = small(rounds=1).replace(
        'model = "mlp"\nhidden = 16', 'module = "wt_never_there.models:make"'
    )
    run = trained(tmp_path / "run")
    run.close()
    (tmp_path / "run" / "experiment.toml").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = poise.load(tmp_path)
    assert table["task.module"].tolist() == ["wt_never_there.models:make"]
    assert "wt_never_there" not in sys.modules
