"""What TensorBoard, MLflow and Weights & Biases get is what the ledger has, number by number."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import call
from poise.core.errors import InvalidOption
from poise.core.types import Record
from poise.exports import Live, MLflow, Scalar, TensorBoard, WandB, scalars
from poise.exports import live as live_module
from poise.exports.scalars import facts
from poise.results import Run, open_run

Numbers = dict[str, dict[int, float]]
ROUNDS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with metrics of both kinds, one of them not measured in every round."""
    path = tmp_path_factory.mktemp("runs") / "exp" / "seed-0"
    train(path)
    return path


def train(path: Path, **options: Any) -> None:
    fed = poise.federation(
        "digits", "dirichlet", alpha=0.3, clients=8, seed=0, samples=400
    )
    parts = poise.recipes.fedavg(m=3, lr=0.1, steps=2, batch_size=8)
    poise.train(
        fed,
        poise.task("logistic"),
        **parts,
        rounds=ROUNDS,
        evaluate_every=2,
        metrics=["client_loss"],
        out=path,
        **options,
    ).close()


def in_ledger(path: Path) -> Numbers:
    """The numbers, from the database itself."""
    found: Numbers = {}

    def put(name: str, n: int, value: float) -> None:
        found.setdefault(name, {})[n + 1] = value

    database = sqlite3.connect(path / "ledger.sqlite")
    for n, name, value, blob in database.execute(
        "SELECT n, name, value, per_client FROM metrics"
    ):
        if blob is None:
            put(name, n, value)
        else:
            row = np.sort(np.frombuffer(blob, "<f8"))
            middle = (row[(len(row) - 1) // 2] + row[len(row) // 2]) / 2
            for word, one in (
                ("least", row[0]),
                ("median", middle),
                ("largest", row[-1]),
            ):
                put(f"{name}/{word}", n, one)
    for n, moment, up, down in database.execute(
        "SELECT n, time, bytes_up, bytes_down FROM rounds"
    ):
        for name, one in (
            ("time", moment),
            ("bytes_up", up),
            ("bytes_down", down),
            ("refused", 0),
        ):
            put(name, n, one)
    for n in range(ROUNDS):
        rows = database.execute(
            "SELECT coefficient, norm FROM contributions WHERE n = ?", (n,)
        ).fetchall()
        put("clients", n, len(rows))
        put("weights/sum", n, sum(c for c, _ in rows))
        put("weights/largest", n, max(c for c, _ in rows))
        put("norms/median", n, sorted(norm for _, norm in rows)[1])  # of three
    return found


def same(found: Numbers, wanted: Numbers, kind: Any = np.float64) -> None:
    """The same names, rounds and numbers; sums of three weights may round in another order."""
    assert found.keys() == wanted.keys()
    for name, curve in wanted.items():
        assert found[name].keys() == curve.keys(), name
        for n, value in curve.items():
            assert kind(found[name][n]) == pytest.approx(
                kind(value), rel=float(np.finfo(kind).eps)
            ), (name, n)


def grouped(numbers: Iterable[Scalar]) -> Numbers:
    found: Numbers = {}
    for number in numbers:
        assert number.step not in found.setdefault(number.name, {}), (
            "one number per name and round"
        )
        found[number.name][number.step] = number.value
    return found


def test_numbers_are_those_of_the_ledger(folder: Path) -> None:
    wanted = in_ledger(folder)
    assert len(wanted["accuracy"]) == ROUNDS // 2 < len(wanted["time"])
    same(grouped(scalars(open_run(folder))), wanted)


def test_options_are_the_ledger_s_whatever_has_become_of_the_file(
    folder: Path, tmp_path: Path
) -> None:
    edited = Path(shutil.copytree(folder, tmp_path / "edited"))
    file = edited / "experiment.toml"
    text = file.read_text(encoding="utf-8")
    assert "lr = 0.1" in text
    file.write_text(text.replace("lr = 0.1", "lr = 9.9"), encoding="utf-8")
    assert facts(open_run(edited)) == facts(open_run(folder))
    assert facts(open_run(edited))["solver.lr"] == "0.1"


def test_only_rounds_that_are_asked_for(folder: Path) -> None:
    run = open_run(folder)
    assert [*scalars(run, 4)] == [s for s in scalars(run) if s.step > 4]


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.numbers: list[Scalar] = []
        self.calls: list[str] = []

    def begin(self, run: Run) -> None:
        self.calls.append("begin")

    def write(self, numbers: Iterable[Scalar]) -> None:
        self.calls.append("write")
        self.numbers += numbers

    def end(self, run: Run) -> None:
        self.calls.append(f"end after {run.rounds}")


def test_live_exports_every_round_once_and_at_once(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "REST", 0.0)
    monkeypatch.setattr("poise.ledger.store.GROUPED", 0.0)
    sink, there = Kept(), []
    with Live(tmp_path / "run", sink) as live:
        train(
            tmp_path / "run",
            callbacks=[
                live,
                lambda record: there.append(max(s.step for s in sink.numbers)),
            ],
        )
    assert there == [*range(1, ROUNDS + 1)]
    assert sink.calls == ["begin", *["write"] * (ROUNDS + 1), f"end after {ROUNDS}"], (
        "the last one has nothing new"
    )
    same(grouped(sink.numbers), in_ledger(folder))


def test_live_rests_and_passes_on_what_is_left_at_the_end(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "REST", 1e9)
    monkeypatch.setattr("poise.ledger.store.GROUPED", 0.0)
    sink, there = Kept(), []
    with Live(tmp_path / "run", sink) as live:
        train(
            tmp_path / "run",
            callbacks=[
                live,
                lambda record: there.append(max(s.step for s in sink.numbers)),
            ],
        )
    assert there == [1] * ROUNDS
    assert sink.calls == ["begin", "write", "write", f"end after {ROUNDS}"]
    same(grouped(sink.numbers), in_ledger(folder))


class Broken(Kept):
    """Fails at its second writing."""

    def write(self, numbers: Iterable[Scalar]) -> None:
        super().write(numbers)
        if self.calls.count("write") == 2:
            raise OSError("no room on the board")


def test_a_sink_that_fails_costs_the_others_nothing_and_all_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "REST", 0.0)
    first, broken, last = Kept(), Broken(), Kept()
    with (
        pytest.raises(OSError, match="no room on the board"),
        Live(tmp_path / "run", first, broken, last) as live,
    ):
        train(tmp_path / "run", callbacks=[live])
    assert broken.calls == ["begin", "write", "write", "end after 2"]
    assert (first.calls[-1], last.calls[-1]) == ("end after 2", "end after 2")
    assert len({(s.name, s.step) for s in first.numbers}) == len(first.numbers), (
        "nothing is passed on twice"
    )
    assert first.numbers == last.numbers


def test_live_believes_the_ledger_and_not_the_record(folder: Path) -> None:
    sink = Kept()
    Live(folder, sink)(Record(0, 99.0, (), {"accuracy": 99.0}, 99, 99))
    same(grouped(sink.numbers), in_ledger(folder))


def test_nothing_happened_nothing_is_exported(tmp_path: Path) -> None:
    sink = Kept()
    with Live(tmp_path / "run", sink):
        pass
    assert sink.calls == []


# TensorBoard --------------------------------------------------------------------------------------
# -------------------


def events(folder: Path) -> Numbers:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="extra tensorboard",
    )
    found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: {event.step: event.value for event in found.Scalars(tag)}
        for tag in found.Tags()["scalars"]
    }


def test_tensorboard_has_every_number(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard")
    assert (
        poise.exports.tensorboard(open_run(folder), tmp_path / "board")
        == tmp_path / "board"
    )
    same(events(tmp_path / "board"), in_ledger(folder), np.float32)


def test_tensorboard_live_is_the_export(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard")
    with Live(tmp_path / "run", TensorBoard(tmp_path / "live")) as live:
        train(tmp_path / "run", callbacks=[live])
    poise.exports.tensorboard(open_run(tmp_path / "run"), tmp_path / "after")
    assert events(tmp_path / "live") == events(tmp_path / "after") != {}


def test_two_runs_do_not_become_one_curve(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard")
    poise.exports.tensorboard(open_run(folder), tmp_path)
    with pytest.raises(InvalidOption, match="already contains event files"):
        poise.exports.tensorboard(open_run(folder), tmp_path)


def test_a_missing_extra_is_named(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    for name, sink in (
        ("tensorboard", TensorBoard(tmp_path)),
        ("mlflow", MLflow("sqlite:///x.db")),
        ("wandb", WandB(tmp_path)),
    ):
        with pytest.raises(InvalidOption, match=rf"pip install 'poise\[{name}\]'"):
            sink.begin(open_run(folder))


# MLflow -------------------------------------------------------------------------------------------
# -------------------


@pytest.mark.slow
def test_mlflow_has_every_number_and_option(tmp_path: Path, folder: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="extra mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    one, two = (poise.exports.mlflow(open_run(folder), uri, "study") for _ in range(2))
    assert one != two, "every export is a run of its own"
    client = tracking.MlflowClient(tracking_uri=uri)
    wanted = in_ledger(folder)
    for run_id in (one, two):
        found = client.get_run(run_id)
        same(
            {
                name: {m.step: m.value for m in client.get_metric_history(run_id, name)}
                for name in found.data.metrics
            },
            wanted,
        )
        assert found.data.params["solver.lr"] == "0.1"
        assert found.data.params["sampler.m"] == "3"
        assert found.data.params["seed"] == "0"
        assert found.data.tags["poise.digest"] == open_run(folder).digest
        assert (found.info.status, found.info.run_name) == ("FINISHED", "exp-seed-0")


def test_a_store_that_mlflow_refuses_is_named(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="extra mlflow")
    with pytest.raises(InvalidOption, match="MLflow refuses the store nowhere://x"):
        poise.exports.mlflow(open_run(folder), "nowhere://x")


# Weights & Biases ---------------------------------------------------------------------------------
# -------------------


def records(folder: Path) -> list[Any]:
    """The records of the one offline file in a folder, as W&B's own reader gives them.

    W&B's service closes the file a moment after the run has finished.
    """
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = records_of(file)
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


def records_of(file: Path) -> list[Any]:
    """The records that the file has now."""
    from wandb.proto.wandb_internal_pb2 import Record as Entry
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    found = []
    while (content := store.scan_data()) is not None:
        entry = Entry()
        entry.ParseFromString(content)
        found.append(entry)
    return found


def history(folder: Path) -> Numbers:
    """The logged numbers, by name and step."""
    found: Numbers = {}
    for entry in records(folder):
        if entry.WhichOneof("record_type") != "history":
            continue
        items = {i.nested_key[0]: json.loads(i.value_json) for i in entry.history.item}
        for name, value in items.items():
            if not name.startswith("_"):
                assert items["_step"] not in found.setdefault(name, {})
                found[name][items["_step"]] = value
    return found


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="extra wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)


@pytest.mark.usefixtures("offline")
def test_wandb_has_every_number_and_option_without_a_network(
    tmp_path: Path, folder: Path
) -> None:
    files = poise.exports.wandb(open_run(folder), tmp_path, "study")
    assert files.parent == tmp_path / "wandb"
    assert files.name.startswith("offline-run-")
    same(history(tmp_path), in_ledger(folder))
    entries = records(tmp_path)
    (made,) = (e.run for e in entries if e.WhichOneof("record_type") == "run")
    options = {u.key: json.loads(u.value_json) for u in made.config.update}
    assert (made.project, made.display_name) == ("study", "exp-seed-0")
    assert options["solver.lr"] == "0.1"
    assert options["sampler.m"] == "3"
    summary = {u.key: u.value_json for e in entries for u in e.summary.update}
    assert json.loads(summary["poise.digest"]) == open_run(folder).digest
    assert json.loads(summary["poise.status"]) == "done"


@pytest.mark.usefixtures("offline")
def test_wandb_files_name_neither_the_machine_nor_the_user(
    tmp_path: Path, folder: Path
) -> None:
    poise.exports.wandb(open_run(folder), tmp_path)
    (made,) = (e.run for e in records(tmp_path) if e.WhichOneof("record_type") == "run")
    assert not made.host
    assert not made.git.remote_url
    names = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert not names & {"requirements.txt", "wandb-metadata.json", "output.log"}


@pytest.mark.usefixtures("offline")
def test_wandb_live_is_the_export(tmp_path: Path) -> None:
    with Live(tmp_path / "run", WandB(tmp_path / "live")) as live:
        train(tmp_path / "run", callbacks=[live])
    poise.exports.wandb(open_run(tmp_path / "run"), tmp_path / "after")
    assert history(tmp_path / "live") == history(tmp_path / "after") != {}


@pytest.mark.usefixtures("offline")
def test_wandb_leaves_a_run_of_the_script_alone(tmp_path: Path, folder: Path) -> None:
    import wandb

    settings = wandb.Settings(silent=True, console="off")
    mine = wandb.init(dir=str(tmp_path), mode="offline", settings=settings)
    try:
        poise.exports.wandb(open_run(folder), tmp_path / "other")
        assert wandb.run is mine
    finally:
        mine.finish()


def test_a_wrong_mode_or_folder_of_wandb_is_named(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(InvalidOption, match="no mode 'onlin'"):
        WandB(tmp_path)
    pytest.importorskip("wandb", reason="extra wandb")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match=r"cannot write into .*file: File exists"):
        poise.exports.wandb(open_run(folder), tmp_path / "file", mode="offline")


# The command line ---------------------------------------------------------------------------------
# -------------------


def test_the_verb_takes_a_folder_of_seeds(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard")
    outcome = call(
        "export", folder.parent, "--tensorboard", tmp_path / "board", "--json"
    )
    assert outcome.code == 0, outcome.err
    (made,) = json.loads(outcome.out)["runs"]
    assert made == {
        "run": str(folder),
        "tensorboard": str(tmp_path / "board" / "exp" / "seed-0"),
    }
    same(events(Path(made["tensorboard"])), in_ledger(folder), np.float32)


def test_the_verb_asks_where(folder: Path) -> None:
    outcome = call("export", folder)
    assert outcome.code == 2
    assert "--tensorboard, --mlflow or --wandb" in outcome.err
