"""`poise.unlearn` on small runs: first, repeated, interrupted and refused requests."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise import clocks, samplers, servers, solvers
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError, RunLocked
from poise.core.types import Record
from poise.data.federation_data import Federation
from poise.unlearning import Budget, UnlearningPlan, fulfilment, sensitivity
from poise.unlearning.cost_preview import preview
from poise.unlearning.histories import Histories
from poise.unlearning.verification import verify

SHORT: dict[str, Any] = {
    "min_rounds": 3,
    "max_rounds": 12,
    "target": 2.0,
}  # an accuracy nobody reaches
SEEDED: dict[str, Any] = {**SHORT, "noise": "seeded"}


def trained(out: Path | None = None, **options: Any) -> Any:
    """12 rounds on digits: 8 clients, 3 of them at a time."""
    fed = options.pop("fed", None) or poise.federation(
        "digits", "dirichlet", clients=8, alpha=0.5, samples=400
    )
    chosen = {
        "solver": solvers.SGD(lr=0.05, steps=2, batch_size=16),
        "sampler": samplers.Uniform(3),
        "rounds": 12,
        "seed": 3,
        "keep": "all",
        "out": out,
        **options,
    }
    return poise.train(fed, poise.task("logistic"), **chosen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Any:
    shutil.copytree(folder, tmp_path / "run")
    return poise.open_run(tmp_path / "run")


def test_a_first_request_is_ifu(run: Any) -> None:
    """T = max{n : Psi(n, c) <= Psi*}, and the start is theta^T with noise sigma (Algorithm 6)."""
    done = poise.unlearn(run, [2], sigma=0.05, **SHORT)
    within = np.flatnonzero(sensitivity(run)[:, 2] <= Budget(sigma=0.05).limit)
    assert done.restart == (0, within[-1])
    noise = done.run.models(0) - run.models(done.restart[1])
    assert abs(noise.std() / 0.05 - 1) < 4 / np.sqrt(2 * len(noise)), (
        "four standard errors"
    )
    assert abs(noise.mean()) < 4 * 0.05 / np.sqrt(len(noise))
    assert done.run.clients == 7
    assert done.run.array("members").tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert done.rounds == 12
    assert not done.reached


def test_no_budget_is_scratch_and_any_budget_is_last(tmp_path: Path) -> None:
    """Everyone takes part, so with Psi* = 0 nothing but the initial model is left."""
    run = trained(tmp_path / "run", sampler=samplers.Full())
    nothing = poise.unlearn(run, [2], sigma=0.0, out=tmp_path / "a", **SHORT)
    scratch = poise.unlearn(run, [2], method="scratch", out=tmp_path / "b", **SHORT)
    assert nothing.restart == scratch.restart == (0, 0)
    assert np.array_equal(scratch.run.models(0), run.models(0))
    assert np.array_equal(nothing.run.model, scratch.run.model)
    last = poise.unlearn(
        run, [2], method="last", noise="seeded", out=tmp_path / "c", **SHORT
    )
    sigma = last.certificate["noise"]["sigma"]
    assert sigma == pytest.approx(sensitivity(run)[-1, 2] / Budget(sigma=1.0).limit)
    large = poise.unlearn(
        run,
        [2],
        sigma=sigma * (1 + 1e-12),
        noise="seeded",
        out=tmp_path / "d",
        **SHORT,
    )
    assert large.restart == last.restart == (0, 12)
    assert large.run.models(0) == pytest.approx(last.run.models(0), rel=1e-6)


def test_fine_tuning_starts_where_training_ended_and_promises_nothing(run: Any) -> None:
    done = poise.unlearn(run, [2], method="fine-tune", **SHORT)
    assert np.array_equal(done.run.models(0), run.model)
    assert done.certificate["guarantee"]["promised"] is False


def test_branches_keep_models_for_the_budget_of_their_requests(tmp_path: Path) -> None:
    """keep = 'unlearnable' with a budget beyond the default one: the second request finds the model
    it wants."""
    budget = Budget(sigma=0.1)
    run = trained(tmp_path / "run", keep="unlearnable", unlearning=budget, rounds=20)
    options = {"sigma": 0.1, "target": 2.0, "min_rounds": 3, "max_rounds": 20}
    poise.unlearn(run, [2], **options)
    histories = Histories.of(poise.open_run(run.path))
    psi = histories.psi(1, budget)
    for client in (0, 1, 3, 4, 5, 6, 7):
        ideal = int(np.flatnonzero(psi[:, client] <= budget.limit)[-1])
        assert ideal in histories.run(1).kept, client
    assert (psi[-1] > budget.limit).any()


def test_a_client_that_never_worked_restarts_from_the_end(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", sampler=samplers.Uniform(1), rounds=3)
    absent = int(np.flatnonzero(run.weights.sum(axis=0) == 0)[0])
    done = poise.unlearn(run, [absent], sigma=0.05, **SHORT)
    assert done.restart == (0, 3)
    assert done.certificate["guarantee"]["psi"] == {str(absent): 0.0}
    assert done.certificate["guarantee"]["composed epsilon"] == 0.0
    assert done.certificate["noise"]["sigma"] == 0.05, (
        "the rule adds its noise all the same"
    )


def test_requests_add_up(run: Any) -> None:
    first = poise.unlearn(run, [0], **SHORT)
    second = poise.unlearn(run.path, [1], **SHORT)
    third = poise.unlearn(second.run, [5, 6], **SHORT)
    assert third.certificate["forgotten so far"] == [0, 1, 5, 6]
    assert third.run.clients == 4
    assert [p.parent.name for p in (first.path, second.path, third.path)] == [
        "001",
        "002",
        "003",
    ]
    for node in third.certificate["history"]:
        assert node[0] in (0, 1, 2)
    for one in (first, second, third):
        assert poise.unlearning.verify(one.path)


def test_a_client_covered_by_two_noises_is_told_what_they_make_together(
    run: Any,
) -> None:
    """Root of the sum of squares of Psi/sigma over the nodes, at the same delta."""
    options = {**SHORT, "sigma": 0.2}
    poise.unlearn(run, [0], **options)
    second = poise.unlearn(run, [1], **options)
    nodes = second.certificate["history"]
    runs = [poise.open_run(run.path), poise.open_run(run.path / "unlearning" / "001")]
    moved = [
        sensitivity(runs[s])[n, {0: 1, 1: 0}[s]] for s, n in nodes
    ]  # client 1 is the first of branch 1
    together = poise.unlearning.epsilon_at(
        float(np.sqrt(sum((m / 0.2) ** 2 for m in moved))), 0.01
    )
    covered = {
        c: poise.unlearning.epsilon_at(sensitivity(runs[0])[nodes[0][1], c] / 0.2, 0.01)
        for c in (0, 1)
    }
    assert second.certificate["guarantee"]["composed epsilon"] == pytest.approx(
        max(together, covered[0])
    )
    assert together > covered[1]


class Watched(Federation):
    """A federation that refuses to show what clients 1 and 4 have."""

    def _plain(self, clients: Any) -> Any:
        assert not {1, 4} & set(np.asarray(clients).tolist()), (
            "data of the forgotten was read"
        )
        return super()._plain(clients)


def test_data_of_the_forgotten_is_never_read_again(run: Any) -> None:
    fed = poise.federation("digits", "dirichlet", clients=8, alpha=0.5, samples=400)
    watched = Watched(**{f: getattr(fed, f) for f in fed.__dataclass_fields__})
    done = poise.unlearn(run, [1, 4], federation=watched, min_rounds=2, max_rounds=4)
    assert done.rounds >= 2
    with pytest.raises(AssertionError, match="forgotten was read"):
        poise.unlearn(run, [0], federation=watched, measure_forgotten=True, **SHORT)


@pytest.mark.parametrize(
    "clients", [[8], [-1], [], [1, 1], [1.5], ["a"], list(range(8)), [True]]
)
def test_clients_that_cannot_be_forgotten_are_refused(
    run: Any, clients: list[Any]
) -> None:
    with pytest.raises(InvalidOption, match="client"):
        poise.unlearn(run, clients, **SHORT)
    assert not (run.path / "unlearning").exists()


def test_the_same_request_twice_returns_the_first_result(run: Any) -> None:
    first = poise.unlearn(run, [3], **SHORT)
    again = poise.unlearn(run, [3], **SHORT)
    assert (again.path, again.certificate) == (first.path, first.certificate)
    assert [p.name for p in (run.path / "unlearning").glob("0*")] == ["001"]
    with pytest.raises(InvalidOption, match=r"already, with epsilon = 10"):
        poise.unlearn(run, [3], epsilon=2.0, **SHORT)


def test_the_same_request_twice_in_memory_returns_the_first_result() -> None:
    run = trained()
    first = poise.unlearn(run, [3], **SHORT)
    again = poise.unlearn(run, [3], **SHORT)
    assert again.certificate == first.certificate
    assert again.run is first.run


def test_clients_that_left_cannot_leave_again(run: Any) -> None:
    poise.unlearn(run, [3], **SHORT)
    with pytest.raises(InvalidOption, match="client 3 was unlearned already"):
        poise.unlearn(run, [3, 4], **SHORT)
    with pytest.raises(InvalidOption, match="all 8 clients"):
        poise.unlearn(run, [0, 1, 2, 4, 5, 6, 7], **SHORT)


def test_one_history_has_one_budget_and_no_method_that_promises_nothing(
    run: Any, tmp_path: Path
) -> None:
    poise.unlearn(run, [3], **SHORT)
    with pytest.raises(IncompatibleParts, match="another guarantee"):
        poise.unlearn(run, [4], epsilon=1.0, **SHORT)
    with pytest.raises(
        IncompatibleParts, match="earlier requests of this history used sifu"
    ):
        poise.unlearn(run, [4], method="fine-tune", **SHORT)
    assert poise.unlearn(
        run, [4], method="fine-tune", out=tmp_path / "other", **SHORT
    ).restart == (
        0,
        12,
    )
    assert poise.unlearn(run, [4], method="scratch", **SHORT).certificate[
        "history"
    ] == [[0, 0]]


def stopping_after(rounds: int) -> Any:
    """A callback and a question that says stop after so many rounds."""
    seen: list[int] = []

    def see(record: Record) -> None:
        seen.append(record.index)

    return see, lambda: len(seen) >= rounds


def test_an_interrupted_request_is_finished_by_asking_again(
    run: Any, tmp_path: Path
) -> None:
    shutil.copytree(run.path, tmp_path / "whole")
    whole = poise.unlearn(tmp_path / "whole", [2], **SEEDED)
    see, stop = stopping_after(5)
    part = poise.unlearn(run, [2], callbacks=[see], stop=stop, **SEEDED)
    assert part.certificate == {}
    with pytest.raises(InvalidOption, match=r"request 1 .* is not finished"):
        poise.unlearn(run, [4], **SEEDED)
    done = poise.unlearn(run, [2], **SEEDED)
    assert np.array_equal(done.run.model, whole.run.model)
    assert done.run.digest == whole.run.digest
    assert done.certificate["guarantee"] == whole.certificate["guarantee"]
    poise.unlearning.verify(done.path)


def test_killed_before_the_first_model_nothing_is_lost(run: Any) -> None:
    done = poise.unlearn(run, [2], **SEEDED)
    branch = done.path.parent
    for leftover in [*branch.glob("*.sqlite*"), branch / "certificate.json"]:
        leftover.unlink()
    shutil.rmtree(branch / "models")
    again = poise.unlearn(run, [2], **SEEDED)
    assert np.array_equal(again.run.model, done.run.model)


def test_without_a_folder_it_all_stays_in_memory() -> None:
    run = trained()
    first = poise.unlearn(run, [2], **SHORT)
    second = poise.unlearn(first.run, [3], **SHORT)
    assert (first.path, second.certificate["forgotten so far"]) == (None, [2, 3])


def test_retraining_ends_when_the_remaining_are_served(run: Any) -> None:
    done = poise.unlearn(run, [2], target=0.3, min_rounds=4, max_rounds=50)
    assert done.reached
    assert done.rounds >= 4
    accuracy = done.run.metric("train_accuracy")
    assert accuracy[-1] >= 0.3
    assert (accuracy[3:-1] < 0.3).all()
    unaimed = poise.unlearn(run, [3], min_rounds=1, max_rounds=40)
    assert 0.2 < unaimed.certificate["request"]["target"] < 1


def test_secret_noise_is_not_the_same_twice(run: Any, tmp_path: Path) -> None:
    both = [
        poise.unlearn(run, [2], noise="secret", out=tmp_path / name, **SHORT)
        for name in ("a", "b")
    ]
    assert not np.array_equal(both[0].run.models(0), both[1].run.models(0))
    assert (
        both[0].certificate["noise"]["commitment"]
        != both[1].certificate["noise"]["commitment"]
    )
    poise.unlearning.verify(both[0].path, run.path)


UNPROVED = [
    ({"server": servers.Adam(lr=0.01)}, "Adam"),
    ({"server": servers.Add(lr=1.5)}, "above 1"),
    (
        {"solver": solvers.SGD(lr=0.05, steps=2, batch_size=16, momentum=0.9)},
        "momentum",
    ),
    ({"solver": solvers.SGD(lr=0.05, steps=2, batch_size=16, clip=1.0)}, "clipped"),
    ({"solver": solvers.Scaffold(lr=0.05, steps=2, batch_size=16)}, "Scaffold"),
    ({"sampler": samplers.Full(), "clock": clocks.Asynchronous("F80")}, "Asynchronous"),
]


@pytest.mark.parametrize(
    ("parts", "reason"), UNPROVED, ids=[reason for _, reason in UNPROVED]
)
def test_without_a_proof_there_is_no_certificate_unless_as_a_heuristic(
    parts: dict[str, Any], reason: str
) -> None:
    run = trained(rounds=3, **parts)
    with pytest.raises(IncompatibleParts, match=reason):
        poise.unlearn(run, [2], **SHORT)
    done = poise.unlearn(run, [2], heuristic=True, **{**SHORT, "max_rounds": 3})
    assert any(reason in gap for gap in done.certificate["grounds"]["not proved"])


def test_kept_models_are_enough_to_restart_as_early_as_with_all(tmp_path: Path) -> None:
    budget = Budget(sigma=0.05)
    thin = trained(tmp_path / "thin", keep="unlearnable", unlearning=budget)
    whole = trained(tmp_path / "whole", keep="all")
    for clients in ([0], [1], [2, 3], [4, 5, 6]):
        found = [preview(r, clients, budget=budget) for r in (thin, whole)]
        assert found[0].restart == found[1].restart == found[0].ideal
        assert found[0].given_up == 12 - found[0].restart[1]
    assert len(thin.kept) < len(whole.kept)
    assert found[0].kept_bytes == sum(
        f.stat().st_size for f in (thin.path / "models").glob("*")
    )


def test_where_models_are_missing_it_restarts_earlier_and_says_so(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path / "run", keep="last")
    looked = preview(run, [2], budget=Budget(sigma=0.05))
    assert looked.restart == (0, 0)
    assert looked.ideal[1] > 0
    done = poise.unlearn(run, [2], sigma=0.05, **SHORT)
    poise.unlearning.verify(done.path)


def test_a_watermark_is_recognised_before_and_not_after() -> None:
    signed = poise.federation(
        "digits", "dirichlet", clients=6, alpha=0.1, samples=300
    ).with_corruption("watermark")
    run = poise.train(
        signed,
        poise.task("mlp"),
        solver=solvers.SGD(lr=0.1, steps=10, batch_size=25),
        rounds=40,
        keep="all",
    )
    gone = poise.unlearn(
        run, [2], method="scratch", target=0.9, min_rounds=10, max_rounds=60
    )
    found = poise.unlearning.examine(
        run, {"before": run, "after": gone.run, "start": run.models(0)}, [2]
    )
    recognised = {name: trace.recognition for name, trace in found.items()}
    assert found["before"].score > found["after"].score + 0.4
    assert recognised["before"] > 0.1
    assert recognised["after"] < recognised["before"] - 0.1
    plain = trained(rounds=2)
    assert poise.unlearning.examine(plain, {"it": plain}, [0])["it"].recognition is None


def test_a_request_after_last_still_covers_the_one_before() -> None:
    """The noise of `last` is gone once a later request restarts before it: the new node has to do
    for both."""
    optima = np.zeros((5, 3))
    optima[0, 0], optima[1, 1] = 9.0, 0.3
    quad = poise.quadratics(optima)
    run = poise.train(
        quad, quad.task, solver=solvers.SGD(lr=0.1, steps=1), rounds=20, keep="all"
    )
    options = {**SHORT, "target": -1.0, "federation": quad, "task": quad.task}
    first = poise.unlearn(run, [0], method="last", **options)
    promise = first.certificate["guarantee"]
    assert promise["psi"]["0"] == pytest.approx(promise["psi limit"]), (
        "the limit is that of the noise it got"
    )
    second = poise.unlearn(first.run, [1], **options)
    branch, n = second.restart
    assert branch == 0
    assert sensitivity(run)[n, [0, 1]].max() <= Budget().limit
    assert second.certificate["guarantee"]["composed epsilon"] <= 10.0


def test_the_small_noise_of_last_does_not_cover_a_later_client() -> None:
    """`last` adds just the noise that its own client needs: less than another client may need."""
    optima = np.zeros((6, 3))
    optima[2] = 0.16
    quad = poise.quadratics(optima)
    run = poise.train(
        quad, quad.task, solver=solvers.SGD(lr=0.5, steps=1), rounds=6, keep="all"
    )
    options = {**SHORT, "target": 10.0, "federation": quad, "task": quad.task}
    first = poise.unlearn(run, [3], method="last", **options)
    small = first.certificate["noise"]["sigma"]
    psi = sensitivity(run)[-1, 2]
    assert replace(Budget(), sigma=small).limit < psi <= Budget().limit
    second = poise.unlearn(run, [2], **options)
    assert second.restart == (0, 6), "back to the node, for the noise of the budget"
    assert second.certificate["guarantee"]["composed epsilon"] <= 10.0


def test_a_given_initial_model_is_an_assumption(tmp_path: Path) -> None:
    before = trained(rounds=2)
    run = trained(rounds=2, start=before.model, keep="all", out=tmp_path / "run")
    result = poise.unlearn(run, [0], method="scratch", **SHORT)
    assert any(
        "initial model" in text for text in result.certificate["grounds"]["assumed"]
    )
    assert result.path is not None
    assert verify(result.path)
    plain = poise.unlearn(before, [0], method="scratch", **SHORT)
    assert not any(
        "initial" in text for text in plain.certificate["grounds"]["assumed"]
    )


def test_another_task_than_that_of_the_training_is_refused() -> None:
    """L would be that of another loss."""
    run = trained(rounds=2)
    with pytest.raises(IncompatibleParts, match=r"\[task\] differs"):
        poise.unlearn(run, [0], task=poise.task("mlp", hidden=3), **SHORT)
    fed = poise.federation("digits", clients=4, samples=80)
    own = poise.task(
        "logistic", loss=lambda outputs, labels: outputs.square().sum(dim=1)
    )
    run = poise.train(fed, own, solvers.SGD(0.01, steps=1), rounds=2, keep="all")
    with pytest.raises(IncompatibleParts, match=r"\[task\]"):
        poise.unlearn(run, [0], task=poise.task("logistic"), **SHORT)


def test_sigma_may_be_a_number_of_numpy() -> None:
    result = poise.unlearn(trained(rounds=2), [0], sigma=np.float64(0.05), **SHORT)
    assert result.certificate["noise"]["sigma"] == 0.05


def test_of_many_clients_each_keeps_its_own_sensitivity(tmp_path: Path) -> None:
    """Beyond 10,000 clients a run keeps no table of them, but it has to know who has left."""
    quad = poise.quadratics(np.random.default_rng(0).normal(size=(10_003, 2)))
    run = poise.train(
        quad,
        quad.task,
        solver=solvers.SGD(lr=0.1, steps=1),
        sampler=samplers.Uniform(5),
        rounds=2,
        keep="all",
        out=tmp_path / "run",
    )
    options = {
        "min_rounds": 2,
        "max_rounds": 2,
        "target": -1.0,
        "federation": quad,
        "task": quad.task,
    }
    first = poise.unlearn(run, [0], **options)
    worked = np.flatnonzero(
        first.run.weights.sum(axis=0)
    )  # as branch 1 counts them: one up
    moved = Histories.of(poise.open_run(tmp_path / "run")).psi(1, Budget())[-1]
    assert np.array_equal(np.flatnonzero(moved), worked + 1)
    poise.unlearning.verify(first.path)


def test_a_training_under_way_forgets_nobody_yet(tmp_path: Path) -> None:
    """What a request rests on must not change while it is decided; nothing is left behind."""
    met: list[str] = []

    def meanwhile(record: Record) -> None:
        if record.index == 2:
            for ask in (poise.unlearn, preview):
                with pytest.raises(RunLocked) as refused:
                    ask(tmp_path / "run", [2])
                met.append(refused.value.message)

    done = trained(tmp_path / "run", callbacks=[meanwhile])
    assert [said.partition(": ")[0].rpartition(" is ")[2] for said in met] == [
        "still being trained"
    ] * 2
    assert not (tmp_path / "run" / "unlearning").exists()
    assert poise.unlearn(done, [2], **SHORT).certificate["forgotten so far"] == [2]


def test_one_request_at_a_time(run: Any) -> None:
    """A second request while one is under way is refused, and the first comes to its end."""
    met: list[str] = []

    def meanwhile(record: Record) -> None:
        if record.index == 1:
            with pytest.raises(RunLocked) as refused:
                poise.unlearn(run.path, [5], **SHORT)
            met.append(refused.value.message)

    first = poise.unlearn(run.path, [2], **SHORT, callbacks=[meanwhile])
    assert "is being written by process" in met[0]
    assert poise.unlearning.verify(first.path)
    assert poise.unlearn(run.path, [5], **SHORT).certificate["forgotten so far"] == [
        2,
        5,
    ]


def test_requests_made_at_the_same_moment_do_not_undo_each_other(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one looked at the folder before the quick one began in it."""
    slow = fulfilment.Histories.of
    asked: list[Any] = []

    def quick_in_between(*arguments: Any, **options: Any) -> Any:
        found = slow(*arguments, **options)
        if not asked:
            asked.append(None)
            asked.append(poise.unlearn(run.path, [5], **SHORT))
        return found

    monkeypatch.setattr(fulfilment.Histories, "of", quick_in_between)
    second = poise.unlearn(run.path, [2], **SHORT)
    assert second.path.parent.name == "002"
    for one in (asked[1], second):
        assert poise.unlearning.verify(one.path)


def test_a_request_in_the_middle_without_its_certificate_is_said(run: Any) -> None:
    for client in (0, 1):
        done = poise.unlearn(run.path, [client], **SHORT)
    (run.path / "unlearning" / "001" / "certificate.json").unlink()
    with pytest.raises(LedgerError, match="001 has no certificate"):
        poise.unlearning.verify(done.path)
    with pytest.raises(LedgerError, match="001 has no certificate"):
        poise.unlearn(run.path, [5], **SHORT)


@pytest.mark.parametrize("lost", ["missing", "empty"])
@pytest.mark.parametrize("client", [0, 1])
def test_a_lost_certificate_is_written_anew(run: Any, lost: str, client: int) -> None:
    for number in (0, 1):
        poise.unlearn(run.path, [number], **SHORT)
    file = run.path / "unlearning" / f"00{client + 1}" / "certificate.json"
    before = file.read_bytes()
    file.unlink()
    if lost == "empty":
        file.touch()
    poise.unlearn(run.path, [client], **SHORT)
    assert file.read_bytes() == before
    assert poise.unlearning.verify(file)


def test_a_broken_chain_of_digests_is_never_certified(run: Any) -> None:
    with contextlib.closing(sqlite3.connect(run.path / "ledger.sqlite")) as database:
        database.execute("UPDATE contributions SET norm = norm + 1 WHERE n = 5")
        database.commit()
    with pytest.raises(LedgerError, match="round 5"):
        poise.unlearn(run.path, [2], **SHORT)
    assert not (run.path / "unlearning").exists()


@pytest.mark.parametrize(
    "parts",
    [
        {"clock": clocks.Synchronous([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])},
        {
            "clock": clocks.Synchronous(
                clocks.Exponential([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            )
        },
        {"sampler": samplers.Target(2, [0, 0, 1, 1, 0, 0, 1, 1])},
    ],
    ids=["durations", "laws", "groups"],
)
def test_what_was_given_client_by_client_stays_with_its_client(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    run = trained(tmp_path / "run", rounds=3, **parts)
    done = poise.unlearn(run, [2, 7], **SHORT)
    assert poise.unlearning.verify(done.path)
    if "clock" in parts:
        assert (
            "1.0,\n    2.0,\n    4.0,\n    5.0,\n    6.0,\n    7.0,\n]"
            in done.run.experiment
        )
    else:
        assert (
            "groups = [\n    0,\n    0,\n    1,\n    0,\n    0,\n    1,\n]"
            in done.run.experiment
        )


def test_what_is_no_target_and_no_list_of_clients_is_said(run: Any) -> None:
    with pytest.raises(InvalidOption, match="target must be a number"):
        poise.unlearn(run, [2], target="high")
    with pytest.raises(InvalidOption, match="not a list of clients"):
        poise.unlearn(run, None)


def test_a_recipe_that_does_not_fit_those_who_are_left_leaves_no_request_behind(
    tmp_path: Path,
) -> None:
    """Eight at a time of eight: nobody can be forgotten, and another run's request is not held up
    by it."""
    run = trained(tmp_path / "run", rounds=2, sampler=samplers.Uniform(8))
    with pytest.raises(IncompatibleParts, match="8 clients per round"):
        poise.unlearn(run, [2], **SHORT)
    assert not (run.path / "unlearning" / "001").exists()
    crowd = poise.federation("digits", "iid", clients=50_000, on_demand=True)
    run = trained(tmp_path / "crowd", fed=crowd, rounds=1)
    with pytest.raises(IncompatibleParts, match="made on demand"):
        poise.unlearn(run, [2], **SHORT)
    assert not (run.path / "unlearning" / "001").exists()


def test_a_request_to_finish_says_how_it_was_asked(run: Any) -> None:
    rounds: list[int] = []
    stopped = poise.unlearn(
        run.path,
        [2],
        **SHORT,
        sigma=0.1,
        callbacks=[lambda r: rounds.append(r.index)],
        stop=lambda: len(rounds) > 3,
    )
    assert stopped.certificate == {}
    with pytest.raises(InvalidOption) as refused:
        poise.unlearn(run.path, [2], target=2.0, max_rounds=12, min_rounds=4)
    assert "sigma = 0.1" in refused.value.hint
    assert "min_rounds = 3" in refused.value.hint
    assert "max_rounds" not in refused.value.hint
    assert poise.unlearn(run.path, [2], **SHORT, sigma=0.1).certificate


def test_forgetting_a_free_rider_leaves_the_others_who_they_were() -> None:
    """Client 2 free-rides and is forgotten; client 5 free-rides on, and is client 4 of those who
    are left."""
    run = trained(
        sampler=samplers.Full(), attacks=[poise.attacks.FreeRider([2, 5])], rounds=3
    )
    done = poise.unlearn(run, [2], method="scratch", **{**SHORT, "max_rounds": 3})
    norms = done.run.contributions["norm"].reshape(3, 7)
    assert (norms[:, 4] == 0).all()
    assert (np.delete(norms, 4, axis=1) > 0).all()
    last = poise.unlearn(run, [5], method="scratch", **{**SHORT, "max_rounds": 3})
    assert (last.run.contributions["norm"] > 0).all()


def planned(**options: Any) -> Any:
    """A run that declared noise levels for ``sigma="plan"``."""
    plan = UnlearningPlan(sigma=5.0, sigmas=(0.001, 0.02, 5.0))
    return trained(unlearning=plan, rounds=40, **options)


def test_a_planned_sigma_is_the_cheapest_of_the_grid() -> None:
    """0.001 hides nothing, 5 destroys the model: what is in between needs the fewest rounds."""
    run = planned(solver=solvers.SGD(lr=0.05, steps=2, batch_size=16, weight_decay=0.5))
    goal: dict[str, Any] = {"target": 0.6, "min_rounds": 1, "max_rounds": 80}
    done = poise.unlearn(run, [2], sigma="plan", **goal)
    assert done.certificate["noise"]["sigma"] == 0.02
    assert any("planned" in said for said in done.certificate["grounds"]["disclosed"])
    again = poise.unlearn(run, [4], plan_sigma=True, **goal)
    assert again.certificate["noise"]["sigma"] == 0.02, "a history has one budget"


def test_a_plan_needs_declared_noise_levels(run: Any) -> None:
    with pytest.raises(InvalidOption, match="declared no noise levels"):
        poise.unlearn(run, [2], sigma="plan", **SHORT)
    assert not list((run.path / "unlearning").glob("0*"))


def test_other_data_than_those_of_the_training_are_refused() -> None:
    """L of smaller samples would allow a larger learning rate."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    owners = [np.arange(20), np.arange(20, 40)]
    fed = poise.federation((x, y), owners, classes=2)
    run = poise.train(fed, poise.task("logistic"), solvers.SGD(0.05, steps=1), rounds=2)
    shrunk = poise.federation((0.01 * x, y), owners, classes=2)
    with pytest.raises(LedgerError, match="another 'federation'"):
        poise.unlearn(run, [0], federation=shrunk, **SHORT)


def test_every_public_name_of_unlearning_is_no_module() -> None:
    """A module of the same name would replace a function once it is imported."""
    for name in poise.unlearning.__all__:
        assert not isinstance(getattr(poise.unlearning, name), type(poise)), name
    run = trained()
    for _ in range(2):
        assert poise.unlearning.preview(run, [2]).limit > 0


def test_noise_at_the_resolution_of_the_numbers_is_refused() -> None:
    """Identical clients: Psi is rounding errors only, and so would be the noise of ``last``."""
    x, y = np.array([[1.0, 0.3], [0.2, 1.0]] * 3), np.array([0, 1] * 3)
    owners = [[0, 1], [2, 3], [4, 5]]
    fed = poise.federation((x, y), owners, classes=2, test_share=0.0)
    run = poise.train(fed, poise.task("logistic"), solvers.SGD(0.5, steps=1), rounds=30)
    with pytest.raises(IncompatibleParts, match="rounding errors"):
        poise.unlearn(run, [0], method="last", federation=fed, **SHORT)
    assert (
        poise.unlearn(run, [0], method="scratch", federation=fed, **SHORT).rounds == 12
    )
