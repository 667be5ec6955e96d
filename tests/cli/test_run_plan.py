"""What ``poise run`` says before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.apps.cli.run_plan import plan_lines, plan_of
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse
from poise.training import compose

BASE = """
[data]
source = "digits"
clients = 10
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 10
[sampler]
name = "uniform"
m = 3
[run]
rounds = 4
"""


def plan(
    text: str = BASE, seeds: tuple[int, ...] = (0,), taken: Path | None = None
) -> str:
    composition = compose(parse(text), seeds[0])
    rows = plan_of(composition, seeds, folder=Path("runs/x"), taken=taken)
    return "\n".join(plan_lines(rows))


SAYS = [
    ("1,438 training samples, 143 to 144 per client", BASE),
    ("logistic: 650 parameters", BASE),  # 64 * 10 + 10
    ("kernel: dense", BASE),
    ("solver sgd(lr=0.1, steps=2, batch_size=10) · sampler uniform(m=3)", BASE),
    ("4 rounds, 1 seed (0); backend local", BASE),
    ("2.60 kB up and 2.60 kB down per client", BASE),  # 650 floats of 4 bytes
    ("about 31.2 kB up and 31.2 kB down per seed (3 clients per round)", BASE),
    ("runs/x/seed-0", BASE),
    ("simulated time 5", BASE.replace("rounds = 4", "time = 5")),
    ("no alpha given", BASE.replace("clients = 10", 'partition = "dirichlet"')),
    ("(10 clients per round)", BASE.replace("uniform", "full").replace("m = 3", "")),
]


@pytest.mark.parametrize(("text", "experiment"), SAYS, ids=[s[0][:30] for s in SAYS])
def test_the_plan_says(text: str, experiment: str) -> None:
    assert text in plan(experiment)


def test_the_plan_names_all_seeds_and_their_folders() -> None:
    text = plan(seeds=(0, 1, 2))
    assert "3 seeds (0, 1, 2)" in text
    assert "runs/x/seed-0 … seed-2" in text


def test_a_folder_that_exists_is_named_with_the_way_to_continue_it() -> None:
    assert "poise resume runs/exp" in plan(taken=Path("runs/exp"))


def test_the_bytes_of_the_plan_are_those_of_the_run() -> None:
    (run,) = run_experiment(parse(BASE), None)
    assert int(run.bytes_up.sum()) == 4 * 3 * 650 * 4
