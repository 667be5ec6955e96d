"""The models that a branch keeps for later requests."""

from pathlib import Path

import pytest

import poise
from poise.unlearning import Budget
from poise.unlearning.histories import Histories
from poise.unlearning.methods import decide


@pytest.mark.parametrize("sigma", [0.02, 0.4])
def test_a_branch_keeps_the_models_that_its_own_budget_restarts_from(
    tmp_path: Path, sigma: float
) -> None:
    """Not those of the default budget: a later request restarts as late as if every model had been
    kept."""
    fed = poise.federation("digits", "one-class", clients=20)
    poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.05, steps=5, batch_size=10),
        poise.samplers.Uniform(5),
        rounds=30,
        metrics=["train_accuracy"],
        keep="unlearnable",
        unlearning=Budget(sigma=sigma),
        out=tmp_path / "run",
    )
    ends = {"sigma": sigma, "target": 1.1, "min_rounds": 30, "max_rounds": 30}
    poise.unlearn(tmp_path / "run", [0, 10], **ends)
    before = Histories.of(poise.open_run(tmp_path / "run"))
    decision = decide("sifu", before, [(1,), (11,)], Budget(sigma=sigma))
    assert decision.node == decision.ideal
    assert len(before.run(1).kept) < 31
    assert poise.unlearn(tmp_path / "run", [1, 11], **ends).restart == decision.ideal
