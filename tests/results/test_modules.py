"""The model of a run as a module, and by the names of its tensors."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import poise
from own_code.support import forgotten_modules, write_package
from poise.config.experiment import load
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.training import begin, compose

HERE = Path(__file__).parent
SOLVER = poise.solvers.SGD(lr=0.1, steps=3, batch_size=16)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with forgotten_modules():
        yield


def digits(**options: object) -> poise.data.Federation:  # type: ignore[name-defined]
    return poise.federation("digits", "dirichlet", clients=5, alpha=0.5, **options)


def accuracy(module: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """The share of right answers, computed by PyTorch alone."""
    with torch.no_grad():
        outputs = module(torch.from_numpy(x))
    return float((outputs.argmax(dim=1).numpy() == y).mean())


MODELS: dict[str, dict[str, object]] = {
    "logistic": {},
    "mlp": {"hidden": 12},
    "cnn": {"width": 4, "norm": True},
    "resnet20": {},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_named_model_measures_what_the_ledger_has(name: str, tmp_path: Path) -> None:
    options = {"samples": 200, "test_samples": 100}
    fed = digits(**options)
    if name in ("cnn", "resnet20"):
        x, y = (part[:200] for part in fed.client(0))
        x = np.pad(x, ((0, 0), (0, 0), (4, 4), (4, 4)))
        test = (np.pad(fed.test[0], ((0, 0), (0, 0), (4, 4), (4, 4))), fed.test[1])
        fed = poise.federation((x, y), clients=3, test=test)
    out = tmp_path / "run"
    rounds = 2
    made = poise.train(
        fed,
        poise.task(name, **MODELS[name]),
        SOLVER,
        rounds=rounds,
        out=out,
        keep="all",
    )
    for run in (made, poise.open_run(out)):
        for n in (1, rounds):
            module = run.module(n)
            assert not module.training
            measured = run.metric("accuracy")[n - 1]
            assert accuracy(module, *fed.test) == pytest.approx(measured)
            theirs = module.state_dict()
            for key, array in run.state_dict(n).items():
                assert array.dtype == theirs[key].numpy().dtype
                assert np.array_equal(array, theirs[key].numpy())
            assert set(theirs) == set(run.state_dict(n))


def test_batch_norm_statistics_are_loaded(tmp_path: Path) -> None:
    """After one local step of one client, statistics are those of its only batch."""
    generator = np.random.default_rng(0)
    x = generator.normal(3.0, 2.0, size=(8, 4)).astype(np.float32)
    y = generator.normal(size=8).astype(np.float32)
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    fed = poise.federation((x, y), clients=1)
    task = poise.Task(module=net, loss=lambda out, y: (out[:, 0] - y) ** 2)
    solver = poise.solvers.SGD(lr=0.0 + 1e-3, steps=1, batch_size=8)
    run = poise.train(fed, task, solver, rounds=1)
    state = run.state_dict()
    assert state["0.running_mean"] == pytest.approx(0.1 * x.mean(axis=0), rel=1e-5)
    assert state["0.running_var"] == pytest.approx(
        0.9 + 0.1 * x.var(axis=0, ddof=1), rel=1e-5
    )
    assert state["0.num_batches_tracked"].dtype == np.int64
    assert int(state["0.num_batches_tracked"]) == 1
    assert run.module().get_buffer("0.running_mean").numpy() == pytest.approx(
        state["0.running_mean"]
    )


def test_frozen_parameters_come_from_the_task(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[1].requires_grad_(False)
    net[1].weight.data += 1.0
    fed = digits(samples=100)
    out = tmp_path / "run"
    run = poise.train(fed, poise.Task(module=net), SOLVER, rounds=2, out=out)
    assert set(run.state_dict()) == {"3.weight", "3.bias"}
    module = run.module()
    assert torch.equal(module.get_parameter("1.weight"), net[1].weight)
    assert accuracy(module, *fed.test) == pytest.approx(run.metric("accuracy")[-1])
    reopened = poise.open_run(out)
    again = reopened.module(task=poise.Task(module=net))
    assert accuracy(again, *fed.test) == pytest.approx(run.metric("accuracy")[-1])
    other = copy.deepcopy(net)
    other[1].weight.data += 1.0
    with pytest.raises(IncompatibleParts, match="frozen parameters"):
        reopened.module(task=poise.Task(module=other))


def test_a_module_without_a_name_must_be_given_again(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    out = tmp_path / "run"
    fed = digits(samples=100)
    run = poise.train(fed, poise.Task(module=net), SOLVER, rounds=1, out=out)
    reopened = poise.open_run(out)
    assert {name: a.shape for name, a in reopened.state_dict().items()} == {
        "1.weight": (10, 64),
        "1.bias": (10,),
    }
    with pytest.raises(InvalidOption, match=r"run.module\(task=") as refused:
        reopened.module()
    assert "no name" in refused.value.message
    module = reopened.module(task=poise.Task(module=net))
    assert torch.equal(
        module.state_dict()["1.weight"], torch.from_numpy(run.state_dict()["1.weight"])
    )
    transposed = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 10))
    with pytest.raises(IncompatibleParts, match="entries"):
        reopened.module(task=poise.Task(module=transposed))
    renamed = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(64, 10))
    with pytest.raises(IncompatibleParts, match="names or shapes"):
        reopened.module(task=poise.Task(module=renamed))


def test_double_precision_lazy_layers_and_several_inputs(tmp_path: Path) -> None:
    fed = digits(samples=100)
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    task = poise.Task(module=lazy, dtype="float64")
    run = poise.train(fed, task, SOLVER, rounds=1)
    assert run.state_dict()["1.weight"].dtype == np.float64
    assert run.module().get_parameter("1.weight").dtype == torch.float64

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 1)
            self.b = nn.Linear(2, 1)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.a(first) + self.b(second)

    x = {
        "first": np.ones((6, 3), np.float32),
        "second": np.full((6, 2), 2.0, np.float32),
    }
    both = poise.federation((x, np.arange(6.0, dtype=np.float32)), clients=2)
    made = poise.train(
        both, poise.Task(module=Sum), SOLVER, rounds=1, out=tmp_path / "run"
    )
    again = poise.open_run(made.path).module(task=poise.Task(module=Sum))
    weights = made.state_dict()
    by_hand = (
        weights["a.weight"].sum()
        + weights["a.bias"].item()
        + 2 * weights["b.weight"].sum()
        + weights["b.bias"].item()
    )
    given = {name: torch.from_numpy(part[:1]) for name, part in x.items()}
    assert again(**given).item() == pytest.approx(by_hand, rel=1e-5)


def test_quadratics_have_a_vector_and_no_module() -> None:
    quad = poise.quadratics(np.eye(3))
    run = poise.train(quad, quad.task, poise.solvers.SGD(lr=0.1, steps=2), rounds=2)
    (array,) = run.state_dict().values()
    assert np.array_equal(array.reshape(-1), run.model)
    with pytest.raises(IncompatibleParts, match=r"run\.model"):
        run.module()


@pytest.mark.parametrize("features", [None, "random"])
def test_ridge_gives_its_head(features: str | None, tmp_path: Path) -> None:
    fed = digits(samples=300, test_samples=100)
    task = poise.ridge(features, count=40)  # type: ignore[arg-type]
    out = tmp_path / "run"
    run = poise.train(fed, task, poise.solvers.Sums(), rounds=1, out=out)
    module = poise.open_run(out).module()
    assert accuracy(module, *fed.test) == pytest.approx(run.metric("accuracy")[-1])
    if features is None:  # the closed form, from all samples at once
        rows = [fed.client(i) for i in range(fed.clients)]
        x = np.concatenate([x.reshape(len(x), -1) for x, _ in rows]).astype(float)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        y = np.eye(10)[np.concatenate([y for _, y in rows])]
        gram = x.T @ x / len(x) + 1e-3 * np.eye(x.shape[1])
        head = np.linalg.solve(gram, x.T @ y / len(x))
        assert module.state_dict()["head.weight"].numpy() == pytest.approx(
            head[:-1].T, abs=1e-6
        )


def own_run(tmp_path: Path, name: str) -> Path:
    """Train a model of a user's package, and return the run folder."""
    experiment = load(write_package(tmp_path, name))
    begin(compose(experiment, 0), tmp_path / "run").close()
    return tmp_path / "run"


def test_own_code_is_imported_for_the_module_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = own_run(tmp_path, "wt_models_a")
    code = (
        "import sys, poise; run = poise.open_run('run');"
        "state = run.state_dict();"
        "assert 'wt_models_a' not in sys.modules, 'opening imported it';"
        "module = run.module();"
        "assert 'wt_models_a' in sys.modules;"
        "assert (module.state_dict()['1.weight'].numpy() == state['1.weight']).all();"
        "print(type(module[2]).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "Tanh\n", done.stderr
    (tmp_path / "elsewhere").mkdir()
    lost = code.replace("'run'", repr(str(out)))
    done = subprocess.run(
        [sys.executable, "-c", lost],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
    )
    assert "there is no module 'wt_models_a.models'" in done.stderr
    # code that lies in the run folder is never imported
    write_package(out, "wt_models_a")
    inside = subprocess.run(
        [sys.executable, "-c", code.replace("'run'", "'.'")],
        cwd=out,
        capture_output=True,
        text=True,
    )
    assert inside.returncode == 1
    assert "run folder" in inside.stderr or "no module" in inside.stderr


def test_changed_code_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = own_run(tmp_path, "wt_models_b")
    for module in [m for m in sys.modules if m.startswith("wt_models_b")]:
        del sys.modules[module]
    file = tmp_path / "wt_models_b" / "models.py"
    file.write_text(file.read_text() + "\n# a comment\n")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="the code of wt_models_b changed"):
        poise.open_run(out).module()


def test_model_files_name_their_tensors(tmp_path: Path) -> None:
    out = tmp_path / "run"
    poise.train(digits(samples=100), poise.task("logistic"), SOLVER, rounds=1, out=out)
    files = sorted((out / "models").glob("????????.safetensors"))
    assert files
    for file in files:
        with safe_open(file, "numpy") as stored:
            assert stored.metadata() == {
                "tensors": '[["1.weight", [10, 64], "float32"], ["1.bias", [10], "float32"]]'
            }
            assert stored.get_tensor("theta").shape == (650,)


def test_names_do_not_change_the_digest() -> None:
    """The same vector with other names has the same digest: names are metadata."""
    runs = []
    for module in (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(64, 10)),
    ):
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        task = poise.Task(module=module)
        runs.append(poise.train(digits(samples=100), task, SOLVER, rounds=2))
    first, second = runs
    assert set(first.state_dict()) != set(second.state_dict())
    assert first.digest == second.digest


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("tensors", "[["),
        ("tensors", '[["a", [-1], "float32"]]'),
        ("tensors", '[["a", [3], "float32"]]'),
        ("tensors", '[["a", [650], "object"]]'),
        ("sample form", '{"shapes": [[4294967296, 4294967296]], "stored": ["uint8"]}'),
        ("sample form", '{"shapes": "x"}'),
    ],
)
def test_damaged_descriptions_are_one_error(
    tmp_path: Path, key: str, text: str
) -> None:
    out = tmp_path / "run"
    fed = digits(samples=100)
    poise.train(fed, poise.task("logistic"), SOLVER, rounds=1, out=out).note(key, text)
    read: dict[str, Callable[[poise.Run], object]] = {
        "tensors": poise.Run.state_dict,
        "sample form": poise.Run.module,
    }
    with pytest.raises(LedgerError, match="cannot be read"):
        read[key](poise.open_run(out))


@pytest.mark.parametrize("name", ["stopped", "in-flight"])
def test_runs_of_poise_0_1_give_their_model(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(HERE.parent / "old_runs" / name, tmp_path / name)
    run = poise.open_run(folder)
    assert "tensors" not in run.meta
    total = sum(array.size for array in run.state_dict().values())
    assert total == len(run.model)
    module = run.module()
    assert sum(t.numel() for t in module.state_dict().values()) == len(run.model)


def test_a_resume_names_the_tensors_of_older_runs(tmp_path: Path) -> None:
    folder = shutil.copytree(HERE.parent / "old_runs" / "stopped", tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this machine may round in another way
        poise.resume(folder).close()
    run = poise.open_run(folder)
    assert run.meta["tensors"]
    with safe_open(run.model_file(run.rounds), "numpy") as stored:
        assert stored.metadata() == {"tensors": run.meta["tensors"]}
    shapes = [array.shape for array in run.state_dict().values()]
    assert shapes == [tuple(p.shape) for p in run.module().state_dict().values()]


def test_results_of_requests_give_their_module() -> None:
    run = poise.train(
        digits(samples=200), poise.task("logistic"), SOLVER, rounds=3, keep="all"
    )
    result = poise.unlearn(run, [1], heuristic=True, min_rounds=0, max_rounds=2)
    x, y = digits(samples=200).test
    right = (result.run.predict(x, labels=True) == y).mean()
    assert right == pytest.approx(result.run.metric("accuracy")[-1])
