# %% [markdown]
# # Handwriting by writer
#
# MNIST was written by 539 people. NodeContext a hundred of them are clients, each with its own
# digits and its own hand; the
# common test set holds writers that nobody has seen. Two questions: how well is the average writer
# served, and how
# well the worst ones? Counting clients with large losses for more (`SoftMax`) should help the
# second, and costs bias.
#
# Needs MNIST with its writers (`poise data fetch mnist`).

# %%
import os
from pathlib import Path

import numpy as np

import poise
from poise.analysis.reports import group_runs, write_page
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # as the tests run it
WRITERS, ROUNDS = (12, 3) if TINY else (100, 40)

try:
    fed = poise.federation(
        "mnist", "by-key", by="writer", clients=WRITERS, seed=0, test_samples=2000
    )
except poise.PoiseError as absent:
    raise SystemExit(f"{absent.message}\n{absent.hint}") from None
print(f"{fed.clients} writers with {fed.sizes.min()} to {fed.sizes.max()} digits each")

# %% [markdown]
# Before training: what do the two choices minimise?

# %%
task = poise.task("mlp", hidden=50)
solver = poise.solvers.SGD(lr=0.1, steps=8, batch_size=10)
sampler = poise.samplers.Uniform(max(2, WRITERS // 10))
weightings = {
    "by size": poise.weightings.Proportional(),
    "by loss": poise.weightings.SoftMax(temperature=0.3),
}
for name, weighting in weightings.items():
    found = poise.explain(fed, task, solver, sampler=sampler, weighting=weighting, rounds=ROUNDS)
    print(f"{name}: {'; '.join(found.warnings) or 'no warnings'}")


# %%
def show(record: Record) -> None:
    """A line every tenth round."""
    if (record.index + 1) % 10 == 0:
        print(

                f"  round {record.index + 1:3d}: accuracy on unseen writers "
                f"{record.metrics['accuracy']:.3f}"

        )


runs = {}
for name, weighting in weightings.items():
    print(name)
    runs[name] = poise.train(
        fed,
        task,
        solver,
        sampler=sampler,
        weighting=weighting,
        rounds=ROUNDS,
        seed=0,
        callbacks=[show],
        metrics=["own_accuracy", "client_test_accuracy"],
    )

# %% [markdown]
# Each writer kept a fifth of its digits back. The worst tenth of the writers is what the second
# weighting is for.

# %%
print(f"{'':10} {'unseen':>8} {'own':>8} {'worst tenth':>12}")
for name, run in runs.items():
    own = np.sort(run.metric("client_test_accuracy")[-1])
    worst = own[: max(1, len(own) // 10)].mean()
    print(

            f"{name:10} {run.metric('accuracy')[-1]:8.3f} {run.metric('own_accuracy')[-1]:8.3f} "
            f"{worst:12.3f}"

    )
print("One seed: repeat with others before you believe a small difference.")

# %%
page = write_page(group_runs(runs.values()), Path("handwriting.html"), "Handwriting by writer")
print(f"curves, weights and clients: {page}")
