# %% [markdown]
# # Slow devices
#
# The slowest of twenty devices takes five times as long as the fastest. Waiting for all devices
# wastes the time of the fast devices. Without waiting, fast devices answer more often and count
# more, unless the weights correct for it. Time is simulated, and all runs have the same time
# budget.
#
# The data ships with scikit-learn.

# %%
import os
from pathlib import Path

import numpy as np

import poise
from poise.analysis.reports import group_runs, write_page
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
BUDGET = 3.0 if TINY else 20.0

fed = poise.federation("digits", "dirichlet", alpha=0.1, clients=20, seed=0)
task = poise.task("logistic")
solver = poise.solvers.SGD(lr=0.05, steps=5, batch_size=16)
tau = "F80"  # device 0 takes 1 unit of time, the last device 80 % less

choices = {
    "wait for everyone": {"clock": poise.clocks.Synchronous(tau)},
    "every 0.25, weighed by time (FedFix)": {
        "clock": poise.clocks.FixedWindow(0.25, tau),
        "weighting": poise.weightings.TimeBased(),
    },
    "every 0.25, all answers alike": {
        "clock": poise.clocks.FixedWindow(0.25, tau),
        "weighting": poise.weightings.Identical(),
    },
    "five answers (FedBuff)": {
        "clock": poise.clocks.Buffered(5, tau),
        "weighting": poise.weightings.Identical(),
    },
}

# %% [markdown]
# Before training: which choices minimise the intended objective? χ² is the distance of the
# minimised objective from the intended one.

# %%
for name, parts in choices.items():
    explanation = poise.explain(fed, task, solver, **parts, time=BUDGET)
    verdict = "unbiased" if explanation.unbiased else "biased"
    print(f"{name:40} {verdict:9} χ² {explanation.chi2:.3f}")


# %%
def show(record: Record) -> None:
    """Print a line every twentieth round."""
    if (record.index + 1) % 20 == 0:
        print(
            f"  round {record.index + 1:3d}, time {record.time:5.2f}: accuracy "
            f"{record.metrics['accuracy']:.3f}"
        )


runs = {}
for name, parts in choices.items():
    print(name)
    runs[name] = poise.train(
        fed, task, solver, **parts, time=BUDGET, seed=0, callbacks=[show]
    )

# %%
print(f"{'':40} {'rounds':>7} {'accuracy':>9} {'loss':>7} {'slow half counts':>17}")
for name, run in runs.items():
    share = run.weights[:, :10].sum() / run.weights.sum()
    accuracy, loss = run.metric("accuracy")[-1], run.metric("loss")[-1]
    print(f"{name:40} {run.rounds:7d} {accuracy:9.3f} {loss:7.3f} {share:17.2f}")
print(
    f"intended: the slow half has {np.asarray(fed.importance)[:10].sum():.2f} of the data"
)

# %%
page = write_page(group_runs(runs.values()), Path("slow_devices.html"), "Slow devices")
print(f"curves, weights and schedule: {page}")
