"""`poise.resume`: other workers, more rounds, given objects; an error for other data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from faults.support import opened, run_into, same, small
from ledger.doubles import composition, quadratics
from poise.apps.experiments.runner import run_experiment
from poise.backends import Local
from poise.config.experiment import parse
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.results import Run
from poise.solvers import SGD
from poise.training import begin, resume, resume_run

ROUNDS = 10


def stopping(after: int) -> tuple[Callable[[Any], None], Callable[[], bool]]:
    """A callback and a question that stop a run after so many rounds."""
    done: list[Any] = []
    return done.append, lambda: len(done) >= after


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(small(rounds=ROUNDS), tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_a_stopped_run_ends_as_if_it_had_not_been_stopped(
    after: int, whole: Path, tmp_path: Path
) -> None:
    path = run_into(small(rounds=ROUNDS), tmp_path, stop_after=after)
    with opened(path) as stopped:
        assert (stopped.rounds, stopped.meta["status"]) == (after, "stopped")
    run = resume(path)
    assert (run.rounds, run.meta["status"]) == (ROUNDS, "done")
    run.close()
    same(path, whole)


def test_the_number_of_workers_does_not_matter(whole: Path, tmp_path: Path) -> None:
    path = run_into(small(rounds=ROUNDS), tmp_path, stop_after=3)
    callback, stop = stopping(3)
    resume(path, backend=Local(workers=1), callbacks=[callback], stop=stop).close()
    resume(path, backend=Local(workers=3)).close()
    with opened(path) as a, opened(whole) as b:
        assert a.digest == b.digest
        assert a.model.tobytes() == b.model.tobytes()


def test_a_finished_run_is_left_as_it_is(whole: Path) -> None:
    with opened(whole) as before:
        digest, model = before.digest, before.model
    run = resume(whole)
    assert (run.digest, run.meta["status"]) == (digest, "done")
    assert run.model.tobytes() == model.tobytes()
    run.close()


def test_more_rounds_go_on_and_are_remembered(tmp_path: Path) -> None:
    """Also after another stop on the way: what is planned stands in the run folder."""
    short, longer = (
        run_into(small(rounds=4), tmp_path / "a"),
        run_into(small(rounds=9), tmp_path / "b"),
    )
    callback, stop = stopping(2)
    resume(short, rounds=9, callbacks=[callback], stop=stop).close()
    with opened(short) as between:
        assert (between.rounds, between.meta["status"]) == (6, "stopped")
    resume(short).close()
    same(short, longer)


def test_callbacks_see_every_record_that_is_made_again(tmp_path: Path) -> None:
    path = run_into(small(rounds=6), tmp_path, stop_after=4)
    seen: list[int] = []
    resume(path, callbacks=[lambda record: seen.append(record.index)]).close()
    assert seen == [4, 5]


def test_a_callback_that_raises_leaves_a_whole_run(whole: Path, tmp_path: Path) -> None:
    def fails(record: Any) -> None:
        if record.index == 4:
            raise RuntimeError("the user's own mistake")

    with pytest.raises(RuntimeError, match="own mistake"):
        run_experiment(
            parse(small(rounds=ROUNDS)), tmp_path, [0], lambda seed, made: [fails]
        )
    with opened(tmp_path / "seed-0") as run:
        assert run.rounds == 5
    resume(tmp_path / "seed-0").close()
    same(tmp_path / "seed-0", whole)


# work under way, and a server with a memory
# ---------------------------------------------------------


@pytest.mark.parametrize("after", [1, 4, 11])
@pytest.mark.parametrize("keep", ["last", "all", "unlearnable"])
def test_work_under_way_and_the_servers_state_are_taken_up(
    after: int, keep: str, tmp_path: Path
) -> None:
    made = composition(rounds=20, keep=keep)
    begin(made, tmp_path / "whole").close()
    callback, stop = stopping(after)
    begin(made, tmp_path / "pieces", [callback], stop).close()
    resume_run(made, tmp_path / "pieces").close()
    same(tmp_path / "pieces", tmp_path / "whole")
    with opened(tmp_path / "whole") as run:
        assert (run.contributions["version"] < run.contributions["round"]).any(), (
            "some of the work was stale"
        )


def test_a_damaged_state_of_the_server_takes_the_run_back(
    tmp_path: Path,
) -> None:
    made = composition(rounds=20)
    begin(made, tmp_path / "whole").close()
    callback, stop = stopping(11)
    begin(made, tmp_path / "pieces", [callback], stop).close()
    (tmp_path / "pieces" / "models" / "00000011.state.safetensors").write_bytes(b"")
    resume_run(made, tmp_path / "pieces", go_back=True).close()
    same(tmp_path / "pieces", tmp_path / "whole")


def test_a_damaged_version_under_way_takes_the_run_further_back(tmp_path: Path) -> None:
    made = composition(rounds=20)
    begin(made, tmp_path / "whole").close()
    callback, stop = stopping(11)
    begin(made, tmp_path / "pieces", [callback], stop).close()
    flying = [
        p
        for p in (tmp_path / "pieces" / "models").glob("0000000?.safetensors")
        if p.name[7] != "0"
    ]
    assert flying
    for path in flying:
        path.unlink()
    resume_run(made, tmp_path / "pieces", go_back=True).close()
    same(tmp_path / "pieces", tmp_path / "whole")


# runs of Python objects
# -----------------------------------------------------------------------------


def arrays(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return poise.federation(
        (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 3, 40)), clients=4
    )


def train_arrays(path: Path, **more: Any) -> Run:
    return poise.train(
        arrays(),
        poise.task("logistic"),
        SGD(lr=0.1, steps=2),
        rounds=6,
        out=path,
        **more,
    )


def test_a_run_of_given_data_needs_them_again(tmp_path: Path) -> None:
    train_arrays(tmp_path / "whole").close()
    callback, stop = stopping(3)
    train_arrays(tmp_path / "pieces", callbacks=[callback], stop=stop).close()
    with pytest.raises(
        InvalidOption,
        match=r"experiment\.toml: the data of this run were Python objects",
    ) as caught:
        resume(tmp_path / "pieces")
    assert "federation=" in caught.value.hint
    resume(tmp_path / "pieces", federation=arrays()).close()
    same(tmp_path / "pieces", tmp_path / "whole")


def test_other_data_are_refused_and_change_nothing(tmp_path: Path) -> None:
    callback, stop = stopping(3)
    train_arrays(tmp_path / "run", callbacks=[callback], stop=stop).close()
    with opened(tmp_path / "run") as before:
        digest = before.digest
    with pytest.raises(
        IncompatibleParts, match="the clients' data are not those the run began with"
    ):
        resume(tmp_path / "run", federation=arrays(seed=1))
    with opened(tmp_path / "run") as after:
        assert (after.digest, after.rounds) == (digest, 3)
    resume(tmp_path / "run", federation=arrays()).close()


def test_other_data_are_refused_for_a_damaged_run_too(tmp_path: Path) -> None:
    callback, stop = stopping(3)
    train_arrays(tmp_path / "run", callbacks=[callback], stop=stop).close()
    newest = tmp_path / "run" / "models" / "00000003.safetensors"
    newest.write_bytes(b"")
    with pytest.raises(IncompatibleParts, match="data are not those"):
        resume(tmp_path / "run", federation=arrays(seed=1))
    with opened(tmp_path / "run") as after:
        assert after.rounds == 3


def test_a_run_of_a_given_task_needs_it_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    task = poise.Task(module=module)
    fed = poise.federation("digits", clients=4, samples=100)

    def go(out: Path, **more: Any) -> Run:
        return poise.train(fed, task, SGD(lr=0.1, steps=2), rounds=5, out=out, **more)

    go(tmp_path / "whole").close()
    callback, stop = stopping(2)
    go(tmp_path / "run", callbacks=[callback], stop=stop).close()
    with pytest.raises(InvalidOption, match="no \\[task\\]") as caught:
        resume(tmp_path / "run")
    assert "task=" in caught.value.hint
    wider = poise.Task(
        module=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 12))
    )
    with pytest.raises(
        IncompatibleParts, match="780 parameters, the model of the run 650"
    ):
        resume(tmp_path / "run", task=wider)
    resume(tmp_path / "run", task=task).close()
    same(tmp_path / "run", tmp_path / "whole")


def test_a_run_of_quadratics_is_taken_up(tmp_path: Path) -> None:
    fed = quadratics()

    def go(out: Path, **more: Any) -> Run:
        return poise.train(
            fed, fed.task, SGD(lr=0.1, steps=2), rounds=5, out=out, **more
        )

    go(tmp_path / "whole").close()
    callback, stop = stopping(2)
    go(tmp_path / "run", callbacks=[callback], stop=stop).close()
    resume(tmp_path / "run", federation=fed, task=fed.task).close()
    same(tmp_path / "run", tmp_path / "whole")


def test_a_taken_folder_is_refused(tmp_path: Path) -> None:
    train_arrays(tmp_path / "run").close()
    with pytest.raises(LedgerError, match="holds a run already"):
        train_arrays(tmp_path / "run")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(
        small(rounds=2)
    )  # someone's own file, not a run
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(LedgerError, match="is not a run folder"):
            resume(path)
    assert [p.name for p in tmp_path.iterdir()] == ["experiment.toml"]


def test_a_run_with_a_budget_of_time_knows_whether_it_was_stopped(
    tmp_path: Path,
) -> None:
    fed = quadratics()

    def go(out: Path, **more: Any) -> Run:
        return poise.train(
            fed, fed.task, SGD(lr=0.1, steps=2), time=5.0, out=out, **more
        )

    whole = go(tmp_path / "whole")
    assert (whole.rounds, whole.meta["status"]) == (5, "done")
    whole.close()
    callback, stop = stopping(2)
    stopped = go(tmp_path / "run", callbacks=[callback], stop=stop)
    assert (stopped.rounds, stopped.meta["status"]) == (2, "stopped")
    stopped.close()
    resume(tmp_path / "run", federation=fed, task=fed.task).close()
    same(tmp_path / "run", tmp_path / "whole")
